"""Small fabrics, brought up for real."""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from execution.cases.emulation import Experiment, experiment
from model.fabric.spec import Datapath, FabricKind, FabricSpec
from testbed.nodes.datapath import default_datapath
from testbed.nodes.gpu_proxies import ProxyKind
from tests.unit.fabrics import spec

_numbers = itertools.count()


def small_spec(kind: FabricKind, domains: int = 2, domain_size: int = 2) -> FabricSpec:
    """A fabric at DGX H100 rates, slowed down to 20 and 180 Mbit/s, with full bisection."""
    return spec(kind, domains, domain_size, spines=domains)


def times_slower() -> int:
    """By how much full links must be slower on this machine: one processor cannot switch as well.

    With switches in user space, one processor of 10^9 instructions a second has no idle time left
    at 20 Mbit/s a NIC (docs/reference/measurements.md, "Datapaths"). Executions then take longer:
    with less data, the segments of 64 KiB would be large against them.
    """
    alone = len(os.sched_getaffinity(0)) == 1
    return 4 if alone and default_datapath() is Datapath.USER_SPACE else 1


def slowed_down(fabric: FabricSpec) -> FabricSpec:
    """The same fabric with links that this machine can keep full."""
    return replace(fabric, bandwidth_scale=fabric.bandwidth_scale * times_slower())


@contextmanager
def fabric_up(fabric: FabricSpec, kind: ProxyKind) -> Iterator[Experiment]:
    """Bring a fabric up, with connected agents."""
    with experiment(fabric, kind, f"test-{os.getpid()}-{next(_numbers)}") as running:
        yield running
