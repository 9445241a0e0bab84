"""Small fabrics, brought up for real."""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

from model.fabric import FabricKind, FabricSpec
from model.platforms import GBIT
from scenarios.experiment import Experiment, experiment
from testbed.marks import marked_run
from testbed.proxies import ProxyKind

_numbers = itertools.count()


def small_spec(kind: FabricKind, domains: int = 2, domain_size: int = 2) -> FabricSpec:
    """A fabric at DGX H100 rates, slowed down to 20 and 180 Mbit/s."""
    return FabricSpec(
        kind=kind,
        domains=domains,
        domain_size=domain_size,
        platform="dgx-h100",
        hb_rate_bps=3600 * GBIT,
        nic_rate_bps=400 * GBIT,
        bandwidth_scale=20_000,
        spines=domains,
    )


@contextmanager
def fabric_up(spec: FabricSpec, kind: ProxyKind) -> Iterator[Experiment]:
    """A fabric with connected agents."""
    run_id = f"test-{os.getpid()}-{next(_numbers)}"
    with marked_run(run_id) as mark, experiment(spec, kind, mark) as fabric:
        yield fabric
