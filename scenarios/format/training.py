"""Training configurations, YAML files with model, batch, machine and strategy; their iteration."""

import os
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from model.errors import InputError, Problem
from model.job.communicators import Shape
from model.training.iteration import Evaluation, best
from model.training.job import Cluster, Job, cluster_of
from model.training.reduction import ReducedIteration, Wanted, reduced
from model.training.strategy import ANY, Wish
from model.training.transformer import Experts, Recomputation, Transformer
from scenarios.format.checked_file import Strict, load_as
from scenarios.format.document import FileKind
from scenarios.format.files import ENDINGS
from scenarios.format.issues import meant
from scenarios.format.units import Platform

SHIPPED = Path(__file__).parent / "configurations"

MOST_COUNT, MOST_GPUS, MOST_BATCH = 10**6, 2**20, 2**24
Count = Annotated[int, Field(ge=1, le=MOST_COUNT, strict=True)]
Batch = Annotated[int, Field(ge=1, le=MOST_BATCH, strict=True)]
Gpus = Annotated[int, Field(ge=1, le=MOST_GPUS, strict=True)]


class GivenStrategy(Strict):
    """Given degrees; missing ones are searched."""

    tensor: Count | None = None
    pipeline: Count | None = None
    interleave: Count | None = None
    microbatch: Count | None = None


class GivenExperts(Strict):
    """Experts in every `every`-th layer, spread over `expert_parallel` GPUs."""

    every: Count
    experts: Count
    top_k: Count
    capacity: float = Field(gt=0)
    expert_parallel: Count

    @model_validator(mode="after")
    def _are_possible(self) -> Self:
        if self.top_k > self.experts:
            raise ValueError(f"top_k must be at most experts, {self.experts}, got {self.top_k}")
        if self.experts % self.expert_parallel:
            what = f"experts must be a multiple of expert_parallel, {self.expert_parallel}"
            raise ValueError(f"{what}, got {self.experts}")
        return self


class Configuration(Strict):
    """A model, the machine that trains it, and how."""

    layers: Count
    hidden: Count
    heads: Count
    sequence: Count
    vocabulary: Count
    batch: Batch
    gpus: Gpus
    platform: Platform
    domain_size: Count | None = None
    recomputation: Recomputation
    sequence_parallel: bool = True
    strategy: GivenStrategy = GivenStrategy()
    moe: GivenExperts | None = None

    @model_validator(mode="after")
    def _has_expert_layers(self) -> Self:
        if self.moe is not None and self.moe.every > self.layers:
            raise ValueError(
                f"moe.every must be at most layers, {self.layers}, got {self.moe.every}"
            )
        return self

    @property
    def transformer(self) -> Transformer:
        """The model."""
        experts = None
        if moe := self.moe:
            experts = Experts(moe.every, moe.experts, moe.top_k, moe.capacity, moe.expert_parallel)
        sizes = (self.layers, self.hidden, self.heads, self.sequence, self.vocabulary)
        return Transformer(*sizes, experts)

    @property
    def cluster(self) -> Cluster:
        """The machine."""
        return cluster_of(self.platform, self.gpus, self.domain_size)

    @property
    def job(self) -> Job:
        """The iteration."""
        return Job(
            self.transformer, self.batch, self.recomputation, self.cluster, self.sequence_parallel
        )

    @property
    def wish(self) -> Wish:
        """The given degrees."""
        return Wish(**self.strategy.model_dump())


def names() -> list[str]:
    """The names of the shipped configurations."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def load_configuration(path: Path) -> Configuration:
    """Read a file, or a shipped configuration by its name; raises `InputError`."""
    shipped = SHIPPED / f"{path.name}.yaml"
    is_name = path.parent == Path() and not os.path.exists(path)
    if is_name and os.path.exists(shipped):
        path = shipped
    elif is_name and path.suffix not in ENDINGS:
        hint = meant(path.name, names(), f"shipped: {', '.join(names())}")
        raise InputError(
            Problem(str(path), "not found, and no shipped configuration of this name", hint)
        )
    kind = FileKind(
        "training configuration",
        f"shipped: {', '.join(names())}",
        "docs/reference/training.md",
    )
    return load_as(path, Configuration, kind)


@lru_cache(maxsize=64)
def reduced_iteration(
    name: str, configuration: Configuration, shape: Shape, wanted: Wanted
) -> ReducedIteration:
    """Reduce an iteration to a grid of GPUs; raises `NoReduction`, or `InputError`."""
    strategy = evaluated(name, configuration).strategy
    return reduced(configuration.job, strategy, *shape, wanted)


def evaluated(name: str, configuration: Configuration, *, search: bool = False) -> Evaluation:
    """Evaluate the given strategy, its missing degrees searched; with `search`, the best of all.

    A strategy that is given whole need not fit the memory. Raises `InputError` if there is none.
    """
    job, wish = configuration.job, ANY if search else configuration.wish
    evaluation = best(job, wish)
    is_whole = None not in vars(wish).values()
    if evaluation is None and is_whole:
        evaluation = best(job, wish, must_fit=False)
    if evaluation is None:
        hint = "use other GPUs, another batch, or another strategy"
        raise InputError(Problem(name, _reason(configuration, wish), hint))
    return evaluation


def _reason(configuration: Configuration, wish: Wish) -> str:
    job = configuration.job
    if best(job, wish, must_fit=False) is not None:
        size = job.cluster.accelerator.memory_bytes / 1e9
        return f"no strategy fits the {size:g} GB of a GPU of {configuration.platform}"
    split = (
        f"{job.cluster.gpus} GPUs, {job.transformer.layers} layers, {job.transformer.heads} heads"
    )
    asked = ", ".join(f"{key} {value}" for key, value in vars(wish).items() if value is not None)
    of = f" with {asked}" if asked else ""
    what = f"no strategy{of} divides {split} and a batch of {job.batch} sequences evenly"
    if configuration.moe is not None:
        parallel = configuration.moe.expert_parallel
        what += f", with data-parallel ranks that are a multiple of expert_parallel {parallel}"
    if wish.interleave is not None and wish.interleave > 1:
        what += ", and with microbatches that are a multiple of the stages, as interleaving needs"
    return what
