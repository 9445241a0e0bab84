"""Compare Open vSwitch's two datapaths: start-up, processor time, and the quickstart's ratios.

If the kernel lacks a datapath, its row says so. In an emulated virtual machine, all times are those
of the guest's clock, which counts instructions (docs/guides/virtual-machine.md).
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from model.fabric.spec import Datapath, FabricKind
from scenarios.benchmarks.common.fabrics import bench_fabric, library_cases
from scenarios.benchmarks.common.rows import SIXTEEN, Row, part
from scenarios.benchmarks.common.seen import seen
from scenarios.benchmarks.growth import exchange_cost
from scenarios.benchmarks.startup import up_and_down
from testbed.nodes.gpu_proxies import ProxyKind

TRIALS = 3


def datapaths(store: Path) -> Iterator[Row]:
    """Measure, in each datapath, both kinds of fabrics and then all cases of the quickstart."""
    for datapath in Datapath:
        facts = {"datapath": datapath.value, "proxies": ProxyKind.PROCESS.value}
        for kind in FabricKind:
            yield from part(_costs(datapath, kind), **facts, fabric=kind.value)
        cases = library_cases("quickstart", store, [f"fabric.datapath={datapath}"])
        yield from part(map(seen, cases), **facts)


def _costs(datapath: Datapath, kind: FabricKind) -> Iterator[Row]:
    spec = replace(SIXTEEN, kind=kind, datapath=datapath)
    up_s = median(up_and_down(spec, ProxyKind.PROCESS)[0] for _ in range(TRIALS))
    with bench_fabric("datapath", spec) as fabric:
        cpu_s, gbytes = exchange_cost(fabric)
    yield {"gpus": spec.gpus, "up_s": up_s, "cpu_s_per_gbyte": cpu_s / gbytes}
