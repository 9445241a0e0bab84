"""Measure a schedule on a fabric as it is now: predict, execute, record; judge it then or later."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any

from execution.cases.emulation import Experiment, executions, seeding
from execution.cases.observer import carried, dropped, observing
from execution.cases.progress import Listener
from model.fabric.spec import FabricKind
from model.fabric.topology import Hop
from model.job.placement import Placement
from model.measurement.pauses import PauseLog
from model.measurement.records import CaseExecutions, Repeat
from model.prediction.fluid import Prediction
from model.workload.generator import Generator
from model.workload.schedule import Steps
from results.store.runs import PHASES, RunFolder
from results.verdicts.byte_conservation import Carried, Span
from results.verdicts.model_comparison import CaseResult, Measured, compare
from results.verdicts.summary import median_interval
from results.verdicts.verdict import Reason, Thresholds
from scenarios.scenario import Repeats, Scenario
from testbed.fabric.links import Reading
from traffic_gen.agents.client import Incomplete

# Time that pauses of all cores took beyond the bucket depth, as a share of an execution's length. A
# bucket makes up for a shorter pause; the excess may delay every step that waits.
DISTURBED_ABOVE = 0.01


def is_disturbed(pauses: PauseLog, depth_s: float) -> bool:
    """Whether pauses disturbed an execution on a fabric with this bucket depth in seconds.

    `False` if pauses were not watched: the verdict reports that instead.
    """
    return pauses.beyond_s(depth_s) > DISTURBED_ABOVE * pauses.seconds


def are_enough(repeats: Repeats, counted_s: Sequence[float]) -> bool:
    """Whether these counted completion times in seconds are enough."""
    if not repeats.least <= len(counted_s) < repeats.most:
        return len(counted_s) >= repeats.most
    interval = median_interval(counted_s)
    return interval is not None and interval.away(median(counted_s)) <= repeats.precision


@dataclass
class Executions:
    """The executions of a case so far, and which of them the machine disturbed."""

    warmup: int
    repeats: Repeats
    all: list[Repeat] = field(default_factory=list)
    disturbed: list[Repeat] = field(default_factory=list)

    def add(self, repeat: Repeat, *, disturbed: bool) -> None:
        """Add an ended execution; a warm-up never counts as disturbed."""
        self.all.append(repeat)
        if disturbed and len(self.all) > self.warmup:
            self.disturbed.append(repeat)

    @property
    def most(self) -> int:
        """Largest number of executions, warm-ups and replacements included."""
        return self.warmup + self.repeats.executions

    @property
    def undisturbed(self) -> tuple[Repeat, ...]:
        """Executions after the warm-ups that were not disturbed."""
        later = self.all[self.warmup :]
        return tuple(repeat for repeat in later if repeat not in self.disturbed)

    @property
    def are_enough(self) -> bool:
        """Whether the undisturbed executions suffice."""
        return are_enough(self.repeats, [repeat.completion_s for repeat in self.undisturbed])

    @property
    def of_case(self) -> CaseExecutions:
        """All of them, told apart: if the undisturbed are too few, all after the warm-ups count."""
        warmups, later = tuple(self.all[: self.warmup]), tuple(self.all[self.warmup :])
        counted = self.undisturbed if len(self.undisturbed) >= self.repeats.least else later
        return CaseExecutions(counted, warmups, tuple(self.disturbed))


def phase_in_words(case: str) -> str:
    """Return the name of a case or of its phase, for progress."""
    whole, _, phase = case.rpartition("/")
    return f"{whole}, {phase.replace('_', ' ')}" if phase in PHASES else case


NO_PROBES: Mapping[Hop, Span] = {}


@dataclass(frozen=True)
class MeasuredCase:
    """A case that is measured, but not judged: `carried` counts all bytes, probes included."""

    name: str
    measured: Measured
    carried: Carried
    placement: Placement
    prediction: Prediction
    size_scale: float
    limits: Thresholds

    def judged(self, probed: Mapping[Hop, Span] = NO_PROBES) -> CaseResult:
        """Judge the case; `probed` has the bytes of the background probes on each link."""
        measured = replace(self.measured, carried=replace(self.carried, probed=probed))
        return compare(self.name, measured, self.prediction, self.size_scale, self.limits)


@dataclass(frozen=True)
class Measuring:
    """Measures a scenario's cases; writes the records to a run's folder.

    `known` has earlier reasons for doubt (inconclusive calibration), by the fabric's kind.
    """

    scenario: Scenario
    folder: RunFolder
    listener: Listener
    known: dict[FabricKind, tuple[Reason, ...]] = field(default_factory=dict)

    def measure(
        self,
        name: str,
        size_scale: float,
        schedule: Steps,
        fabric: Experiment,
        warmup: int,
        generator: Generator = Generator.AGENT,
    ) -> MeasuredCase:
        """Execute `warmup` times uncounted, then the repeats, which count."""
        self.listener.step(phase_in_words(name))
        prediction = fabric.predict(schedule)
        topology = fabric.placement.topology
        place = self.folder.begin_case(name, topology, prediction)
        before = fabric.bed.links.read_counters()
        done, others = Executions(warmup, self.scenario.repeats), generator is Generator.IPERF3
        try:
            under_way = executions(
                generator,
                fabric,
                schedule,
                prediction,
                done.most,
                check_data=self.scenario.keys.check_data,
                before=seeding(self.scenario.keys.machine_seed, name, fabric.topology),
            )
            with observing(fabric, place, beside_agents=others) as observer, closing(under_way):
                for repeat in self._kept(name, under_way, done):
                    pauses = observer.note(repeat)
                    done.add(repeat, disturbed=is_disturbed(pauses, topology.least_depth_s))
        finally:
            after = fabric.bed.links.read_counters()
            self.folder.end_case(name, done.of_case, _plain(before), _plain(after))
        timed = generator.is_timed and not self.scenario.keys.check_data
        measured = Measured(
            topology=topology,
            schedule=schedule,
            executions=done.of_case,
            epoch=fabric.placement.epoch,
            gpus=fabric.placement.gpus,
            check_data=self.scenario.keys.check_data,
            generator=generator,
            # If times are not judged, the machine is not either: it was busy with other work.
            machine=observer.observations(done.of_case.repeats) if timed else None,
            dropped_packets=dropped(fabric, before, after),
            known=self.known.get(topology.spec.kind, ()),
        )
        return MeasuredCase(
            name,
            measured,
            carried(fabric, before, after),
            fabric.placement,
            prediction,
            size_scale,
            self.scenario.thresholds,
        )

    def _kept(self, name: str, under_way: Iterator[Repeat], done: Executions) -> Iterator[Repeat]:
        """Record and yield executions as they end, until there are enough.

        One that breaks comes before its error, also if it would be enough.
        """
        try:
            for repeat in under_way:
                yield self.keep(name, repeat)
                if done.are_enough:
                    return
        except Incomplete as broken:
            yield self.keep(name, broken.repeat)
            raise

    @contextmanager
    def recording(
        self, name: str, fabric: Experiment, prediction: Prediction
    ) -> Iterator[list[Repeat]]:
        """Record the executions that are added to the list within the context, all as counted."""
        self.folder.begin_case(name, fabric.placement.topology, prediction)
        before, executions = fabric.bed.links.read_counters(), list[Repeat]()
        try:
            yield executions
        finally:
            for repeat in executions:
                self.keep(name, repeat)
            after = fabric.bed.links.read_counters()
            done = CaseExecutions(tuple(executions))
            self.folder.end_case(name, done, _plain(before), _plain(after))

    def keep(self, name: str, repeat: Repeat) -> Repeat:
        """Record an execution."""
        self.folder.add_repeat(name, repeat)
        self.listener.done(phase_in_words(name))
        return repeat


def _plain(reading: Reading) -> dict[str, Any]:
    return {link: asdict(values) for link, values in reading.counters.items()}
