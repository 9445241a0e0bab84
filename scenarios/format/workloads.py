"""Entries of a scenario's workloads: collectives, traces, iterations, request loads, several jobs.

Their keys, types and defaults, and the descriptions of docs/reference/scenarios.md.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from model.fabric.spec import FabricKind
from model.job.communicators import EVERYONE, Shape
from model.job.partition import Partition
from model.workload.generator import Generator
from model.workload.transfers.collective import Collective
from scenarios.format.checked_file import Strict
from scenarios.format.files import ConfigurationFile, File, PairSizes
from scenarios.format.issues import TAGGED, Place, did_you_mean
from scenarios.format.units import (
    MOST_SCALE,
    Batch,
    Degree,
    Kinds,
    Ranks,
    Scale,
    Seed,
    ShortName,
    Size,
    Span,
    listed,
    size_in_bytes,
)
from traffic_gen.traces.rank_placement import PlacementRule
from traffic_gen.workloads.algorithms.collectives import (
    ALGORITHMS,
    DEFAULT_SLICES,
    MICROBATCHES,
    TREE_SLICES,
    algorithms_of,
)
from traffic_gen.workloads.algorithms.matrices import Given, Matrix, Preset, Skew
from traffic_gen.workloads.sized_collective import SizedCollective

# More slices are too small to be worth their latency.
MOST_SLICES = 64
MOST_JOBS = 16
# Requests of a load, how many in a second, tokens of a prompt, and their variation.
MOST_REQUESTS, MOST_REQUEST_RATE, MOST_TOKENS, MOST_VARIATION = 10_000, 1e9, 10**7, 10.0

OnFabrics = Annotated[Kinds, Field(description="on which of the fabrics")]
SizeScale = Annotated[float, Field(ge=1, le=MOST_SCALE, strict=True)] | Literal["auto"]


class CollectiveWork(Strict):
    """A collective, its size, and which GPUs take part."""

    collective: Collective = Field(description="the collective operation of the GPUs")
    algorithm: str = Field(description="how: one of the collective's algorithms, listed below")
    size: Size | None = Field(
        default=None,
        description="a published size (`gpt-146b-gradients`) or bytes (`12 MB`); "
        "required, except with a matrix of bytes",
    )
    communicator: Ranks = Field(
        default=EVERYONE,
        description="which GPUs take part: `all`, `rails`, `rail0`, `domains`, `d0`, `strided-2`, "
        "`strided-2-from-1`, or a list",
    )
    matrix: PairSizes | None = Field(
        default=None,
        description="all-to-all: the bytes from each GPU to each other one: a preset "
        f"({listed(Preset)}), a file, or rows of bytes",
    )
    matrix_seed: Seed = Field(default=0, description="chooses the hot places of a preset")
    slices: int | None = Field(
        default=None,
        ge=1,
        le=MOST_SLICES,
        strict=True,
        description="pipelined algorithms: into how many slices each chunk is cut; default: "
        f"{DEFAULT_SLICES}, for `double-binary-tree` {TREE_SLICES}, for `chain` {MICROBATCHES}; "
        "cases that differ in it have it in their names",
    )

    @model_validator(mode="after")
    def _algorithm_exists(self) -> Self:
        known = algorithms_of(self.collective)
        if self.algorithm not in known:
            raise ValueError(
                f"{self.collective} has no algorithm {self.algorithm!r}"
                f"{did_you_mean(self.algorithm, known)} known: {', '.join(known)}"
            )
        if self.matrix is not None and self.collective is not Collective.ALL_TO_ALL:
            raise ValueError(f"{self.collective} has no matrix; only {Collective.ALL_TO_ALL} has")
        if self.slices is not None and not ALGORITHMS[self.collective, self.algorithm].is_pipelined:
            raise ValueError(f"{self.algorithm!r} is not pipelined and has no slices")
        return self

    @model_validator(mode="after")
    def _size_is_given_once(self) -> Self:
        has_bytes = isinstance(self.matrix, tuple)
        if has_bytes and self.size is not None:
            raise ValueError("a matrix of bytes goes without size")
        if not has_bytes and self.size is None:
            raise ValueError("needs a size")
        return self

    @property
    def pair_sizes(self) -> Matrix | None:
        """The matrix of an all-to-all, if it has one."""
        if self.matrix is None:
            return None
        if isinstance(self.matrix, Preset):
            return Skew(self.matrix, self.matrix_seed)
        return Given(self.matrix)

    @property
    def size_bytes(self) -> float:
        """The real size, which a matrix of bytes determines."""
        matrix = self.pair_sizes
        return matrix.size_bytes if isinstance(matrix, Given) else size_in_bytes(self.size or "")

    def on_grid(self, shape: Shape) -> SizedCollective:
        """Return the collective on a grid of GPUs."""
        among = self.slices, self.pair_sizes, self.communicator
        return SizedCollective(self.collective, self.algorithm, shape, self.size_bytes, *among)


class TraceWork(Strict):
    """A trace of another tool, and the GPUs of its ranks."""

    trace: File = Field(
        description="a file, its path from the scenario's folder; of a Chakra trace, the folder or "
        "one of the files"
    )
    placement: tuple[Annotated[int, Field(ge=0, strict=True)], ...] | PlacementRule = Field(
        default=PlacementRule.WRAP,
        description="the GPU of each rank: `wrap`, `block`, `rails`, or a list of numbers",
    )
    size: Size | None = Field(
        default=None, description="MSCCL XML: the size of the collective, as for a collective"
    )


class IterationWork(Strict):
    """A training iteration, and how it is reduced to the GPUs."""

    iteration: ConfigurationFile = Field(
        description="a training configuration: a shipped name (`gpt-146b`), or a YAML file, its "
        "path from the scenario's folder"
    )
    batch: Batch | None = Field(
        default=None, description="sequences of a whole iteration; default: the configuration's"
    )
    tensor: Degree | None = Field(
        default=None, description="tensor parallel degree here; default: by the rules"
    )
    pipeline: Degree | None = Field(default=None, description="the same, pipeline parallel")
    microbatches: Degree | None = Field(
        default=None, description="microbatches here; default: as many as keep the bubble's share"
    )
    layers: Degree = Field(
        default=1, description="layers of a stage's chunk here; each stands for several"
    )
    zero: bool = Field(
        default=True,
        strict=True,
        description="ReduceScatter of the gradients, optimizer's step, AllGather (ZeRO-1); "
        "`false`: AllReduce, then the step",
    )


class CollectiveWorkload(CollectiveWork):
    """A collective to execute."""

    size_scale: SizeScale = Field(
        default=1.0, description="the size is divided by this; `auto`: about 3 s an execution"
    )
    time_dilation: Scale | Literal["auto"] | None = Field(
        default=None,
        description="instead of `size_scale`: emulated seconds for each second on the real "
        "platform; `auto`: as few as the error budget allows",
    )
    generator: Generator = Field(
        default=Generator.AGENT, description=f"what sends: {listed(Generator)}"
    )
    kinds: OnFabrics = tuple(FabricKind)


class TraceWorkload(TraceWork):
    """A trace of another tool to replay."""

    size_scale: SizeScale = Field(
        default=1.0, description="all sizes are divided by this; `auto`: about 3 s an execution"
    )
    time_dilation: Scale | Literal["auto"] | None = Field(
        default=None, description="instead of `size_scale`, as for a collective"
    )
    generator: Generator = Field(
        default=Generator.AGENT, description="what replays it, as for a collective"
    )
    kinds: OnFabrics = tuple(FabricKind)


class IterationWorkload(IterationWork):
    """A training iteration to execute."""

    # Only agents compute; compute and bytes are scaled together.
    generator: ClassVar[Generator] = Generator.AGENT
    size_scale: ClassVar[float] = 1.0

    time_dilation: Scale | Literal["auto"] = Field(
        default="auto",
        description="emulated seconds for each second on the real platform, of compute as well; "
        "`auto`: as few as the error budget allows",
    )
    kinds: OnFabrics = tuple(FabricKind)


class InferenceWorkload(Strict):
    """A request load of inference to execute."""

    # Only agents wait for arrivals; arrivals and bytes are scaled together.
    generator: ClassVar[Generator] = Generator.AGENT
    size_scale: ClassVar[float] = 1.0

    inference: ConfigurationFile = Field(
        description="the model that is served: a training configuration, as for an iteration"
    )
    requests: int = Field(
        default=100, ge=1, le=MOST_REQUESTS, strict=True, description="how many requests arrive"
    )
    rate: float = Field(
        gt=0,
        le=MOST_REQUEST_RATE,
        description="requests in a second of the real platform, on average over all HB domains",
    )
    prompt: int = Field(
        default=1024, ge=1, le=MOST_TOKENS, strict=True, description="tokens of a mean prompt"
    )
    prompt_variation: float = Field(
        default=0.0,
        ge=0,
        le=MOST_VARIATION,
        strict=True,
        description="standard deviation of the tokens over their mean, log-normal; 0: all the same",
    )
    token_size: Size | None = Field(
        default=None,
        description="bytes of a token's KV cache; default: keys and values of 16 bit of every "
        "head in every layer",
    )
    tensor: Degree | None = Field(
        default=None, description="GPUs of a replica of the model; default: a whole HB domain"
    )
    seed: Seed = Field(default=0, description="draws arrivals, prompts, and where they are decoded")
    time_dilation: Scale = Field(
        description="emulated seconds for each second on the real platform, of arrivals as well"
    )
    kinds: OnFabrics = tuple(FabricKind)


AnyWork = CollectiveWork | TraceWork | IterationWork | InferenceWorkload


class JobPlace(Strict):
    """The name of a job, and the partition of the grid that is its own."""

    # All jobs of a workload have its generator.
    generator: ClassVar[Generator] = Generator.AGENT

    name: ShortName = Field(description="the job's name, for cases and tables")
    domains: Span | None = Field(
        default=None, description="its HB domains, from 0: `2`, or `0-1`; default: all"
    )
    rails: Span | None = Field(
        default=None, description="its GPUs in each of them: `2`, or `0-3`; default: all"
    )

    def partition(self, domains: int, domain_size: int) -> Partition:
        """Return the job's partition of a grid; without spans, the whole grid."""
        return Partition(self.domains or (0, domains - 1), self.rails or (0, domain_size - 1))


class CollectiveJob(CollectiveWork, JobPlace):
    """A job that executes a collective."""


class TraceJob(TraceWork, JobPlace):
    """A job that replays a trace."""


class IterationJob(IterationWork, JobPlace):
    """A job that executes a training iteration."""


# Keys of workloads and jobs that may name a file.
FILE_KEYS = ("trace", "iteration", "inference", "matrix")


def _key_of(entry: object) -> str:
    """Return the key that tells the kind of a workload's or job's entry."""
    models = (TraceWork, IterationWork, InferenceWorkload, JobsWorkload)
    for key, model in zip(("trace", "iteration", "inference", "jobs"), models, strict=True):
        if isinstance(entry, model) or (isinstance(entry, dict) and key in entry):
            return f"{TAGGED}{key}"
    return f"{TAGGED}collective"


AnyJob = Annotated[
    Annotated[CollectiveJob, Tag(f"{TAGGED}collective")]
    | Annotated[TraceJob, Tag(f"{TAGGED}trace")]
    | Annotated[IterationJob, Tag(f"{TAGGED}iteration")],
    Discriminator(_key_of),
]


class JobsWorkload(Strict):
    """Several jobs at once, each on a partition of its own."""

    # Compute and bytes of all jobs are scaled together, so that they meet as on the real platform.
    generator: ClassVar[Generator] = Generator.AGENT
    size_scale: ClassVar[float] = 1.0

    jobs: tuple[AnyJob, ...] = Field(
        max_length=MOST_JOBS, description="the jobs, which begin together; their keys are below"
    )
    time_dilation: Scale | Literal["auto"] = Field(
        default="auto",
        description="emulated seconds for each second on the real platform, of all jobs; "
        "`auto`: as few as the error budget allows",
    )
    kinds: OnFabrics = tuple(FabricKind)

    @model_validator(mode="after")
    def _jobs_have_names(self) -> Self:
        if len(self.jobs) < 2:
            raise ValueError(f"must have two jobs or more, got {len(self.jobs)}")
        for name, count in Counter(job.name for job in self.jobs).items():
            if count > 1:
                raise ValueError(f"has {count} jobs of the name {name!r}")
        return self


AnyWorkload = Annotated[
    Annotated[CollectiveWorkload, Tag(f"{TAGGED}collective")]
    | Annotated[TraceWorkload, Tag(f"{TAGGED}trace")]
    | Annotated[IterationWorkload, Tag(f"{TAGGED}iteration")]
    | Annotated[InferenceWorkload, Tag(f"{TAGGED}inference")]
    | Annotated[JobsWorkload, Tag(f"{TAGGED}jobs")],
    Discriminator(_key_of),
]


def entries(document: Any) -> Iterator[tuple[Place, Any]]:
    """Yield the place and the mapping of each workload and job in an unchecked document."""
    for number, workload in _mappings(document.get("workloads")):
        yield ("workloads", number), workload
        for which, job in _mappings(workload.get("jobs")):
            yield ("workloads", number, "jobs", which), job


def _mappings(listed: Any) -> Iterator[tuple[int, Any]]:
    """Yield the entries of a list that are mappings, if it is one."""
    found = listed if isinstance(listed, list) else ()
    yield from ((number, entry) for number, entry in enumerate(found) if isinstance(entry, dict))
