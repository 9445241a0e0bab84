"""The scenario file's keys, types and defaults. Unknown keys are forbidden.

The descriptions are the reference in docs/reference/scenarios.md.
"""

from enum import StrEnum
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from model.fabric.shaping import LEAST_DEPTH_S, MOST_DEPTH_S
from model.fabric.spec import Datapath, FabricKind, SpineSelection
from model.faults import Component, FaultMode
from model.job.communicators import EVERYONE
from model.job.recovery import RecoveryStrategy
from model.workload.collective import Collective
from model.workload.generator import Generator
from scenarios.spec.field_types import (
    MOST_S,
    MOST_SCALE,
    Degree,
    Delay,
    Kinds,
    Loss,
    Names,
    PairSizes,
    Path,
    Platform,
    Ranks,
    Rate,
    Scale,
    Seconds,
    Seed,
    Size,
)
from scenarios.spec.issues import TAGGED, nearest
from scenarios.spec.strict import Strict
from traffic_gen.traces.placement import PlacementRule
from traffic_gen.workloads.collectives import (
    ALGORITHMS,
    DEFAULT_SLICES,
    MICROBATCHES,
    TREE_SLICES,
    algorithms_of,
)
from traffic_gen.workloads.matrices import Given, Matrix, Preset, Skew

# Beyond these bounds arithmetic overflows, or a run never ends.
MOST_RATIO = 1e6
SHORTEST_PERIOD_S = 0.01
MOST_PERIODS, MOST_EXECUTIONS, MOST_PAIRS = 10_000, 1000, 8000
MOST_WORKLOADS, MOST_FAULTS = 30, 100
# More slices are too small to be worth their latency.
MOST_SLICES = 64
MOST_DESCRIPTION = 10_000


def _words(choices: type[StrEnum]) -> str:
    return ", ".join(f"`{choice}`" for choice in choices)


class DatapathChoice(StrEnum):
    """A datapath of Open vSwitch, or the machine's default."""

    AUTO = "auto"
    KERNEL = Datapath.KERNEL
    USER_SPACE = Datapath.USER_SPACE


class Fabric(Strict):
    """The fabric: its shape, its rates and their scale."""

    topology: Path | None = Field(
        default=None,
        description="a network in a file of ASTRA-sim or SimAI, its path from the scenario's "
        "folder; gives the keys below that are not here",
    )
    kinds: Kinds = Field(
        default=tuple(FabricKind), description="`rail-only`, `rail-optimized`, or a list of both"
    )
    domains: int = Field(ge=2, strict=True, description="number of HB domains, y")
    domain_size: int = Field(ge=1, strict=True, description="GPUs in an HB domain, K = x")
    platform: Platform | None = Field(
        default=None, description="a platform that Railbed knows, whose bandwidths are taken"
    )
    hb_rate: Rate | None = Field(
        default=None, description="instead of a platform: a GPU's rate into its HB domain"
    )
    nic_rate: Rate | None = Field(
        default=None, description="instead of a platform: the rate of a NIC"
    )
    bandwidth_scale: Scale | Literal["auto"] = Field(
        default="auto",
        description="real rates are divided by this; `auto`: the least that this machine carries",
    )
    spines: int | None = Field(
        default=None,
        ge=1,
        strict=True,
        description="spine switches of a rail-optimized fabric; default: one a domain",
    )
    spine_selection: SpineSelection = Field(
        default=SpineSelection.DESTINATION,
        description="`destination`: the domains take the spine switches in turn; `hash`: each pair "
        "of GPUs by a hash, with collisions",
    )
    oversubscription: float = Field(
        default=1.0,
        ge=1,
        le=MOST_RATIO,
        strict=True,
        description="downlinks' rate over uplinks' rate of a rail switch",
    )

    rail_leaves: int = Field(
        default=1,
        ge=1,
        strict=True,
        description="rail-only: leaf switches of a rail; from 2 on, each rail is a Clos network "
        "with `spines` spine switches",
    )
    spare_domains: int = Field(
        default=0, ge=0, strict=True, description="idle HB domains, besides `domains`"
    )
    spare_gpus: int = Field(
        default=0, ge=0, strict=True, description="idle GPUs in each domain, besides `domain_size`"
    )
    spare_rail_switches: int = Field(
        default=0, ge=0, strict=True, description="rail switches that wait for NIC links"
    )
    bucket_depth: Annotated[float, Field(ge=LEAST_DEPTH_S, le=MOST_DEPTH_S)] | Literal["auto"] = (
        Field(
            default="auto",
            description="seconds of its rate that a link makes good at once after a pause, "
            f"{LEAST_DEPTH_S:g} to {MOST_DEPTH_S:g}; `auto`: as long as this machine's pauses",
        )
    )
    hb_delay: Delay = Field(default=0.0, description="seconds that an HB link delays each packet")
    hb_loss: Loss = Field(default=0.0, description="part of all packets that an HB link loses")
    nic_delay: Delay = Field(default=0.0, description="the same of NIC links and uplinks")
    nic_loss: Loss = Field(default=0.0, description="the same of NIC links and uplinks")
    datapath: DatapathChoice = Field(
        default=DatapathChoice.AUTO,
        description="of the rail and spine switches: `kernel` or `user-space`; "
        "`auto`: this machine's default",
    )


class Workload(Strict):
    """A collective to execute."""

    collective: Collective = Field(description="what the GPUs want to achieve")
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
        description="all-to-all: what each GPU has for each other one: a preset "
        f"({_words(Preset)}), a file, or rows of bytes",
    )
    matrix_seed: Seed = Field(default=0, description="chooses the hot places of a preset")
    size_scale: Annotated[float, Field(ge=1, le=MOST_SCALE, strict=True)] | Literal["auto"] = Field(
        default=1.0, description="the size is divided by this; `auto`: about 3 s an execution"
    )
    time_dilation: Scale | Literal["auto"] | None = Field(
        default=None,
        description="instead of `size_scale`: emulated seconds for each second on the real "
        "platform; `auto`: as few as the error budget allows",
    )
    slices: int | None = Field(
        default=None,
        ge=1,
        le=MOST_SLICES,
        strict=True,
        description="pipelined algorithms: into how many slices each chunk is cut; default: "
        f"{DEFAULT_SLICES}, for `double-binary-tree` {TREE_SLICES}, for `chain` {MICROBATCHES}",
    )
    generator: Generator = Field(
        default=Generator.AGENT, description=f"what sends: {_words(Generator)}"
    )
    kinds: Kinds = Field(default=tuple(FabricKind), description="on which of the fabrics")

    @model_validator(mode="after")
    def _algorithm_exists(self) -> Self:
        known = algorithms_of(self.collective)
        if self.algorithm not in known:
            raise ValueError(
                f"{self.collective} has no algorithm {self.algorithm!r}"
                f"{nearest(self.algorithm, known)} known: {', '.join(known)}"
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


class TraceWorkload(Strict):
    """A trace of another tool to replay."""

    trace: Path = Field(
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
    size_scale: Annotated[float, Field(ge=1, le=MOST_SCALE, strict=True)] | Literal["auto"] = Field(
        default=1.0, description="all sizes are divided by this; `auto`: about 3 s an execution"
    )
    time_dilation: Scale | Literal["auto"] | None = Field(
        default=None, description="instead of `size_scale`, as for a collective"
    )
    generator: Generator = Field(
        default=Generator.AGENT, description="what replays it, as for a collective"
    )
    kinds: Kinds = Field(default=tuple(FabricKind), description="on which of the fabrics")


class IterationWorkload(Strict):
    """A training iteration to execute."""

    # Only agents compute; compute and bytes are scaled together.
    generator: ClassVar[Generator] = Generator.AGENT
    size_scale: ClassVar[float] = 1.0

    iteration: Path = Field(
        description="a training configuration: a shipped name (`gpt-146b`), or a YAML file, its "
        "path from the scenario's folder"
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
    time_dilation: Scale | Literal["auto"] = Field(
        default="auto",
        description="emulated seconds for each second on the real platform, of compute as well; "
        "`auto`: as few as the error budget allows",
    )
    kinds: Kinds = Field(default=tuple(FabricKind), description="on which of the fabrics")


def _key_of(entry: object) -> str:
    """Return the key that says what an entry of the workloads is."""
    for key, model in (("trace", TraceWorkload), ("iteration", IterationWorkload)):
        if isinstance(entry, model) or (isinstance(entry, dict) and key in entry):
            return f"{TAGGED}{key}"
    return f"{TAGGED}collective"


AnyWorkload = Annotated[
    Annotated[Workload, Tag(f"{TAGGED}collective")]
    | Annotated[TraceWorkload, Tag(f"{TAGGED}trace")]
    | Annotated[IterationWorkload, Tag(f"{TAGGED}iteration")],
    Discriminator(_key_of),
]


class Expect(Strict):
    """What the ratio of measured to modeled completion time must be."""

    ratio_within: float = Field(
        default=0.02, gt=0, le=MOST_RATIO, strict=True, description="further from 1: warn"
    )
    ratio_limit: float = Field(
        default=0.05,
        gt=0,
        le=MOST_RATIO,
        strict=True,
        description="further from 1: fail, exit code 1",
    )
    blackout_ms: float | None = Field(
        default=None,
        gt=0,
        le=MOST_S * 1e3,
        description="faults: a longer blackout of any probed pair: fail",
    )


class FaultEntry(Strict):
    """Something that breaks while a collective is executed, and again for whole executions."""

    what: Component = Field(description=f"what breaks: {_words(Component)}")
    how: FaultMode = Field(
        default=FaultMode.DOWN, description=f"what happens to it: {_words(FaultMode)}"
    )
    where: Names | None = Field(
        default=None, description="the names of what breaks (`d0g0--rail0`, `rail0`, `d0g0`, `d0`)"
    )
    random: int | None = Field(
        default=None, ge=1, strict=True, description="instead of names: so many, chosen by `seed`"
    )
    rate: Rate | None = Field(
        default=None, description="degrade: the rate that is left, as `nic_rate` counts it"
    )
    at: Seconds | None = Field(
        default=None, description="when, in seconds into the execution; default: 0.3"
    )
    at_step: int | None = Field(
        default=None, ge=0, strict=True, description="instead: when this step of it begins, from 0"
    )
    for_: float | None = Field(
        default=None,
        gt=0,
        le=MOST_S,
        alias="for",
        description="for how many seconds; default: until the end",
    )
    period: float = Field(
        default=0.5,
        ge=SHORTEST_PERIOD_S,
        le=MOST_S,
        description="flap: seconds; down for half of each",
    )
    count: int = Field(
        default=4, ge=1, le=MOST_PERIODS, strict=True, description="flap: how many periods"
    )


class Job(Strict):
    """What the job does about the faults of its scenario."""

    strategy: RecoveryStrategy = Field(
        default=RecoveryStrategy.REROUTE,
        description="`reroute`: go on. All others begin the execution again: `abort-and-restart` "
        "where it was; `spare-domain`, `spare-gpu` and `remote-gpu` on other GPUs; "
        "`spare-rail-switch`, `swap-group` after an optical switch has moved NIC links",
    )
    restart_time: Seconds = Field(
        default=0.5, description="emulated seconds from the abort until the job is back"
    )
    reconfiguration_time: Seconds = Field(
        default=0.025, description="seconds that the optical switch takes"
    )
    group_size: int = Field(
        default=2, ge=1, strict=True, description="swap-group: GPUs that change places together"
    )


class ScenarioFile(Strict):
    """A scenario file."""

    name: str | None = Field(
        default=None, pattern=r"^[a-z0-9][a-z0-9-]{0,39}$", description="default: the file's name"
    )
    description: str = Field(default="", max_length=MOST_DESCRIPTION, description="for people")
    fabric: Fabric
    workloads: tuple[AnyWorkload, ...] = Field(
        min_length=1, max_length=MOST_WORKLOADS, description="what to execute, in order"
    )
    faults: tuple[FaultEntry, ...] = Field(
        default=(), max_length=MOST_FAULTS, description="what breaks, if anything"
    )
    job: Job = Field(default_factory=Job, description="what the job does about it")
    probed_pairs: int = Field(
        default=6,
        ge=1,
        le=MOST_PAIRS,
        strict=True,
        description="faults: so many of the affected pairs are probed at 1 kHz; each takes "
        "0.5 Mbit/s of its links",
    )
    repeats: Annotated[int, Field(ge=1, le=MOST_EXECUTIONS, strict=True)] | Literal["auto"] = Field(
        default=5,
        description="counted executions of a case; `auto`: until the median is known to 0.5 % "
        "either way with 95 % confidence, 6 to 30",
    )
    warmup: int = Field(
        default=1,
        ge=0,
        le=MOST_EXECUTIONS,
        strict=True,
        description="executions before, not counted",
    )
    seed: Seed = Field(default=0, description="turns the choice of spines; chooses what breaks")
    machine_seed: Seed = Field(
        default=0, description="virtual clock: seed of all random numbers of the machine"
    )
    check_data: bool = Field(
        default=False, strict=True, description="send real numbers and check the result"
    )
    check_paths: bool = Field(
        default=False,
        strict=True,
        description="before the cases, check the paths that packets take, as `railbed verify` does",
    )
    allow_overload: bool = Field(
        default=False,
        strict=True,
        description="do not refuse rates and steps that this machine cannot keep up with",
    )
    expect: Expect = Field(default_factory=Expect, description="the verdict's thresholds")
