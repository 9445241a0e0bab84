"""The search for the fastest iteration: every strategy, and every way of doing its work."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import product
from math import inf
from typing import Any

import numpy as np

from model.arrays import Bools
from model.fabric.spec import FabricKind
from model.training.iteration import Evaluation, evaluate, iteration
from model.training.job import Job
from model.training.layer import fits
from model.training.strategy import ANY, Strategy, Wish, placed, within_one_domain
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


# Overlap of gradients and weights never costs anything.
CHOICES: dict[Freedom, tuple[Any, ...]] = {
    Freedom.RECOMPUTATION: tuple(Recomputation),
    Freedom.SEQUENCE_PARALLEL: (False, True),
    Freedom.SHARDING: (1, 2, 3),
    Freedom.OVERLAP: (True,),
    Freedom.OVERLAP_EXPERTS: (False, True),
    Freedom.OFFLOAD: (False, True),
}
# Fields without influence on the strategies that are possible.
SAME: dict[str, Any] = {
    one.field: choices[0]
    for one, choices in CHOICES.items()
    if one is not Freedom.SEQUENCE_PARALLEL
}
# Degrees that are placed at once.
AT_ONCE = 1024
# Of sums of floating-point numbers.
ROUNDING = 1e-9


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
    """Return the fastest iteration, with `must_fit` of those that fit into memory; or `None`.

    Branches and bounds: degrees are placed in HB domains only if one domain of all GPUs would be
    faster than the best so far, the fastest there first.
    """
    freedoms = tuple(freedoms)
    if Freedom.CONTEXT in freedoms:
        wish = replace(wish, context=None)
    fastest_s, found = inf, None
    for way in ways(job, freedoms):
        degrees = _degrees(way, wish)
        degrees = degrees.take(_least_that_fits(way, degrees, freedoms, must_fit))
        bound_s = (1 - ROUNDING) * iteration(_in_one_domain(way), degrees).total
        order = np.argsort(bound_s, kind="stable")
        for part in np.split(order, range(AT_ONCE, len(order), AT_ONCE)):
            every = placed(degrees.take(part[bound_s[part] < fastest_s]), job.cluster)
            if not len(every.tensor):
                break
            times_s = iteration(way, every).total
            first = int(np.argmin(times_s))
            if times_s[first] < fastest_s:
                fastest_s, found = times_s[first], (way, every.at(first))
    return evaluate(*found) if found else None


def _degrees(job: Job, wish: Wish) -> Strategy:
    """All degrees, of a job that has the same fields wherever they have no influence on these."""
    cluster = replace(_in_one_domain(job).cluster, hb=1.0, nic=1.0, kind=FabricKind.RAIL_ONLY)
    return within_one_domain(replace(job, cluster=cluster, **SAME), wish)


def _in_one_domain(job: Job) -> Job:
    """The job in one HB domain, at least twice as fast as the NICs.

    There no collective is slower: a direct all-to-all sends half of its data or more by NICs.
    """
    cluster = job.cluster
    hb = max(cluster.hb, 2 * cluster.nic)
    cluster = replace(cluster, domain_size=cluster.gpus, hb=hb, oversubscription=1.0)
    return replace(job, cluster=cluster)


def _least_that_fits(job: Job, degrees: Strategy, free: Sequence[Freedom], must_fit: bool) -> Bools:
    """Whether degrees fit, but not with less sharding, or none of the offload, which are faster."""

    def fit(**changes: Any) -> Bools:
        every = fits(replace(job, **changes), degrees)
        return every if must_fit else np.ones_like(every)

    least = fit()
    if job.sharding > 1 and Freedom.SHARDING in free:
        least &= ~fit(sharding=job.sharding - 1)
    if job.offload and Freedom.OFFLOAD in free:
        least &= ~fit(offload=False)
    return least
