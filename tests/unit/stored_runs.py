"""Runs as a store keeps them, made from the model: measured is what was predicted, and some."""

import csv
from collections.abc import Iterator
from dataclasses import fields
from itertools import count
from pathlib import Path
from typing import Any

from model.fabric.build import build_topology
from model.fabric.health import Epoch
from model.fabric.spec import COMPARED, FabricKind
from model.fabric.topology import Topology
from model.measurement.records import (
    CaseExecutions,
    LinkSample,
    QueuePairSample,
    QueueSample,
    Repeat,
    TransferRecord,
)
from model.prediction.fluid import Prediction, path_class, predict
from model.workload.schedule import Schedule
from model.workload.transfers.collective import Collective
from results.store.records import plain
from results.store.runs import RunFolder, read_result
from results.store.tables import seal
from results.verdicts.model_comparison import CaseResult, Measured, compare
from results.verdicts.run import RunResult
from tests.unit.fabrics import spec, transfer_paths
from tests.unit.run_folders import begun_run
from tests.unit.test_results import LIMITS, repeat
from tests.unit.test_results_failures import fault_down
from traffic_gen.workloads.sized_collective import SizedCollective

WORKLOADS = ((Collective.ALL_REDUCE, "hierarchical"), (Collective.ALL_TO_ALL, "direct"))
SCENARIO = "# <script>alert(1)</script>\nfabric: {domains: 2}\n"
MACHINE = {"kernel": "6.1", "proxies": "process", "cpu": "<b>of a kind</b>"}
# Executions begin one after the other.
EVERY_NS = 10**10
# Samples of links: for two seconds.
SAMPLED_EVERY_S, SAMPLES = 0.01, 200
COUNTED = ("sent_bytes", "sent_packets", "received_bytes", "received_packets", "dropped_packets")


def stored_run(
    store: Path,
    *,
    domains: int = 2,
    domain_size: int = 2,
    executions: int = 2,
    scenario: str = "quick",
    off: float = 1.01,
    faults: bool = False,
) -> Path:
    """Store a run of both fabrics whose measurements are `off` times the model; return it.

    With `faults`, it is a failure experiment on rail-only.
    """
    run_id = f"20260101-000000-{scenario}-0000"
    folder = begun_run(store, run_id, SCENARIO, MACHINE)
    starts_ns = count(EVERY_NS, EVERY_NS)
    kinds = [FabricKind.RAIL_ONLY] if faults else list(COMPARED)
    cases = [
        _case(folder, kind, workload, (domains, domain_size), executions, off, faults, starts_ns)
        for kind in kinds
        for workload in (((Collective.ALL_TO_ALL, "two-step"),) if faults else WORKLOADS)
    ]
    failures = [fault_down(scenario)] * faults
    shown = [] if faults else cases
    result = plain(
        RunResult(run_id, scenario, folder.path, shown, machine=MACHINE, failures=failures)
    )
    folder.complete(result)
    seal(folder.path)
    assert read_result(folder.path)["failures"] == [plain(failure) for failure in failures]
    return folder.path


def _case(
    folder: RunFolder,
    kind: FabricKind,
    workload: tuple[Collective, str],
    shape: tuple[int, int],
    executions: int,
    off: float,
    faults: bool,
    starts_ns: Iterator[int],
) -> CaseResult:
    topology = build_topology(spec(kind, *shape, shape[1]))
    schedule = SizedCollective(*workload, shape, 4_000_000).steps()
    prediction = _prediction(topology, schedule)
    name = f"{kind}/{workload[0]}/{workload[1]}"
    for phase in ("/baseline", "/during_fault", "/degraded") if faults else ("",):
        repeats = tuple(
            _execution(schedule, prediction, number, off, next(starts_ns))
            for number in range(executions)
        )
        folder.begin_case(name + phase, topology, prediction)
        for done in repeats:
            folder.add_repeat(name + phase, done)
        before, after = _counters(topology, schedule, executions)
        folder.end_case(name + phase, CaseExecutions(repeats), before, after)
        _sample_queue(folder.folder_of(name + phase), topology, repeats[0].start_ns)
        if phase == "/during_fault":
            _sample(folder.folder_of(name + phase), topology, repeats[0].start_ns)
    measured = Measured(topology, schedule, CaseExecutions(repeats), epoch=Epoch(topology))
    return compare(name, measured, prediction, 10.0, LIMITS)


def _prediction(topology: Topology, schedule: Schedule) -> Prediction:
    paths = transfer_paths(schedule.transfers, Epoch(topology), topology.job_gpus)
    latencies = dict.fromkeys((path_class(hops) for hops in paths if hops), 0.0)
    return predict(schedule, [Epoch(topology)], latencies)


def _execution(
    schedule: Schedule, prediction: Prediction, number: int, off: float, start_ns: int
) -> Repeat:
    ends = [round(off * arrival_s * 1e9) for arrival_s in prediction.arrival_s]
    records = tuple(
        TransferRecord(number, t.id, t.source, t.destination, t.size_bytes, end // 2, end, end, end)
        for t, end in zip(schedule.transfers, ends, strict=True)
    )
    seconds = off * prediction.completion_s
    samples = tuple(
        QueuePairSample(number, *pair, 0, 0, ns, sent, 0, sent // 1000, None, 32.0, None)
        for pair in sorted({(t.source, t.destination) for t in schedule.transfers})
        for ns, sent in ((0, 0), (round(seconds * 5e8), 100_000), (round(seconds * 1e9), 100_000))
    )
    return repeat(number, seconds, records=records, start_ns=start_ns, queue_pairs=samples)


def _sample(place: Path, topology: Topology, start_ns: int) -> None:
    """Every link carries its whole rate upwards for a second, and then nothing."""
    with (place / "links.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([field.name for field in fields(LinkSample)])
        for tick in range(SAMPLES + 1):
            for link in topology.links:
                seconds = min(1.0, tick * SAMPLED_EVERY_S)
                ns = start_ns + round(tick * SAMPLED_EVERY_S * 1e9)
                rows.writerow([link.name, ns, 0, round(link.rate_bps * seconds / 8)])


def _sample_queue(place: Path, topology: Topology, start_ns: int) -> None:
    """A port of the first rail switch marks and drops packets of a queue that grows."""
    link = topology.links_of(topology.rail_switches[0])[0]
    with (place / "queues.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([field.name for field in fields(QueueSample)])
        for tick in range(3):
            ns = start_ns + round(tick * SAMPLED_EVERY_S * 1e9)
            rows.writerow([link.name, link.lower.node, ns, 1000 * tick, tick, 2 * tick])


def _counters(
    topology: Topology, schedule: Schedule, executions: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Every link carries as many bytes as the whole schedule, divided by the number of GPUs."""
    carried = executions * sum(t.size_bytes for t in schedule.transfers) // len(topology.gpus)
    before = {link.name: dict.fromkeys(COUNTED, 0) for link in topology.links}
    after = {link: {**counts, "sent_bytes": carried} for link, counts in before.items()}
    return before, after
