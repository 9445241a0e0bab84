"""The file of a cluster: its GPUs, its switches, and the models that it will train."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from scenarios.format.checked_file import Strict, load_as
from scenarios.format.document import FileKind
from scenarios.format.files import File
from scenarios.format.prices import DEFAULT
from scenarios.format.units import Platform

KIND = FileKind("cluster", "docs/guides/decision.md has an example", "docs/guides/decision.md")

Size = Annotated[int, Field(ge=1, le=2**20, strict=True)]


def _even(radix: int) -> int:
    if radix % 2:
        raise ValueError(f"must be an even number, got {radix}")
    return radix


class TrainedModel(Strict):
    """A model that will be trained: a training configuration, and its batch on this cluster."""

    configuration: str
    batch: Size | None = None


class ClusterFile(Strict):
    """The cluster of a decision."""

    gpus: Size
    platform: Platform
    radix: Annotated[int, Field(ge=4, le=4096, strict=True), AfterValidator(_even)]
    models: tuple[TrainedModel, ...] = Field(min_length=1)
    domain_sizes: tuple[Size, ...] = ()
    oversubscription: tuple[Annotated[float, Field(ge=1, le=64)], ...] = (2.0,)
    lifetime_years: float = Field(default=5.0, ge=0.01, le=100)
    usd_per_kwh: float = Field(default=0.1, ge=0, le=1000)
    prices: File = str(DEFAULT)


def load_cluster(path: Path) -> ClusterFile:
    """Read a cluster's file; raises `InputError` with all problems.

    The file of prices is searched from the cluster's folder.
    """
    return load_as(path, ClusterFile, KIND)
