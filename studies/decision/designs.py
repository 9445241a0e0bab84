"""A cluster's file, and the networks that it may have, with their iteration times, modeled."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from model.errors import InputError, Problem
from model.fabric.network_cost import (
    Equipment,
    built_oversubscription,
    equipment,
    rails_on_a_switch,
)
from model.fabric.spec import PLATFORMS, FabricKind
from model.training.iteration import Evaluation, best, iteration
from model.training.job import Job, cluster_of
from scenarios.format.checked_file import Strict, load_as
from scenarios.format.document import FileKind
from scenarios.format.files import File
from scenarios.format.prices import DEFAULT
from scenarios.format.training import load_configuration
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


@dataclass(frozen=True)
class Design:
    """A network: its kind, domain size and oversubscription, with its equipment."""

    kind: FabricKind
    domain_size: int
    oversubscription: float
    equipment: Equipment

    @property
    def name(self) -> str:
        """Its kind and its domain size, and an oversubscription above 1."""
        spines = f", spines {self.oversubscription:.3g}:1" if self.oversubscription > 1 else ""
        return f"{self.kind.value}, K = {self.domain_size}{spines}"


@dataclass(frozen=True)
class Training:
    """A model trained on a design: its best strategy, and the loss when a part fails.

    `losses` are shares of the iteration's time, by the part that fails; `None` is all of it.
    """

    name: str
    job: Job
    best: Evaluation
    losses: dict[str, float | None]

    @property
    def tokens_per_s(self) -> float:
        """Trained tokens a second."""
        return self.job.batch * self.job.transformer.sequence / self.best.iteration_s

    @property
    def all_to_all_slowdown(self) -> float | None:
        """Share of time that all-to-alls take longer than with full bisection.

        `None` without experts.
        """
        ours = float(self.best.terms.expert)
        cluster = replace(self.job.cluster, kind=FabricKind.RAIL_OPTIMIZED, oversubscription=1.0)
        full = float(iteration(replace(self.job, cluster=cluster), self.best.strategy).expert)
        return ours / full - 1 if full else None


def designs(file: ClusterFile) -> Iterator[Design]:
    """Yield rail-optimized, full and oversubscribed, and rail-only with every domain size."""
    own = min(PLATFORMS[file.platform].domain_size, file.gpus)
    ratios = (
        built_oversubscription(file.gpus, file.radix, asked)
        for asked in (1.0, *file.oversubscription)
    )
    for ratio in dict.fromkeys(ratios):
        yield _design(file, FabricKind.RAIL_OPTIMIZED, own, ratio)
    for size in dict.fromkeys((own, *file.domain_sizes)):
        yield _design(file, FabricKind.RAIL_ONLY, min(size, file.gpus), 1.0)


def _design(file: ClusterFile, kind: FabricKind, domain_size: int, ratio: float) -> Design:
    of = equipment(kind, file.gpus, file.radix, domain_size, ratio)
    return Design(kind, domain_size, ratio, of)


def trained(file: ClusterFile, design: Design, model: TrainedModel) -> Training:
    """A model's best iteration on a design; raises `InputError` if no strategy fits."""
    configuration = load_configuration(Path(model.configuration))
    cluster = replace(
        cluster_of(file.platform, file.gpus, design.domain_size),
        kind=design.kind,
        oversubscription=design.oversubscription,
    )
    batch = model.batch or configuration.batch
    job = replace(configuration.job, batch=batch, cluster=cluster)
    evaluation = best(job)
    if evaluation is None:
        what = f"no strategy fits {file.gpus} GPUs of {file.platform} with a batch of {batch}"
        raise InputError(Problem(model.configuration, what, "use another batch, or more GPUs"))
    rails = rails_on_a_switch(
        design.kind, file.gpus, file.radix, design.domain_size, design.oversubscription
    )
    return Training(model.configuration, job, evaluation, losses(job, evaluation, rails))


def losses(job: Job, evaluation: Evaluation, rails_of_a_switch: int = 1) -> dict[str, float | None]:
    """The iteration's losses, as shares of its time, with the same strategy.

    Every domain waits for the slowest. A lost NIC link takes 1/K of a domain's NIC bandwidth, a
    rail switch as many of the K parts as it has rails, and their traffic leaves by the other rails.
    A lost GPU takes its HB domain out of the job, if there is no spare.
    """
    left = job.cluster.gpus - job.cluster.domain_size
    return {
        "nic_link": _loss_without_rails(job, evaluation, 1),
        "rail_switch": _loss_without_rails(job, evaluation, rails_of_a_switch),
        "gpu": job.cluster.gpus / left - 1 if left else None,
    }


def _loss_without_rails(job: Job, evaluation: Evaluation, lost: int) -> float | None:
    rails = job.cluster.domain_size
    return loss_with_nics(job, evaluation, (rails - lost) / rails) if rails > lost else None


def loss_with_nics(job: Job, evaluation: Evaluation, share: float) -> float:
    """The iteration's loss if NICs have this share of their bandwidth."""
    slower = replace(job.cluster, nic=job.cluster.nic * share)
    without = iteration(replace(job, cluster=slower), evaluation.strategy)
    return float(without.total) / evaluation.iteration_s - 1
