"""Collectives: wrong and impossible schedules are refused as bad input.

The proof of a schedule takes about a second for 1024 GPUs, for each of the cases. The schedule of a
large fabric is therefore proved on a smaller grid here; a run proves it in full when it builds it.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from model.fabric.job_grid import JobGrid
from model.fabric.spec import FabricSpec
from model.job.communicators import EVERYONE
from model.prediction.nccl_tuning import KNOWN, MOST_GPUS
from model.workload.transfers.collective import Collective
from model.workload.transfers.proof import ScheduleError
from scenarios.format.files import PairSizes
from scenarios.format.issues import Issue, Place, Refused, did_you_mean
from scenarios.format.units import Count, Ranks, Seed, Size, Text, listed, size_in_bytes
from scenarios.format.workloads.work import BySize, JobPlace, Work
from traffic_gen.traces.formats.byte_matrix import scaled
from traffic_gen.workloads.algorithms.all_to_all import Given, Matrix, Preset, Skew
from traffic_gen.workloads.algorithms.collectives import (
    DEFAULT_SLICES,
    MICROBATCHES,
    NCCL,
    TREE_SLICES,
    Algorithm,
    algorithm_of,
    algorithms_of,
    names_of,
)
from traffic_gen.workloads.sized_collective import SizedCollective
from traffic_gen.workloads.task import EXACT_UP_TO_GPUS, MOST_FOLLOWED_GPUS, Task

# More slices are too small to be worth their latency.
MOST_SLICES = 64
# Each of them waits for all of those before: more take gigabytes for a thousand GPUs.
MOST_PEERS = 32
PeersAtOnce = Annotated[int, Field(ge=1, le=MOST_PEERS, strict=True)] | Literal["all"]
# Limit of pairs of GPUs times slices times phases: the proof of this many parts takes seconds.
MOST_PARTS = 2_000_000
# To follow more takes gigabytes, and half a minute.
MOST_TRANSFERS = 2**21
# What algorithms of domains and rails are among GPUs that form no grid.
RING, DIRECT = "a ring", "direct"
FLAT_OF = {"hierarchical": RING, "rings": RING, "two-step": DIRECT, "spreading": DIRECT}


class CollectiveWork(Work):
    """A collective, its size, and which GPUs take part."""

    key = "collective"
    file_keys = ("matrix",)

    collective: Collective
    """the collective operation of the GPUs"""
    algorithm: Text
    """how: one of the collective's algorithms, listed below"""
    size: Size | None = None
    """a published size (`gpt-146b-gradients`) or bytes (`12 MB`); with a matrix of numbers, the
    bytes that a 1 stands for: default 1; else required"""
    communicator: Ranks = EVERYONE
    """which GPUs take part, as listed below"""
    matrix: PairSizes | None = Field(
        default=None,
        description="all-to-all: the bytes from each GPU to each other one: a preset "
        f"({listed(Preset)}), a file, its text, or rows of bytes",
    )
    matrix_seed: Seed = 0
    """chooses the hot places of a preset"""
    slices: Count | None = Field(
        default=None,
        le=MOST_SLICES,
        description=f"pipelined algorithms: slices of each chunk, 1 to {MOST_SLICES}; default: "
        f"{DEFAULT_SLICES}, for `double-binary-tree`, `nvls`, `nvls-sharp` {TREE_SLICES}, "
        f"for `chain` {MICROBATCHES}; cases that differ in it have it in their names",
    )
    peers: PeersAtOnce | None = Field(
        default=None,
        description="`direct`: partners of a GPU at once, on its NIC and within its HB domain: "
        f"1 to {MOST_PEERS}, or `all`; default: 1",
    )

    @model_validator(mode="before")
    @classmethod
    def _is_asked_for(cls, given: Any) -> Any:
        """Leave a missing algorithm to the check of its name, which lists the known ones."""
        return {"algorithm": "", **given} if isinstance(given, dict) else given

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        known = names_of(self.collective)
        if not self.algorithm:
            raise Refused(f"is required; known: {', '.join(known)}", key="algorithm")
        if self.algorithm not in known:
            what = f"unknown algorithm {self.algorithm!r} of {self.collective}"
            similar = did_you_mean(self.algorithm, known)
            raise Refused(f"{what}{similar} known: {', '.join(known)}", key="algorithm")
        if self.is_chosen and self.communicator != EVERYONE:
            raise Refused(f"{NCCL} needs all GPUs, without one", key="communicator")
        if self.matrix is not None and self.collective is not Collective.ALL_TO_ALL:
            raise Refused(f"needs {Collective.ALL_TO_ALL}, got {self.collective}", key="matrix")
        if "matrix_seed" in self.model_fields_set and not isinstance(self.matrix, Preset):
            raise Refused(f"needs a preset as matrix: {', '.join(Preset)}", key="matrix_seed")
        if self.slices is not None and self._how.slices == 1:
            raise Refused(f"needs a pipelined algorithm, got {self.algorithm!r}", key="slices")
        if self.peers is not None and not self._how.takes_peers:
            raise Refused(f"needs the algorithm 'direct', got {self.algorithm!r}", key="peers")
        if not isinstance(self.matrix, tuple) and self.size is None:
            raise Refused("is required", key="size")
        try:
            _ = self.pair_sizes
        except ValueError as error:
            raise Refused(str(error), key="matrix") from error
        return self

    @property
    def variant(self) -> str:
        """The number of slices in which each chunk is sent."""
        return f"slices-{self.slices or self._how.slices}"

    @property
    def _how(self) -> Algorithm:
        """The algorithm; in place of NCCL's choice, its rings."""
        return algorithm_of((self.collective, self.algorithm))

    @property
    def is_chosen(self) -> bool:
        """Whether NCCL chooses the algorithm."""
        return self.algorithm == NCCL

    @property
    def pair_sizes(self) -> Matrix | None:
        """The matrix of an all-to-all, if it has one."""
        if self.matrix is None:
            return None
        if isinstance(self.matrix, Preset):
            return Skew(self.matrix, self.matrix_seed)
        unit = 1 if self.size is None else round(size_in_bytes(self.size))
        return Given(tuple(tuple(scaled(number, unit) for number in row) for row in self.matrix))

    @property
    def size_bytes(self) -> float:
        """The real size, which a matrix of bytes determines."""
        matrix = self.pair_sizes
        return matrix.size_bytes if isinstance(matrix, Given) else size_in_bytes(self.size or "")

    def task(self, spec: FabricSpec) -> SizedCollective:
        """Return the collective on a fabric."""
        task = self.on_grid(spec.job_grid)
        return task.chosen_by_nccl(spec) if self.is_chosen else task

    def idle_keys(self) -> Iterator[str]:
        """Yield the seed of a preset that draws nothing: it is there for other presets."""
        if "matrix_seed" in self.model_fields_set and self.matrix is Preset.UNIFORM:
            yield f"matrix_seed: {self.matrix} draws nothing by it"

    def given_sizes(self, place: Place, grid: JobGrid) -> Iterator[tuple[Place, Task]]:
        """Yield the collective: building the schedule of a refused one would take seconds.

        A matrix that does not fit the grid is refused later; it may be too large to compute.
        """
        task = self.on_grid(grid)
        if task.matrix is None or not any(_wrong_groups(task)):
            yield place, task

    def size_name(self, task: Task) -> str:
        """Return the size as the file says it."""
        return self.size or task.size_name

    def early_issues(
        self, place: Place, grid: JobGrid, platform: str | None, nics: int
    ) -> Iterator[Issue]:
        """Yield issues if NCCL chooses for rates, GPUs or NICs that its tuning lacks."""
        needs = {
            # NCCL else searches for channels, and no formula says which it finds.
            f"one NIC for each GPU, got {nics} for {grid.size} GPUs of a domain": nics == grid.size,
            f"at most {MOST_GPUS} GPUs in a domain, got {grid.size}": grid.size <= MOST_GPUS,
            f"platform {' or '.join(KNOWN)}, got {platform or 'other rates'}": platform in KNOWN,
        }
        for need, is_met in needs.items():
            if self.is_chosen and not is_met:
                what = f"{NCCL} needs {need}"
                yield Issue((*place, "algorithm"), what, "name the algorithm")

    def modeled_issues(self, place: Place, spec: FabricSpec) -> Iterator[Issue]:
        """Yield an issue if switches reduce, or if too many transfers have to be followed."""
        task = self.task(spec)
        is_followed = spec.gpus > MOST_FOLLOWED_GPUS and not spec.has_whole_nics
        is_loaded = is_followed and task.is_regular and not task.is_modeled
        # Communicators and algorithms that do not fit the grid are refused later.
        is_loaded = is_loaded and not any(_wrong_groups(task)) and task.is_accepted
        count = len(task.loads()) if is_loaded else 0
        if count > MOST_TRANSFERS:
            what = f"{task.algorithm} must have at most {MOST_TRANSFERS} transfers, got {count}"
            hint = "no closed form describes such NICs: use another algorithm, or fewer GPUs"
            yield Issue((*place, "algorithm"), what, hint)
        if task.is_modeled:
            why = f" ({task.choice})" if task.choice else ""
            what = f"{task.algorithm} is only modeled: switches reduce, which cannot be emulated"
            others = ", ".join(algorithms_of(task.collective))
            hint = f"use `./railbed predict`, or another algorithm: {others}"
            yield Issue((*place, "algorithm"), f"{what}{why}", hint)

    def issues(self, place: Place, grid: JobGrid, platform: str) -> Iterator[Issue]:
        """Yield issues of the algorithm, which may refuse the grid, or be wrong on it."""
        task = self.on_grid(grid)
        wrong = [Issue((*place, key), what) for key, what in _wrong_groups(task)]
        yield from wrong
        issue = None if wrong or task.is_modeled else _issue(replace(task, size_bytes=1))
        if issue is not None:
            yield Issue(place, *issue)

    def on_grid(self, grid: JobGrid) -> SizedCollective:
        """Return the collective on a grid of GPUs."""
        return SizedCollective(
            self.collective,
            self.algorithm,
            grid.shape,
            self.size_bytes,
            slices=self.slices,
            matrix=self.pair_sizes,
            communicator=self.communicator,
            peers=self.peers or 1,
            missing=grid.missing,
            gpus_per_nic=grid.gpus_per_nic,
            sharing=grid.sharing,
        )


class CollectiveWorkload(BySize, CollectiveWork):
    """A collective to execute."""


class CollectiveJob(CollectiveWork, JobPlace):
    """A job that executes a collective."""

    @model_validator(mode="after")
    def _has_transfers(self) -> Self:
        if self.is_chosen or self._how.is_modeled:
            known = " or ".join(algorithms_of(self.collective))
            what = f"must be {known} in a job, got {self.algorithm}: jobs have no closed form"
            raise Refused(what, key="algorithm")
        return self


def _wrong_groups(task: SizedCollective) -> Iterator[tuple[str, str]]:
    """Yield the key and the issue of a wrong communicator, or of a matrix that does not fit it."""
    matrix, grid, is_regular = task.matrix, task.job_grid, task.is_regular
    try:
        groups = task.groups
    except ValueError as error:
        yield "communicator", str(error)
        return
    flat = FLAT_OF.get(task.algorithm.removesuffix("-pipelined"))
    if flat and task.collective in (Collective.GATHER, Collective.SCATTER):
        flat = DIRECT
    uneven = [group for group in groups if group.is_uneven(grid)]
    if flat is not None and uneven:
        what = f"{task.algorithm} needs equally many GPUs, on the same rails, in each domain"
        order = f"domain after domain; of these {len(uneven[0].ranks)} GPUs it would be {flat}"
        yield "algorithm", f"{what}, {order}"
    pairs = sum(len(group.ranks) ** 2 for group in groups)
    if not is_regular and grid.gpus > MOST_FOLLOWED_GPUS:
        key = "communicator" if matrix is None else "matrix"
        yield key, f"supports at most {MOST_FOLLOWED_GPUS} GPUs, got {grid.gpus}"
    elif not is_regular and (parts := pairs * task.chunk_slices * task.phases) > MOST_PARTS:
        key = "communicator" if matrix is None else "slices"
        yield key, f"must make at most {MOST_PARTS} parts for pairs of GPUs, got {parts}"
    elif isinstance(matrix, Given):
        for ranks in {len(group.ranks) for group in groups} - {len(matrix.rows)}:
            yield "matrix", f"must have {ranks} rows, one for each GPU, got {len(matrix.rows)}"


@lru_cache(maxsize=256)
def _issue(task: SizedCollective) -> tuple[str, str] | None:
    """Return the issue of a collective on a grid, and a hint; `None` if its schedule is right."""
    try:
        task.require_accepted()
    except ScheduleError as error:
        names = algorithms_of(task.collective)
        others = ", ".join(name for name in names if replace(task, algorithm=name).is_accepted)
        other = f", or another algorithm: {others}" if others else ""
        what = f"{task.on_grid} is not possible: {error}"
        return what, f"use another grid of GPUs{other}"
    proved = task
    try:
        # A proof takes about a second for 1024 GPUs, so that of a large fabric is of a smaller grid
        # here; a run proves its schedule in full when it builds it.
        if task.job_grid.gpus > EXACT_UP_TO_GPUS and task.is_regular:
            proved = task.stand_in()
        proved.steps()
    except ScheduleError as error:
        return proved.refusal(error)
    return None
