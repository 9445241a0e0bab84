"""Compare Open vSwitch's two datapaths: start-up, processor time, capacity, the quickstart.

If the kernel lacks a datapath, its row says so. In an emulated virtual machine, all times are those
of the guest's clock, which counts instructions (docs/guides/virtual-machine.md).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from model.fabric.spec import Datapath, FabricKind
from studies.benchmarks.common.fabrics import bench_fabric, library_cases
from studies.benchmarks.common.rows import SIXTEEN, Row, part
from studies.benchmarks.common.seen import NEVER_PASSED, judged
from studies.benchmarks.costs.capacity import ON_RAILS, at_once
from studies.benchmarks.costs.growth import exchange_cost
from studies.benchmarks.costs.startup import up_and_down
from testbed.nodes.gpu_proxies import ProxyKind

TRIALS = 3
# NIC rates in Mbit/s of the capacity's rows. The first is for an emulated processor, ten times
# slower than a real one, that switches in user space.
RATES = (10, 20, 40, 80, 160, 320)


def datapaths(store: Path) -> Iterator[Row]:
    """Measure, in each datapath, both kinds of fabrics, the capacity, and the quickstart."""
    for datapath in Datapath:
        facts = {"datapath": datapath.value, "proxies": ProxyKind.PROCESS.value}
        for kind in FabricKind:
            yield from part(_costs(datapath, kind), **facts, fabric=kind.value)
        yield from part(capacity(datapath), **facts, gpus=SIXTEEN.gpus)
        cases = library_cases("quickstart", store, [f"fabric.datapath={datapath}"])
        yield from part(map(judged, cases), **facts)


def _costs(datapath: Datapath, kind: FabricKind) -> Iterator[Row]:
    spec = replace(SIXTEEN, kind=kind, datapath=datapath)
    up_s = median(up_and_down(spec, ProxyKind.PROCESS)[0] for _ in range(TRIALS))
    with bench_fabric("datapath", spec) as fabric:
        cpu_s, gbytes = exchange_cost(fabric)
    yield {"gpus": spec.gpus, "up_s": up_s, "cpu_s_per_gbyte": cpu_s / gbytes}


def capacity(datapath: Datapath, rates: Sequence[int] = RATES) -> Iterator[Row]:
    """Fill all NIC links at rising rates, up to the first that the rail switches do not keep up.

    A row is one execution at one rate: rings on all rails at once, without traffic in HB domains,
    which the datapath would not carry. The last rate kept up is the capacity.
    """
    for rate in rates:
        scale = SIXTEEN.nic.rate_bps / rate / 1e6
        spec = replace(SIXTEEN, datapath=datapath, bandwidth_scale=scale)
        (row,) = at_once(spec, [ON_RAILS], trials=1)
        kept_up = _is_kept_up(row)
        yield {"nic_mbit_per_s": rate, **row, "kept_up": kept_up}
        if not kept_up:
            return


def _is_kept_up(row: Row) -> bool:
    """Whether the slowest stream was as fast as its links, as far as a verdict may still pass."""
    return bool(row["ratio"] - 1 <= NEVER_PASSED and row["verdict"] != "fail")
