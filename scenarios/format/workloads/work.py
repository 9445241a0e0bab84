"""What every workload and job of a scenario can be asked."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from model.errors import InputError
from model.fabric.job_grid import JobGrid
from model.fabric.spec import FabricKind, FabricSpec
from model.job.concurrent_jobs import Partition
from model.workload.generator import Generator
from scenarios.format.checked_file import Strict
from scenarios.format.issues import Issue, Place
from scenarios.format.units import MOST_SCALE, Kinds, Scale, ShortName, Span, listed
from traffic_gen.workloads.task import Task

OnFabrics = Annotated[Kinds, Field(description="on which of the fabrics")]
SizeScale = Annotated[float, Field(ge=1, le=MOST_SCALE, strict=True)] | Literal["auto"]
Excludes = Mapping[str, tuple[str, str]]
"""Keys of the scenario that a workload excludes: what is wrong with them, and a hint."""


class Work(Strict):
    """The keys of a workload or a job: a kind says its task on a fabric, and its issues."""

    # What tells the kind in a file, and the keys that may name a file.
    key: ClassVar[str]
    file_keys: ClassVar[tuple[str, ...]] = ()
    excludes: ClassVar[Excludes] = {}
    needs_whole_grid: ClassVar[bool] = False

    @abstractmethod
    def task(self, spec: FabricSpec) -> Task:
        """Return the work on a fabric, in its real size."""

    @abstractmethod
    def issues(self, place: Place, grid: JobGrid, platform: str) -> Iterator[Issue]:
        """Yield the issues of the work on a grid of GPUs, a wrong schedule included.

        The `platform` tells how fast they compute; `own` for rates without one.
        """

    def placed_issues(self, place: Place, grid: JobGrid, platform: str) -> Iterator[Issue]:
        """Yield the same issues; problems of the whole file that a key names are at that key."""
        if self.needs_whole_grid and grid.missing:
            what = "needs equally many GPUs, on the same rails, in each domain"
            hint = "use jobs, and give it domains or rails from which no GPU is missing"
            yield Issue((*place, self.key), what, hint)
            return
        try:
            yield from self.issues(place, grid, platform)
        except InputError as error:
            file = getattr(self, self.key)
            for problem in error.problems:
                if problem.where != file:
                    raise
                yield Issue((*place, self.key), f"{file}: {problem.what}", problem.hint)

    def early_issues(
        self, place: Place, grid: JobGrid, platform: str | None, nics: int
    ) -> Iterable[Issue]:
        """Return the issues that are cheap to find, before all others; `nics` a domain."""
        return ()

    def modeled_issues(self, place: Place, spec: FabricSpec) -> Iterable[Issue]:
        """Return the issues of work on a fabric that can be predicted, but not executed."""
        return ()

    def idle_keys(self) -> Iterable[str]:
        """Return the given keys that change nothing beside the others, each with why."""
        return ()

    def given_sizes(self, place: Place, grid: JobGrid) -> Iterable[tuple[Place, Task]]:
        """Return the tasks whose sizes the file itself says, so that they can be checked early."""
        return ()

    def size_name(self, task: Task) -> str:
        """Return the size as the file says it, for the names of cases that differ in it."""
        return task.size_name

    @property
    def variant(self) -> str:
        """Other keys by which two cases of the same name and size may differ; empty by default."""
        return ""

    @classmethod
    def files(cls, path: Path) -> list[Path]:
        """Return the files that a path of one of the `file_keys` stands for."""
        return [path]


def no_result(kind: str) -> Excludes:
    """Exclude a data check of work without a result."""
    what = f"cannot be combined with {kind}, which has no result to check"
    return {"check_data": (what, "leave it out")}


class BySize(Strict):
    """A workload of data alone: its sizes are scaled, or its time, and any generator sends it."""

    size_scale: SizeScale = 1.0
    """all sizes are divided by this; `auto`: about 3 s an execution"""
    time_dilation: Scale | Literal["auto"] | None = None
    """instead of `size_scale`: emulated seconds for each second on the real platform; `auto`: as
    few as the error budget allows"""
    generator: Generator = Field(
        default=Generator.AGENT, description=f"what sends: {listed(Generator)}"
    )
    kinds: OnFabrics = tuple(FabricKind)


class ByTime(Strict):
    """A workload that also computes, which only agents do: seconds and bytes are scaled together.

    So all its parts meet as on the real platform.
    """

    generator: ClassVar[Generator] = Generator.AGENT
    size_scale: ClassVar[float] = 1.0

    time_dilation: Scale | Literal["auto"] = "auto"
    """emulated seconds for each second on the real platform, of compute as well; `auto`: as few as
    the error budget allows"""
    kinds: OnFabrics = tuple(FabricKind)


class JobPlace(Strict):
    """The name of a job, and the partition of the grid that is its own."""

    # All jobs of a workload have its generator.
    generator: ClassVar[Generator] = Generator.AGENT

    name: ShortName
    """the job's name, for cases and tables"""
    domains: Span | None = None
    """its HB domains, from 0: `2`, or `0-1`; default: all"""
    rails: Span | None = None
    """its GPUs in each of them: `2`, or `0-3`; default: all"""

    def partition(self, grid: JobGrid) -> Partition:
        """Return the job's partition of a grid; without spans, the whole grid."""
        return Partition(self.domains or (0, grid.domains - 1), self.rails or (0, grid.size - 1))
