"""Measure a case with faults in four phases: baseline, during fault, degraded, recovered."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from execution.cases.case import MeasuredCase, Measuring, phase_in_words
from execution.cases.emulation import Experiment
from execution.cases.observer import Observer, observing, probed
from execution.faults.convergence import (
    CONVERGED,
    REROUTED,
    epochs_of,
    fault_times,
    has_detected,
    is_converged,
    rate_changes,
    wait_until_converged,
)
from execution.faults.fault_timeline import FaultTimeline, break_component, moment_s
from model.errors import EmulationError
from model.fabric.health import HEALTHY, Epoch, Health
from model.fabric.shaping import ETHERNET_HEADER_BYTES
from model.fabric.topology import Hop
from model.faults import FINAL, Component, Fault, FaultMode, health_under, nodes
from model.job.placement import Placement, RecoveryStrategy, placement_after
from model.job.probing import affected_interval_s, background_interval_s, pairs_by_hop, probed_pairs
from model.measurement.records import CaseExecutions, FaultRecord, Repeat
from model.prediction.fluid import Prediction, predict
from model.prediction.network import PathClass, networks_of
from results.store.runs import BASELINE, DEGRADED, DURING, RECOVERED
from results.verdicts.byte_conservation import payload_reasons
from results.verdicts.fault_impact import (
    DuringFault,
    FaultImpact,
    FaultResult,
    Probes,
    Restart,
    fault_result,
)
from results.verdicts.fidelity import Fidelity, fidelity_during_fault
from results.verdicts.model_comparison import CaseResult, Measured, compare
from scenarios.scenario import Case
from testbed.faults.injector import FaultInjector
from testbed.instruments.samplers import LinkSampler
from testbed.nodes.controller_process import read_journal
from traffic_gen.agents.client import Incomplete, OnTick, no_ticks
from traffic_gen.probes import blackout
from traffic_gen.probes.blackout import PairRecord, Ticks
from traffic_gen.probes.packet import SHORTEST_BYTES
from traffic_gen.probes.prober_process import affected, background, probing

# Of affected pairs, as links count them.
SHORT_PROBE_BYTES = SHORTEST_BYTES + ETHERNET_HEADER_BYTES


@dataclass(frozen=True)
class FaultedExecution:
    """The execution during which faults begin, with the probes' records of it.

    If the job aborted it, a second execution follows.
    """

    executions: tuple[Repeat, ...]
    records: tuple[FaultRecord, ...]
    affected: Sequence[PairRecord]
    probed_until_ns: int
    ticks: Ticks
    fidelity: Fidelity

    @property
    def started_ns(self) -> int:
        """The start of the first execution."""
        return self.executions[0].start_ns

    def seconds_until(self, moment_ns: int) -> float:
        """Seconds from the first start until a moment."""
        return (moment_ns - self.started_ns) / 1e9


@dataclass(frozen=True)
class Phases:
    """The measurements of each phase; `None` for phases that these faults do not have.

    Cases are judged after the last phase, when the prober has written the records of its probes.
    """

    baseline: MeasuredCase
    during: FaultedExecution
    degraded: MeasuredCase | None
    replay: CaseResult | None
    recovered: MeasuredCase | None


def has_degraded_phase(
    faults: Sequence[Fault], strategy: RecoveryStrategy, executions: int
) -> bool:
    """Whether the job executes after the faults; `executions` were begun during the fault.

    A flapping link recovers by itself. A job that was to abort, and did not, has no recovery to
    measure.
    """
    if strategy is RecoveryStrategy.REROUTE:
        return not any(fault.mode is FaultMode.FLAP for fault in faults)
    return executions > 1


class FaultCase:
    """One case of a scenario with faults, on a fabric of its own."""

    def __init__(self, case: Case, fabric: Experiment, measuring: Measuring) -> None:
        self.case, self.fabric, self.measuring = case, fabric, measuring
        self.scenario = measuring.scenario
        self.faults = self.scenario.faults[case.kind]
        self.job = self.scenario.keys.job
        self.injector = FaultInjector(fabric.bed)
        self.schedule = case.schedule(fabric.topology.spec)
        self.home = fabric.placement
        self.affected, self.unaffected = probed_pairs(
            self.home, self.faults, self.scenario.keys.probed_pairs, self._later()
        )
        self.cadence = affected(
            affected_interval_s(self.home, self.faults, self.affected, SHORT_PROBE_BYTES)
        )

    def execute(self) -> FaultResult:
        """Run all phases, while all unaffected pairs are probed."""
        interval_s = background_interval_s(self.home, self.unaffected, self.faults)
        place = self.measuring.folder.folder_of(f"{self.case.name}/{DURING}") / "unaffected"
        process_ids = self.fabric.bed.process_ids
        cadence, watch = background(interval_s), self.fabric.bed.watch
        with probing(process_ids, self.unaffected, place, watch, cadence) as probes:
            phases = self._phases()
            records = probes.stop()
        return fault_result(
            self._impact(phases, records, probes.ticks),
            scenario=self.scenario.name,
            case=self.case.name,
            fault=", ".join(dict.fromkeys(f"{one.component} {one.mode}" for one in self.faults)),
            where=", ".join(fault.target for fault in self.faults),
            fabric=self.case.kind.value,
            strategy=self.job.strategy.value,
        )

    def _phases(self) -> Phases:
        """Run all phases; faults are undone before the recovered phase, or after an error."""
        with ExitStack() as undos:
            baseline = self._measure(BASELINE, self.scenario.keys.warmup)
            latency_s = self.fabric.path_latencies_s(self.schedule)
            prediction = self.fabric.predict(self.schedule)
            moments_s = [self._moment_s(fault, prediction) for fault in self.faults]
            timeline = FaultTimeline(
                self.fabric, self.injector, moments_s, self.faults, self._gives_up
            )
            undos.callback(timeline.undo)
            longest = max(prediction, self._degraded(latency_s), key=lambda one: one.completion_s)
            during = self._during_fault(timeline, prediction, longest)
            epochs = () if self._restarts else self._epochs(during)
            if not self._restarts:
                self._break(undos)
            goes_on = has_degraded_phase(self.faults, self.job.strategy, len(during.executions))
            degraded = self._measure(DEGRADED) if goes_on else None
            whole = during.executions[0].complete and not self._restarts
            replay = self._replay(during, epochs, latency_s) if whole else None
        return Phases(baseline, during, degraded, replay, self._recovered())

    def _measure(self, phase: str, warmup: int = 1) -> MeasuredCase:
        name, scale = f"{self.case.name}/{phase}", self.case.size_scale
        return self.measuring.measure(name, scale, self.schedule, self.fabric, warmup)

    # Phase during fault

    def _moment_s(self, fault: Fault, prediction: Prediction) -> float:
        """Return a fault's begin in seconds; raise `EmulationError` if the execution ends first."""
        begin_s, end_s = moment_s(fault, self.schedule, prediction), prediction.completion_s
        if begin_s >= end_s:
            what = f"{fault.name} at {begin_s:g} s is too late: the execution takes {end_s:.3f} s"
            hint = f"start it earlier, or send more (workloads.{self.case.workload}.size_scale)"
            raise EmulationError(f"{self.case.name}: {what}; {hint}")
        return begin_s

    def _gives_up(self, started_ns: int) -> bool:
        """Whether the job aborts: it does not reroute, and the controller detected a failure."""
        return self._restarts and has_detected(self.fabric.bed.controller.journal, started_ns)

    def _degraded(self, latency_s: Mapping[PathClass, float]) -> Prediction:
        """Predict an execution with all faults, where the job is then; latencies may be others."""
        later, longest_s = self._later(), max(latency_s.values(), default=0.0)
        known_s = defaultdict(lambda: longest_s, latency_s)
        degraded = Epoch(later.topology, health_under(later.topology, self.faults))
        return predict(self.schedule, [degraded], known_s, later.gpus)

    def _during_fault(
        self, timeline: FaultTimeline, prediction: Prediction, longest: Prediction
    ) -> FaultedExecution:
        """Execute while the faults begin; `longest` is what the job has patience for."""
        name, folder = f"{self.case.name}/{DURING}", self.measuring.folder
        self.measuring.listener.step(phase_in_words(name))
        place, bed = folder.folder_of(name), self.fabric.bed
        with (
            self.measuring.recording(name, self.fabric, prediction) as executions,
            probing(bed.process_ids, self.affected, place, bed.watch, self.cadence) as probes,
            observing(self.fabric, place) as observer,
            LinkSampler(self.home.topology.links, place),
        ):
            self._run(executions, longest, observer, timeline)
            timeline.finish()
            gave_up = self._restarts and not executions[0].complete
            if gave_up:
                self._wait_until_converged(self.home, reached=REROUTED)
            elif not self._restarts:
                self._wait_until_answered()
            # End the probes: effects of the job's recovery are no failure of the fabric.
            probes.end()
            if gave_up:
                self._recover()
                back_ns = executions[0].end_ns + round(self.job.restart_time * 1e9)
                self._run(executions, longest, observer, not_before_ns=back_ns)
            records = probes.stop()
        return FaultedExecution(
            executions=tuple(executions),
            records=timeline.records,
            affected=records,
            probed_until_ns=probes.ended_ns,
            ticks=probes.ticks,
            fidelity=fidelity_during_fault(
                observer.observations(executions), payload_reasons(self.schedule, executions)
            ),
        )

    @property
    def _restarts(self) -> bool:
        """Whether the job aborts an execution that meets a fault, and begins again."""
        return self.job.strategy is not RecoveryStrategy.REROUTE

    def _run(
        self,
        executions: list[Repeat],
        prediction: Prediction,
        observer: Observer,
        on_tick: OnTick = no_ticks,
        not_before_ns: int = 0,
    ) -> None:
        """Execute once, observed, and add the execution, even if it ends incomplete."""
        under_way = self.fabric.repeats(
            self.schedule,
            prediction,
            1,
            check_data=self.scenario.keys.check_data,
            on_tick=on_tick,
            first=len(executions),
            not_before_ns=not_before_ns,
            before=observer.begin,
        )
        try:
            executions.append(next(under_way))
        except Incomplete as broken:
            executions.append(broken.repeat)
            raise
        observer.note(executions[-1])

    def _recover(self) -> None:
        """Place the job anew after an abort, and set the optical switch if the placement asks."""
        placement = self._later()
        if placement.cross_connects != self.home.cross_connects:
            before, after = self.home.topology, placement.topology
            self.injector.set_cross_connects(
                before, after, self.job.reconfiguration_time, nodes(before, self.faults[0])
            )
        self._converge(placement, reached=REROUTED)

    def _later(self) -> Placement:
        return placement_after(self.home, self.faults[0], self.job.strategy, self.job.group_size)

    # Phases degraded and recovered

    def _converge(
        self, placement: Placement, *, broken: bool = True, reached: Sequence[str] = CONVERGED
    ) -> None:
        """Wait until the controller has converged; place the job, with that health."""
        health = self._wait_until_converged(placement, broken=broken, reached=reached)
        self.fabric.rearrange(replace(placement, health=health))

    def _wait_until_converged(
        self, placement: Placement, *, broken: bool = True, reached: Sequence[str] = CONVERGED
    ) -> Health:
        """Wait until the controller has converged; return the expected health.

        Raises `EmulationError` if it died before it had rerouted.
        """
        health = health_under(placement.topology, self.faults) if broken else HEALTHY
        bed = self.fabric.bed
        if bed.controller.is_running:
            wait_until_converged(bed, health.failed, reached)
        elif not is_converged(read_journal(bed.controller.journal), health.failed, REROUTED):
            what = f"killed before it had rerouted around {', '.join(sorted(health.failed))}"
            hint = "kill it later (faults.N.at)"
            raise EmulationError(f"{self.case.name}: the controller was {what}; {hint}")
        return health

    def _break(self, undos: ExitStack) -> None:
        """Begin the temporary faults again, without an end; the controller reroutes, then dies."""
        again = [fault for fault in self.faults if fault.for_s is not None]
        kills = [fault for fault in again if fault.component is Component.CONTROLLER]
        for fault in again:
            if fault not in kills:
                undos.callback(break_component(self.injector, self.home.topology, fault))
        self._converge(self.home)
        for fault in kills:
            undos.callback(break_component(self.injector, self.home.topology, fault))

    def _wait_until_answered(self) -> None:
        """Wait until a controller that runs has responded to all faults, and to their end.

        That may outlast the execution: a link that returns is held down first.
        """
        lasting = [fault for fault in self.faults if fault.for_s is None]
        if self.fabric.bed.controller.is_running:
            wait_until_converged(self.fabric.bed, health_under(self.home.topology, lasting).failed)

    def _epochs(self, during: FaultedExecution) -> list[Epoch]:
        """The states of the fabric during the faults."""
        events = read_journal(self.fabric.bed.controller.journal)
        rates = rate_changes(self.home.topology, during.records)
        epochs = epochs_of(events, during.started_ns, self.home, rates)
        return [replace(epoch, beside=self._probes(epoch)) for epoch in epochs]

    def _probes(self, epoch: Epoch) -> dict[Hop, float]:
        """What the probes of affected pairs take of each link direction, in bytes/s."""
        crossing = pairs_by_hop(replace(self.home, health=epoch.health), self.affected)
        each = SHORT_PROBE_BYTES * 1e9 / self.cadence.tick_ns
        return {hop: count * each for hop, count in crossing.items()}

    def _replay(
        self,
        during: FaultedExecution,
        epochs: Sequence[Epoch],
        baseline_s: Mapping[PathClass, float],
    ) -> CaseResult:
        """Compare the execution during the fault with a model of the states of the fabric.

        `baseline_s` has the latencies of paths before; those of now are measured.
        """
        known_s = {**baseline_s, **self.fabric.path_latencies_s(self.schedule)}
        _, states = networks_of(self.schedule.transfers, epochs, self.home.gpus)
        classes = {kinds for state in states for kinds in state.classes if kinds}
        latency_s = {**dict.fromkeys(classes, max(known_s.values())), **known_s}
        prediction = predict(self.schedule, epochs, latency_s, self.home.gpus)
        measured = Measured(
            self.home.topology,
            self.schedule,
            CaseExecutions(during.executions),
            check_data=self.scenario.keys.check_data,
        )
        name = f"{self.case.name}/{DURING}"
        limits = self.scenario.replay_thresholds
        return compare(name, measured, prediction, self.case.size_scale, limits)

    def _recovered(self) -> MeasuredCase | None:
        """Measure the recovered fabric; `None` if the job has moved or a fault cannot be undone."""
        moved = self.job.strategy not in (RecoveryStrategy.REROUTE, RecoveryStrategy.RESTART)
        if moved or any((fault.component, fault.mode) in FINAL for fault in self.faults):
            return None
        self._converge(self.home, broken=False)
        return self._measure(RECOVERED)

    def _restart(self, during: FaultedExecution, degraded: MeasuredCase | None) -> Restart | None:
        """The clock of a job that began again, on the fabric of the degraded phase."""
        if len(during.executions) < 2 or degraded is None:
            return None
        return Restart(
            aborted_s=during.seconds_until(during.executions[0].end_ns),
            back_s=during.seconds_until(during.executions[1].start_ns),
            restart_time_s=self.job.restart_time,
            modeled_s=degraded.prediction.completion_s,
        )

    def _judged(self, phase: MeasuredCase, unaffected: Sequence[PairRecord]) -> CaseResult:
        """Judge a phase; the probes of unaffected pairs count on the links of their paths."""
        return phase.judged(probed(phase.carried, phase.placement, self.unaffected, unaffected))

    def _impact(
        self, phases: Phases, unaffected: Sequence[PairRecord], ticks: Ticks
    ) -> FaultImpact:
        during = phases.during
        events = read_journal(self.fabric.bed.controller.journal)
        first_ns = min(record.begun_ns for record in during.records)
        longest = blackout.longest(during.affected, first_ns)
        blackout_ms = 0.0 if longest is None else longest.duration_ms
        return FaultImpact(
            baseline=self._judged(phases.baseline, unaffected),
            during=DuringFault(
                executions=during.executions,
                fidelity=during.fidelity,
                times=tuple(
                    fault_times(record, during.started_ns, events, self.home.topology)
                    for record in during.records
                ),
                limits=self.scenario.thresholds,
                restart=self._restart(during, phases.degraded),
                aborts=self._restarts,
                check_data=self.scenario.keys.check_data,
            ),
            degraded=self._judged(phases.degraded, unaffected) if phases.degraded else None,
            recovered=self._judged(phases.recovered, unaffected) if phases.recovered else None,
            replay=phases.replay,
            probes=Probes(
                affected_pairs=len(during.affected),
                unaffected_pairs=len(unaffected),
                sent_unaffected=sum(len(record.sent_ns) for record in unaffected),
                lost_unaffected=blackout.lost(unaffected, blackout.ALWAYS_NS),
                skipped=tuple(t.skipped / t.all for t in (during.ticks, ticks) if t.all),
                blackout_ms=blackout_ms if during.affected else None,
                blackout_limit_ms=self.scenario.keys.expect.blackout_ms,
                possible_ms=blackout.longest_possible_ms(
                    during.affected, (first_ns, during.probed_until_ns), self.cadence.tick_ns
                ),
            ),
        )
