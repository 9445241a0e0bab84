"""Benchmark blackouts of GPU pairs after failures during an all-to-all, over many trials."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from execution.cases.emulation import Experiment
from execution.faults.convergence import fault_times, wait_until_converged
from execution.faults.fault_timeline import FaultTimeline
from model.fabric.spec import COMPARED
from model.faults import Component, Fault, FaultMode, components
from model.job.probing import background_interval_s, probed_pairs
from model.workload.transfers.collective import Collective
from results.verdicts.fault_impact import FaultTimes
from studies.benchmarks.fabrics import bench_fabric
from studies.benchmarks.rows import SIXTEEN, Row
from testbed.faults.injector import FaultInjector
from testbed.nodes.controller_process import read_journal
from testbed.nodes.gpu_proxies import ProxyKind
from traffic_gen.probes.blackout import ALWAYS_NS, longest, longest_possible_ms, lost
from traffic_gen.probes.prober_process import EVERY_MILLISECOND, background, probing
from traffic_gen.workloads.sized_collective import SizedCollective

# The component, the mode and the number of trials, for NICs of one port and of two.
FAULTS = {
    1: (
        (Component.NIC_LINK, FaultMode.DOWN, 20),
        (Component.NIC_LINK, FaultMode.BLACKHOLE, 20),
        (Component.CONTROLLER, FaultMode.KILL, 5),
    ),
    2: (
        (Component.NIC_LINK, FaultMode.DOWN, 20),
        (Component.RAIL_SWITCH, FaultMode.DOWN, 20),
    ),
}
SIZE_BYTES = 4_000_000
BEGIN_S, LAST_S = 0.3, 0.4
MOST_PAIRS = 6
# Each trial takes another link: a link that soon fails again is held down for longer.
STRIDE = 7


@dataclass(frozen=True)
class Trial:
    """Figures of one trial: a failure and its end.

    A blackout may have lasted for `possible_ms`, as a prober that comes late leaves times unprobed.
    """

    complete: bool
    blackout_ms: float
    possible_ms: float
    lost_unaffected: int
    probes_unaffected: int
    affected: int
    skipped_ticks: int
    times: FaultTimes


def trials(fabric: Experiment) -> Iterator[dict[str, Any]]:
    """Yield a row for each component and fault mode."""
    for component, mode, count in FAULTS[fabric.topology.spec.nic.ports]:
        names = components(fabric.topology, component)
        done = [
            _trial(fabric, Fault(component, mode, names[n * STRIDE % len(names)], for_s=LAST_S))
            for n in range(count)
        ]
        yield {"fault": f"{component} {mode}", "trials": count, **_summary(done)}


def _summary(done: Sequence[Trial]) -> dict[str, Any]:
    blackouts_ms = [trial.blackout_ms for trial in done]
    sought = _sought(done)
    return {
        **sought,
        "skipped_ticks": sum(trial.skipped_ticks for trial in done),
        "blackout_median_ms": median(blackouts_ms),
        "blackout_worst_ms": max(blackouts_ms),
        "possible_worst_ms": max(trial.possible_ms for trial in done),
        "detected_median_ms": _median(trial.times.detected_ms for trial in done),
        "confirmed_median_ms": _median(trial.times.confirmed_ms for trial in done),
        "probes_unaffected": sum(trial.probes_unaffected for trial in done),
        "judged_right": not any(sought.values()),
    }


def _sought(done: Sequence[Trial]) -> dict[str, int]:
    """Count the trials that went wrong, and the lost probes of unaffected pairs."""
    links = [trial for trial in done if trial.affected]
    return {
        "incomplete": sum(not trial.complete for trial in done),
        "undetected": sum(trial.times.detected_ms is None for trial in links),
        "not_reached_again": sum(trial.blackout_ms == inf for trial in done),
        "lost_probes_unaffected": sum(trial.lost_unaffected for trial in done),
    }


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _trial(fabric: Experiment, fault: Fault) -> Trial:
    schedule = SizedCollective(Collective.ALL_TO_ALL, "direct", (4, 4), SIZE_BYTES).steps()
    prediction = fabric.predict(schedule)
    timeline = FaultTimeline(fabric, FaultInjector(fabric.bed), [BEGIN_S], [fault])
    affected, unaffected = probed_pairs(fabric.placement, [fault], MOST_PAIRS)
    process_ids, watch = fabric.bed.process_ids, fabric.bed.watch
    cadence = background(background_interval_s(fabric.placement, unaffected))
    with (
        tempfile.TemporaryDirectory() as folder,
        probing(process_ids, affected, Path(folder) / "affected", watch) as probes,
        probing(process_ids, unaffected, Path(folder) / "unaffected", watch, cadence) as others,
    ):
        (repeat,) = fabric.repeats(schedule, prediction, 1, check_data=False, on_tick=timeline)
        timeline.finish()
        wait_until_converged(fabric.bed, frozenset())
        records, rest = probes.stop(), others.stop()
    (broken,) = timeline.records
    probed_ns = broken.begun_ns, probes.ended_ns
    blackout = longest(records, broken.begun_ns)
    events = read_journal(fabric.bed.controller.journal)
    return Trial(
        complete=repeat.complete,
        blackout_ms=blackout.duration_ms if blackout else 0.0,
        possible_ms=longest_possible_ms(records, probed_ns, EVERY_MILLISECOND.tick_ns),
        lost_unaffected=lost(rest, ALWAYS_NS),
        probes_unaffected=sum(len(record.sent_ns) for record in rest),
        affected=len(affected),
        skipped_ticks=probes.ticks.skipped + others.ticks.skipped,
        times=fault_times(broken, timeline.started_ns, events, fabric.topology),
    )


def blackout(_store: Path) -> Iterator[Row]:
    """Measure blackouts under load, by failures of links, switches and the controller."""
    for ports, kind in product(FAULTS, COMPARED):
        spec = replace(SIXTEEN, kind=kind, nic=replace(SIXTEEN.nic, ports=ports))
        facts = {"gpus": spec.gpus, "proxies": ProxyKind.PROCESS.value}
        with bench_fabric(f"blackout-{kind}-{ports}", spec) as fabric:
            for row in trials(fabric):
                yield {**facts, "nic_ports": ports, "fabric": kind.value, **row}
