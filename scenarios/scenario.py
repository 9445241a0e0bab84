"""A scenario, resolved: every value checked, every default and every `auto` filled in."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

from model.errors import InputError, Problem
from model.fabric.spec import FabricKind, FabricSpec
from model.faults import Fault
from model.job.placement import RecoveryStrategy
from model.workload.generator import Generator
from model.workload.schedule import Steps
from model.workload.transfers.columns import Transfers
from model.workload.transfers.lanes import Lanes, spread
from model.workload.transfers.proof import ScheduleError
from results.verdicts.verdict import Thresholds
from scenarios.format.keys import ScenarioFile
from traffic_gen.workloads.task import Task

Built = TypeVar("Built")
Specs = Mapping[FabricKind, FabricSpec]
"""The fabric of each kind."""


@dataclass(frozen=True)
class Chosen:
    """A value and why it was chosen for `auto`; no reason if the scenario gives the value."""

    value: float
    why: str = ""


@dataclass(frozen=True)
class Case:
    """One task on one kind of fabric, which is sent in its real size divided by `size_scale`.

    `workload` is the number of its entry in the scenario, `where` the entry's file, line and key
    for messages. `chosen` is the key and value of the scale that `auto` chose. `marks` tell it from
    another case of its name: the size in words, without blanks, and other keys.
    """

    name: str
    kind: FabricKind
    task: Task
    size_scale: float = 1.0
    workload: int = 0
    generator: Generator = Generator.AGENT
    where: str = field(default="", compare=False)
    chosen: tuple[str, Chosen] | None = field(default=None, compare=False)
    marks: tuple[str, str] = field(default=("", ""), compare=False)

    @property
    def work(self) -> str:
        """The name without that of the fabric, with which it begins."""
        return self.name.removeprefix(f"{self.kind}/")

    @property
    def emulated_bytes(self) -> int:
        """The emulated size: the real size divided by `size_scale`, in whole slices."""
        return self.task.emulated_bytes(self.size_scale)

    def schedule(self, spec: FabricSpec) -> Steps:
        """The proved steps on its fabric, over its lanes; raises `InputError` if they are wrong."""
        steps = self._built(spec, self.task.steps)
        return steps.over(Lanes.of(spec)) if spec.lanes > 1 else steps

    def transfers(self, spec: FabricSpec) -> Transfers:
        """The transfers on its fabric, without a proof if that is cheaper."""
        return spread(self._built(spec, self.task.transfers), spec)

    def _built(self, spec: FabricSpec, build: Callable[[float, float], Built]) -> Built:
        try:
            return build(self.size_scale, spec.bandwidth_scale / self.size_scale)
        except ScheduleError as error:
            raise InputError(Problem(self.where, *self.task.refusal(error))) from error


@dataclass(frozen=True)
class Repeats:
    """Counted executions of a case: at least `least`, at most `most`.

    In between, they end when the median's 95 % confidence interval is at most `precision` wide to
    either side, as a fraction of its middle. Up to `most` disturbed executions are replaced.
    """

    least: int
    most: int
    precision: float = 0.0

    @property
    def executions(self) -> int:
        """Largest number of executions, disturbed ones included."""
        return 2 * self.most


# Six values are the fewest that give an interval with 95 % confidence.
AUTO = Repeats(least=6, most=30, precision=0.005)


@dataclass(frozen=True)
class Scenario:
    """The checked keys of a file; fabrics to build, cases to execute on them, and their repeats.

    `text` says what `keys` do, and is compared alone. `faults` has those of each fabric, or is
    empty. `thresholds` are those of the ratio to the model for warn and fail, `replay_thresholds`
    those of the replay of an execution that met a fault, without its losses. `chosen` has the
    values chosen for `auto`, by key (for a case `size_scale of CASE` or `time_dilation of CASE`).
    """

    name: str
    text: str
    keys: ScenarioFile = field(compare=False)
    fabrics: tuple[FabricSpec, ...]
    cases: tuple[Case, ...]
    repeats: Repeats
    thresholds: Thresholds
    replay_thresholds: Thresholds
    faults: Mapping[FabricKind, tuple[Fault, ...]] = field(default_factory=dict)
    chosen: Mapping[str, Chosen] = field(default_factory=dict)
    # File, line and key, for messages: of the fabric's keys, and of the first fault of each mode.
    places: Mapping[str, str] = field(default_factory=dict, compare=False)
    # What a network's file says and no fabric has; keys that change nothing.
    left_out: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """The number of GPUs of the largest fabric, spares included."""
        return max(fabric.domains * fabric.domain_size for fabric in self.fabrics)

    @property
    def has_faults(self) -> bool:
        """Whether the scenario has faults on any fabric."""
        return any(self.faults.values())

    @property
    def executions(self) -> int:
        """Upper bound of the executions of all cases, if none is disturbed.

        With faults: the baseline, the execution during the fault (a job that does not reroute
        aborts it and executes again), and two phases with a warm-up each.
        """
        counted = self.keys.warmup + self.repeats.most
        if self.has_faults:
            during = 1 if self.keys.job.strategy is RecoveryStrategy.REROUTE else 2
            counted += during + 2 * (1 + self.repeats.most)
        return len(self.cases) * counted

    def spec_of(self, kind: FabricKind) -> FabricSpec:
        """The fabric of a kind; raises `KeyError` if the scenario has none."""
        return {spec.kind: spec for spec in self.fabrics}[kind]

    def named(self, cases: Iterable[Case]) -> str:
        """Name cases: those of a work that all of several fabrics have by the work alone."""
        names = defaultdict[str, list[str]](list)
        for case in cases:
            names[case.work].append(case.name)
        for work, each in names.items():
            if len(each) == len(self.fabrics) > 1:
                each[:] = [work]
        return ", ".join(chain.from_iterable(names.values()))

    def cases_on(self, kind: FabricKind) -> tuple[Case, ...]:
        """The cases for one kind of fabric."""
        return tuple(case for case in self.cases if case.kind is kind)
