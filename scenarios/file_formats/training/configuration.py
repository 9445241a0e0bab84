"""A training configuration: a YAML file with a model, its batch, its machine and its strategy."""

import os
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from model.errors import InputError, Problem
from model.fabric.platforms import PLATFORMS
from model.training.job import Cluster, Job, cluster_of
from model.training.strategy import Wish
from model.training.transformer import Experts, Recomputation, Transformer
from scenarios.file_formats.yaml_files.checked_file import FileKind, load_as
from scenarios.file_formats.yaml_files.issues import nearest
from scenarios.file_formats.yaml_files.strict import Strict

SHIPPED = Path(__file__).parent / "configurations"
ENDINGS = (".yaml", ".yml")

MOST_COUNT, MOST_GPUS, MOST_BATCH = 10**6, 2**20, 2**24
Count = Annotated[int, Field(ge=1, le=MOST_COUNT, strict=True)]
Batch = Annotated[int, Field(ge=1, le=MOST_BATCH, strict=True)]
Gpus = Annotated[int, Field(ge=1, le=MOST_GPUS, strict=True)]


def known_platform(name: str) -> str:
    """The name of a platform; raises `ValueError` with a message if it is unknown."""
    if name not in PLATFORMS:
        known = ", ".join(PLATFORMS)
        raise ValueError(f"unknown platform {name!r}{nearest(name, PLATFORMS)} known: {known}")
    return name


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
            raise ValueError(f"top_k {self.top_k} is more than the {self.experts} experts")
        if self.experts % self.expert_parallel:
            what = f"experts {self.experts} do not spread evenly over expert_parallel"
            raise ValueError(f"{what} {self.expert_parallel}")
        return self

    @property
    def experts_of_model(self) -> Experts:
        """The experts as a part of the model."""
        sizes = (self.every, self.experts, self.top_k)
        return Experts(*sizes, self.capacity, self.expert_parallel)


class Configuration(Strict):
    """A model, the machine that trains it, and how."""

    layers: Count
    hidden: Count
    heads: Count
    sequence: Count
    vocabulary: Count
    batch: Batch
    gpus: Gpus
    platform: Annotated[str, AfterValidator(known_platform)]
    domain_size: Count | None = None
    recomputation: Recomputation
    sequence_parallel: bool = True
    strategy: GivenStrategy = GivenStrategy()
    moe: GivenExperts | None = None

    @model_validator(mode="after")
    def _has_expert_layers(self) -> Self:
        if self.moe is not None and self.moe.every > self.layers:
            raise ValueError(f"moe.every {self.moe.every} is more than the {self.layers} layers")
        return self

    @property
    def transformer(self) -> Transformer:
        """The model."""
        experts = None if self.moe is None else self.moe.experts_of_model
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
        given = self.strategy
        return Wish(given.tensor, given.pipeline, given.interleave, given.microbatch)


def names() -> list[str]:
    """The names of the shipped configurations."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def configuration_name(path: Path) -> str:
    """The name of a shipped configuration, or that of a file without its ending."""
    return path.stem if path.suffix in ENDINGS else path.name


def load_configuration(path: Path) -> Configuration:
    """Read a file, or a shipped configuration by its name; raises `InputError`."""
    shipped = SHIPPED / f"{path.name}.yaml"
    is_name = path.parent == Path() and not os.path.exists(path)
    if is_name and os.path.exists(shipped):
        path = shipped
    elif is_name and path.suffix not in ENDINGS:
        meant = get_close_matches(path.name, names(), n=1)
        hint = f"did you mean {meant[0]!r}?" if meant else f"shipped are {', '.join(names())}"
        raise InputError(Problem(str(path), "is no file and no shipped configuration", hint))
    kind = FileKind(
        "training configuration",
        f"shipped are {', '.join(names())}",
        "docs/reference/training.md",
    )
    return load_as(path, Configuration, kind)
