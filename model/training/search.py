"""The search for the fastest iteration: every strategy, and every way of doing its work."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from itertools import product
from typing import Any

import numpy as np

from model.fabric.spec import FabricKind
from model.training.iteration import Evaluation, evaluate, iteration
from model.training.job import Job
from model.training.layer import memory_bytes
from model.training.strategy import ANY, Wish, strategies
from model.training.transformer import Recomputation


class Freedom(StrEnum):
    """What a search may choose, beside the degrees of a strategy."""

    RECOMPUTATION = "recomputation"
    SEQUENCE_PARALLEL = "sequence-parallel"
    SHARDING = "sharding"
    OVERLAP = "overlap"
    OVERLAP_EXPERTS = "overlap-experts"
    OFFLOAD = "offload"
    CONTEXT = "context"

    @property
    def field(self) -> str:
        """The field of a job that is chosen."""
        return self.value.replace("-", "_")


CHOICES: dict[Freedom, tuple[Any, ...]] = {
    Freedom.RECOMPUTATION: tuple(Recomputation),
    Freedom.SEQUENCE_PARALLEL: (False, True),
    Freedom.SHARDING: (1, 2, 3),
    Freedom.OVERLAP: (False, True),
    Freedom.OVERLAP_EXPERTS: (False, True),
    Freedom.OFFLOAD: (False, True),
}
# Fields without influence on the strategies that are possible.
SAME: dict[str, Any] = {
    one.field: choices[0]
    for one, choices in CHOICES.items()
    if one is not Freedom.SEQUENCE_PARALLEL
}


def ways(job: Job, freedoms: Iterable[Freedom] = ()) -> Iterator[Job]:
    """Yield the job with every choice of what is free."""
    free = [one for one in freedoms if one in CHOICES]
    if job.transformer.experts is None:
        free = [one for one in free if one is not Freedom.OVERLAP_EXPERTS]
    for chosen in product(*(CHOICES[one] for one in free)):
        yield replace(job, **{one.field: choice for one, choice in zip(free, chosen, strict=True)})


def best(
    job: Job, wish: Wish = ANY, *, must_fit: bool = True, freedoms: Iterable[Freedom] = ()
) -> Evaluation | None:
    """Return the fastest iteration, with `must_fit` of those that fit into memory; or `None`."""
    freedoms = tuple(freedoms)
    if Freedom.CONTEXT in freedoms:
        wish = replace(wish, context=None)
    found = (_fastest(one, wish, must_fit=must_fit) for one in ways(job, freedoms))
    return min(
        (one for one in found if one is not None), key=lambda one: one.iteration_s, default=None
    )


def _fastest(job: Job, wish: Wish, *, must_fit: bool) -> Evaluation | None:
    cluster = replace(job.cluster, hb=1.0, nic=1.0, kind=FabricKind.RAIL_ONLY, oversubscription=1.0)
    every = strategies(replace(job, cluster=cluster, **SAME), wish)
    if not len(every.tensor):
        return None
    times = iteration(job, every).total
    if must_fit:
        fits = memory_bytes(job, every) <= job.cluster.accelerator.memory_bytes
        times = np.where(fits, times, np.inf)
    fastest = int(np.argmin(times))
    return evaluate(job, every.at(fastest)) if np.isfinite(times[fastest]) else None
