"""Benchmark other data planes: the two datapaths of Open vSwitch, HTB and HFSC.

If the kernel lacks a datapath or a shaper, its row says so. In an emulated virtual machine, all
times are those of the guest's clock, which counts instructions (docs/guides/virtual-machine.md).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from pyroute2.netlink.exceptions import NetlinkError

from execution.cases.emulation import Experiment
from execution.cases.progress import SILENT
from execution.run import run
from linux.network.route_socket import RouteSocket
from model.errors import NotReady
from model.fabric.shaping import (
    ACKNOWLEDGEMENT_CLASS,
    ACKNOWLEDGEMENT_SHARE,
    DEFAULT_DEPTH_S,
    LEAST_DEPTH_S,
    Shaper,
)
from model.fabric.spec import COMPARED, Datapath, FabricKind, FabricSpec
from model.fabric.topology import Link
from model.prediction.fluid import Prediction
from model.workload.schedule import Schedule
from scenarios.library_files import LIBRARY
from scenarios.load import load
from studies.benchmarks.accuracy import disturbed
from studies.benchmarks.capacity import ON_RAILS, at_once
from studies.benchmarks.costs import exchange, exchange_cost, up_and_down
from studies.benchmarks.fabrics import bench_fabric
from studies.benchmarks.rows import NEVER_PASSED, SIXTEEN, Row, judged, part
from testbed.fabric.links import Links
from testbed.fabric.shaping import DATA_CLASS, LINK_CLASS, ROOT, add_acknowledgement_filter
from testbed.nodes.gpu_proxies import ProxyKind

TRIALS = 3
# NIC rates in Mbit/s of the capacity's rows. The first is for an emulated processor, ten times
# slower than a real one, that switches in user space.
RATES = (10, 20, 40, 80, 160, 320)
SHARES = (0.0, 0.2, 0.4)
WARMUP, REPEATS = 1, 5
NIC_BUSY_S = 2.0
# HFSC allows no burst, so its model has the shallowest bucket.
SHALLOW = replace(SIXTEEN, bucket_depth_s=LEAST_DEPTH_S)
SHAPERS = {
    f"HTB, {LEAST_DEPTH_S * 1e3:g} ms": SHALLOW,
    f"HTB, {DEFAULT_DEPTH_S * 1e3:g} ms": SIXTEEN,
    "HFSC": SHALLOW,
}


def datapaths(store: Path) -> Iterator[Row]:
    """Measure, in each datapath, both kinds of fabrics, the capacity, and the quickstart."""
    for datapath in Datapath:
        facts = {"datapath": datapath.value, "proxies": ProxyKind.PROCESS.value}
        for kind in COMPARED:
            yield from part(_costs(datapath, kind), **facts, fabric=kind.value)
        yield from part(capacity(datapath), **facts, gpus=SIXTEEN.gpus)
        yield from part(_quickstart(datapath, store), **facts)


def _quickstart(datapath: Datapath, store: Path) -> Iterator[Row]:
    scenario = load(LIBRARY / "quickstart.yaml", [f"fabric.datapath={datapath}"])
    yield from map(judged, run(scenario, ProxyKind.PROCESS, store, SILENT)["cases"])


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
        # The slowest stream was as fast as its links, as far as a verdict may still pass.
        kept_up = row["ratio"] - 1 <= NEVER_PASSED and row["verdict"] != "fail"
        yield {"nic_mbit_per_s": rate, **row, "kept_up": kept_up}
        if not kept_up:
            return


def shape_by_hfsc(links: Links, shaped: Sequence[Link]) -> None:
    """Replace the shapers of these links; raises `NotReady` on a kernel without HFSC."""
    for link in shaped:
        for end in (link.lower, link.upper):
            with links.netlink_of(end) as netlink:
                _replace_shaper(netlink, links.index_of(end), link.shaper)


def _replace_shaper(netlink: RouteSocket, interface: int, shaper: Shaper) -> None:
    rate = shaper.rate_bps
    acknowledgements = round(rate * ACKNOWLEDGEMENT_SHARE)
    whole, data, short = (
        {"m2": f"{bps}bit"} for bps in (rate, rate - acknowledgements, acknowledgements)
    )
    netlink.tc("del", "htb", interface, ROOT)
    try:
        netlink.tc("add", "hfsc", interface, ROOT, default=DATA_CLASS & 0xFFFF)
    except NetlinkError as error:
        raise NotReady(f"this kernel has no HFSC ({error.args[-1]})") from error
    for handle, parent, curves in (
        (LINK_CLASS, ROOT, {"fsc": whole, "usc": whole}),
        (DATA_CLASS, LINK_CLASS, {"fsc": data}),
        # HFSC serves the real-time curve (rsc) first.
        (ACKNOWLEDGEMENT_CLASS, LINK_CLASS, {"rsc": short, "fsc": short}),
    ):
        netlink.tc("add-class", "hfsc", interface, handle, parent=parent, **curves)
    add_acknowledgement_filter(netlink, interface)


def shapers(_store: Path) -> Iterator[Row]:
    """Compare the time of a two-step all-to-all with its model, by shaper and noise."""
    for name, spec in SHAPERS.items():
        facts = {"shaper": name, "proxies": ProxyKind.PROCESS.value}
        yield from part(_with(name, spec), **facts)


def _with(name: str, spec: FabricSpec) -> Iterator[Row]:
    schedule = exchange(spec, NIC_BUSY_S)
    with bench_fabric("shapers", spec) as fabric:
        if name == "HFSC":
            shape_by_hfsc(fabric.bed.links, fabric.topology.links)
        prediction = fabric.predict(schedule)
        for share in SHARES:
            yield {"asked": share, **_under(share, fabric, schedule, prediction)}


def _under(share: float, fabric: Experiment, schedule: Schedule, prediction: Prediction) -> Row:
    with disturbed(share) as taken:
        repeats = list(fabric.repeats(schedule, prediction, WARMUP + REPEATS, check_data=False))
    ratios = [repeat.completion_s / prediction.completion_s for repeat in repeats[WARMUP:]]
    spread = max(ratios) - min(ratios)
    return {"noise": taken["noise"], "ratio": median(ratios), "spread": spread}
