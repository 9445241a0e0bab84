"""Benchmark the largest fabrics that still match the model, and the largest total traffic."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from execution.cases.emulation import Experiment
from execution.cases.observer import Observer
from execution.cases.progress import SILENT
from execution.run import run
from model.fabric.shaping import wire_bytes
from model.fabric.spec import GBIT, FabricSpec
from model.fabric.topology import LinkKind
from model.measurement.records import Repeat
from model.workload.transfers.columns import streams
from results.verdicts.fidelity import machine_headroom, machine_reasons
from results.verdicts.verdict import Reason, worst
from scenarios.library_files import LIBRARY
from scenarios.load import load
from studies.benchmarks.fabrics import bench_fabric, containers
from studies.benchmarks.rows import SIXTEEN, Row, part
from testbed.instruments.pauses import watching_pauses
from testbed.instruments.samplers import CpuMonitor
from testbed.nodes.gpu_proxies import ProxyKind

# 256 GPUs, NICs at 1 and HB links at 9 Mbit/s: an execution takes one to two minutes.
LARGEST = (
    "fabric.domains=32",
    "fabric.bandwidth_scale=400000",
    "workloads.0.size=8 MB",
    "workloads.1.size=8 MB",
    "repeats=1",
)
# A direct all-to-all sends the smallest messages, 255 a GPU, and forwards most of them: with the
# slowest links that can be shaped, and more to send, an execution takes four minutes.
LARGEST_DIRECT = (*LARGEST, "fabric.bandwidth_scale=800000", "workloads.2.size=16 MB")
ALGORITHMS = ("ring", "two-step", "direct")
# Each of 16 GPUs: 512 Mbit/s in its HB domain, 64 Mbit/s on its NIC; in all 8.2 and 1.0 Gbit/s.
AT_ONCE = replace(
    SIXTEEN,
    platform="own",
    hb=replace(SIXTEEN.hb, rate_bps=512 * GBIT),
    nic=replace(SIXTEEN.nic, rate_bps=64 * GBIT),
    bandwidth_scale=1000,
)
AT_ONCE_S = 5
AT_ONCE_TRIALS = 3


def capacity(store: Path) -> Iterator[Row]:
    """Measure rings everywhere at once; then, collectives on 64 containers and 256 processes."""
    process = ProxyKind.PROCESS
    yield from part(at_once(), gpus=AT_ONCE.gpus, proxies=process.value)
    for proxies, overrides, algorithms in (
        (containers(), (), ALGORITHMS),
        (process, LARGEST, ("ring", "two-step")),
        (process, LARGEST_DIRECT, ("direct",)),
    ):
        rows = _collectives(proxies, overrides, algorithms, store)
        yield from part(rows, proxies=proxies.value)


def _collectives(
    proxies: ProxyKind, overrides: Sequence[str], algorithms: Sequence[str], store: Path
) -> Iterator[Row]:
    scenario = load(LIBRARY / "capacity.yaml", list(overrides))
    cases = tuple(case for case in scenario.cases if case.task.algorithm in algorithms)
    for case in run(replace(scenario, cases=cases), proxies, store, SILENT)["cases"]:
        yield {
            "gpus": case["gpus"],
            "collective": case["collective"],
            "algorithm": case["algorithm"],
            "measured_s": case["measured_s"]["median"],
            "modeled_s": case["modeled_s"],
            "ratio": case["ratio"],
            "disturbed": len(case["disturbed_s"]),
            "verdict": case["verdict"],
            "reasons": case["reasons"],
        }


@dataclass(frozen=True)
class Ring:
    """Streams from every GPU to the next GPU of its HB domain, or of its rail."""

    kind: LinkKind
    domains: int
    rails: int

    def flows(self, fabric: Experiment) -> list[tuple[int, int, int]]:
        """Return source, destination and bytes of each stream; links are busy for `AT_ONCE_S`."""
        spec = fabric.topology.spec
        size = round(_rate_bps(fabric, self.kind) / 8 * AT_ONCE_S / wire_bytes(1))
        flows = []
        for rank, gpu in enumerate(fabric.topology.gpus):
            domain = (gpu.domain + self.domains) % spec.domains
            rail = (gpu.rail + self.rails) % spec.domain_size
            flows.append((rank, domain * spec.domain_size + rail, size))
        return flows


ON_RAILS = Ring(LinkKind.NIC, 1, 0)
RINGS = (Ring(LinkKind.HB, 0, 1), ON_RAILS)


def at_once(
    spec: FabricSpec = AT_ONCE, rings: Sequence[Ring] = RINGS, trials: int = AT_ONCE_TRIALS
) -> Iterator[Row]:
    """Run rings everywhere at once, each link that they use saturated both ways."""
    with (
        bench_fabric("capacity", spec) as fabric,
        CpuMonitor(fabric.bed.open_vswitch) as watching,
        watching_pauses() as watch,
    ):
        _rings_at_once(fabric, rings)  # connections are warm from now on
        observer = Observer(fabric, watching, watch)
        for _ in range(trials):
            done = _rings_at_once(fabric, rings)
            observer.note(done)
            reasons = list(machine_reasons(machine_headroom(observer.observations([done]), 0)))
            yield from (_ring_row(fabric, ring, done, reasons) for ring in rings)


def _rings_at_once(fabric: Experiment, rings: Sequence[Ring]) -> Repeat:
    sent = streams(flow for ring in rings for flow in ring.flows(fabric))
    return fabric.agents.execute(sent, fabric.placement.addresses(), 10 * AT_ONCE_S)


def _ring_row(fabric: Experiment, ring: Ring, done: Repeat, reasons: Sequence[Reason]) -> Row:
    """Return the row of one kind of ring; its slowest stream gives the time."""
    flows = set(ring.flows(fabric))
    records = [r for r in done.records if (r.source, r.destination, r.size_bytes) in flows]
    bits = 8 * wire_bytes(sum(record.size_bytes for record in records))
    taken_s = max(record.arrived_ns for record in records) / 1e9
    nominal_bps = len(records) * _rate_bps(fabric, ring.kind)
    return {
        "collective": f"{ring.kind} rings, all at once",
        "carried_gbit_per_s": bits / taken_s / 1e9,
        "nominal_gbit_per_s": nominal_bps / 1e9,
        "ratio": taken_s * nominal_bps / bits,
        "verdict": worst(verdict for verdict, _ in reasons).value,
        "reasons": [reason for _, reason in reasons],
    }


def _rate_bps(fabric: Experiment, kind: LinkKind) -> int:
    return fabric.topology.link_of(fabric.topology.gpus[0], kind).rate_bps
