"""Small fabrics, brought up for real."""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

from model.fabric.spec import FabricKind, FabricSpec
from scenarios.execution.emulation import Experiment, experiment
from testbed.nodes.gpu_proxies import ProxyKind
from tests.unit.fabrics import spec

_numbers = itertools.count()


def small_spec(kind: FabricKind, domains: int = 2, domain_size: int = 2) -> FabricSpec:
    """A fabric at DGX H100 rates, slowed down to 20 and 180 Mbit/s, with full bisection."""
    return spec(kind, domains, domain_size, spines=domains)


@contextmanager
def fabric_up(fabric: FabricSpec, kind: ProxyKind) -> Iterator[Experiment]:
    """Bring a fabric up, with connected agents."""
    with experiment(fabric, kind, f"test-{os.getpid()}-{next(_numbers)}") as running:
        yield running
