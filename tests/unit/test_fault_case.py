"""The phases of a failure experiment, on a fabric that notes what is done to it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from execution.faults import fault_case
from execution.faults.convergence import epochs_of
from execution.faults.fault_case import FaultCase, has_degraded_phase
from model.fabric.health import Epoch
from model.faults import Component, Fault, FaultMode, health_under
from model.job.placement import Placement, RecoveryStrategy, job_placement
from model.measurement.records import FaultRecord, Repeat
from model.prediction.fluid import Prediction, path_class, predict
from results.verdicts.fault_impact import FaultImpact, Restart
from scenarios.library_files import LIBRARY
from scenarios.load import load
from tests.unit.fabrics import transfer_paths
from tests.unit.test_results import repeat
from traffic_gen.probes.blackout import PairRecord, Ticks

SECOND_NS = 10**9
# The first execution begins at 1 s, the fault at 1.5 s; probes end at 9 s.
BEGUN_NS, PROBED_UNTIL_NS = 3 * SECOND_NS // 2, 9 * SECOND_NS
OUTSIDE = "FaultInjector FaultTimeline LinkSampler fidelity_during_fault observing payload_reasons"


class Bench:
    """Executes the first case of a failure experiment; `done` is what happens, in order.

    The execution during the fault takes 2 s; it is whole, or broke off. If the controller does not
    run, it is dead until the faults are mended.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, name: str, *, whole: bool = True, runs: bool = True
    ) -> None:
        self.done, self.pairs, self.whole = list[str](), list[Sequence[Any]](), whole
        self.patience_for_s = list[float]()
        scenario = load(LIBRARY / f"{name}.yaml")
        self.home, case = job_placement(scenario.fabrics[0]), scenario.cases[0]
        topology, schedule = self.home.topology, case.schedule(self.home.spec)
        paths = transfer_paths(schedule.transfers, Epoch(topology), self.home.gpus)
        latency_s = {path_class(hops): 0.001 for hops in paths if hops}
        self.prediction = predict(schedule, [Epoch(topology)], latency_s)
        (fault,) = scenario.faults[case.kind]
        fabric = MagicMock(placement=self.home, topology=topology, rearrange=self.place)
        fabric.repeats, fabric.predict = self.repeats, lambda _: self.prediction
        fabric.path_latencies_s.return_value = latency_s
        self.controller = fabric.bed.controller
        self.controller.is_running = runs
        measuring = MagicMock(scenario=scenario, measure=self.measure)
        measuring.recording.return_value = nullcontext([])
        failed = sorted(health_under(topology, [fault]).failed)
        computed = {"event": "computed", "ns": BEGUN_NS, "failed": failed}
        fakes: dict[str, Any] = {
            **{one: MagicMock() for one in OUTSIDE.split()},
            "break_component": self.noting("broken again", self.noting("mended again")),
            "epochs_of": lambda *known: self.note("states read", epochs_of(*known)),
            "has_detected": lambda *_: True,
            "fault_result": lambda impact, **_: impact,
            "probed": lambda *_: "probed",
            "probing": self.probing,
            "read_journal": lambda _: [computed, {"event": "confirmed", "ns": BEGUN_NS + 1}],
            "wait_until_converged": self.wait,
        }
        timeline = fakes["FaultTimeline"].return_value
        timeline.records = (FaultRecord(fault, BEGUN_NS, None),)
        timeline.finish, timeline.undo = self.noting("faults end"), self.mend
        observer = fakes["observing"].return_value.__enter__.return_value
        observer.begin, observer.note = self.noting("observed"), self.noting("executed")
        fakes["FaultInjector"].return_value.set_cross_connects = self.noting("links move")
        for of_module, fake in fakes.items():
            monkeypatch.setattr(fault_case, of_module, fake)
        self.impact = cast(FaultImpact, FaultCase(case, fabric, measuring).execute())
        self.gives_up = fakes["FaultTimeline"].call_args.args[-1](SECOND_NS)

    def note(self, what: str, result: object = None) -> Any:
        self.done.append(what)
        return result

    def noting(self, what: str, result: object = None) -> Callable[..., Any]:
        return lambda *_: self.note(what, result)

    def mend(self) -> None:
        self.note("mended")
        self.controller.is_running = True

    def measure(self, name: str, *_: Any) -> Any:
        phase = name.rpartition("/")[2]
        self.note(phase)
        return MagicMock(judged={"probed": phase}.get, prediction=self.prediction)

    def repeats(
        self,
        _: Any,
        longest: Prediction,
        *__: Any,
        first: int,
        not_before_ns: int,
        before: Callable[[int], None],
        **___: Any,
    ) -> Iterator[Repeat]:
        self.patience_for_s.append(longest.completion_s)
        self.note(f"from {not_before_ns / SECOND_NS:.3g} s")
        before(first)
        whole, start_ns = first > 0 or self.whole, max(SECOND_NS, not_before_ns)
        yield repeat(first, 2.0, complete=whole, start_ns=start_ns)

    def place(self, placement: Placement) -> None:
        moved = set(placement.gpus) - set(self.home.gpus)
        self.note(f"{len(moved)} move, {len(placement.health.failed)} lost")

    def wait(self, _: Any, failed: frozenset[str], reached: Sequence[str] = ("settled",)) -> None:
        self.note(f"{reached[0]}: {', '.join(sorted(failed))}")

    def probing(self, _: Any, pairs: Sequence[Any], *__: Any) -> Any:
        """A probe every millisecond: of unaffected pairs the first is lost, of affected five."""
        self.pairs.append(pairs)
        sent_ns = tuple(BEGUN_NS + place * 1_000_000 for place in range(10))
        lost = range(1) if len(self.pairs) == 1 else range(2, 7)
        arrived_ns = {n: ns for n, ns in enumerate(sent_ns) if n not in lost}
        probes = MagicMock(ticks=Ticks(100, len(self.pairs)), ended_ns=PROBED_UNTIL_NS)
        probes.stop.return_value = [PairRecord(str(pair), sent_ns, arrived_ns) for pair in pairs]
        probes.end = self.noting("probes end")
        return nullcontext(probes)


# Connections are opened before an execution is observed, which agents wait for cores for.
DURING = "baseline; from 0 s; observed; executed; faults end; "
RETURNED = "mended; settled: ; 0 move, 0 lost; recovered"
# Rerouted, the old rules removed or not yet.
SETTLED, REROUTED = "settled: d0g0--rail0", "confirmed: d0g0--rail0"
GPU_LOST, SPARE_LINKED = "confirmed: d0g0--hb0, d0g0--rail0", "confirmed: d0g0--hb0, d0g0--rail4"
GOES_ON = f"{SETTLED}; probes end; states read; {SETTLED}; 0 move, 1 lost; degraded; {RETURNED}"
# The response to the end of a fault would else be timed to that of the second fault.
NOT_AWAITED = f"broken again; 0 move, 1 lost; mended again; {RETURNED}"
BROKEN_AGAIN = NOT_AWAITED.replace("again;", f"again; {SETTLED};", 1)
AWAITED = f"settled: ; probes end; states read; {BROKEN_AGAIN}"
# It aborts after 2 s, and begins again half a second later.
RESTARTS = f"{REROUTED}; probes end; {REROUTED}; 0 move, 1 lost; from 3.5 s; observed; executed; "
# The optical switch exchanges the NIC link of the lost GPU with that of the spare; both stay so.
MOVES = f"{GPU_LOST}; probes end; links move; {SPARE_LINKED}; 1 move, 2 lost; from 4 s; observed; "


@pytest.mark.parametrize(
    ("name", "whole", "expected"),
    [
        ("nic-link-down", True, GOES_ON),
        ("nic-link-down", False, GOES_ON),
        ("nic-link-flaps", True, AWAITED),
        ("abort-and-restart", False, f"{RESTARTS}degraded; {RETURNED}"),
        ("abort-and-restart", True, f"probes end; {RETURNED}"),
        ("gpu-lost-spare", False, f"{MOVES}executed; degraded; mended"),
    ],
)
def test_phases_follow_the_strategy_of_the_job(
    monkeypatch: pytest.MonkeyPatch, name: str, whole: bool, expected: str
) -> None:
    """Probes see the fabric reroute, even after the execution; of the job's recovery, nothing."""
    bench = Bench(monkeypatch, name, whole=whole)
    assert "; ".join(bench.done) == DURING + expected
    assert bench.gives_up == (not name.startswith("nic-link"))
    found, phases = bench.impact, ("baseline", "degraded", "recovered")
    judged: list[object] = [phase if phase in DURING + expected else None for phase in phases]
    assert [found.baseline, found.degraded, found.recovered] == judged
    # A model of the states of the fabric, which takes longer than the healthy one.
    assert (found.replay is not None) == (whole and name != "abort-and-restart")
    assert found.replay is None or found.replay.modeled_s > bench.prediction.completion_s
    assert (found.during.restart is not None) == (len(found.during.executions) > 1)
    if RESTARTS in expected:
        assert found.during.restart == Restart(2.0, 2.5, 0.5, bench.prediction.completion_s)


@pytest.mark.parametrize("name", ["nic-link-down", "abort-and-restart"])
def test_a_job_has_patience_for_what_faults_leave(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    bench = Bench(monkeypatch, name, whole=name == "nic-link-down")
    assert min(bench.patience_for_s) > 1.2 * bench.prediction.completion_s


def test_a_fault_begins_again_though_nobody_responds(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, "nic-link-flaps", runs=False)
    assert "; ".join(bench.done) == f"{DURING}probes end; states read; {NOT_AWAITED}"


def test_probes_tell_blackouts_and_lost_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, "nic-link-down")
    probes, (unaffected, affected) = bench.impact.probes, map(len, bench.pairs)
    assert (probes.affected_pairs, probes.unaffected_pairs) == (affected, unaffected)
    assert probes.sent_unaffected == 10 * unaffected
    assert probes.lost_unaffected == unaffected > 0
    assert probes.skipped == (0.02, 0.01)
    assert (probes.blackout_ms, probes.blackout_limit_ms) == (5.0, 60.0)
    # None is sent after the tenth.
    assert probes.possible_ms == pytest.approx((PROBED_UNTIL_NS - BEGUN_NS) / 1e6 - 10, abs=1)


def test_with_one_link_that_flaps_there_is_no_degraded_phase() -> None:
    faults = [
        Fault(Component.NIC_LINK, mode, "d0g0--rail0") for mode in (FaultMode.DOWN, FaultMode.FLAP)
    ]
    assert has_degraded_phase(faults[:1], RecoveryStrategy.REROUTE, 1)
    assert not has_degraded_phase(faults, RecoveryStrategy.REROUTE, 1)


@pytest.mark.parametrize(
    ("name", "executions"),
    [
        # Baseline, during the fault, and two phases with a warm-up each.
        ("nic-link-down", (1 + 3) + 1 + 2 * (1 + 3)),
        # The job aborts the execution during the fault, and executes again.
        ("abort-and-restart", (1 + 3) + 2 + 2 * (1 + 3)),
    ],
)
def test_the_executions_of_all_phases_are_counted(name: str, executions: int) -> None:
    changes = ["warmup=1", "repeats=3"]
    scenario = load(LIBRARY / f"{name}.yaml", changes)
    assert scenario.executions == len(scenario.cases) * executions
