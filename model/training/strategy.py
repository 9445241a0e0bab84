"""Parallel strategies: degrees, and how much of each lies inside an HB domain."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np

from model.training.job import Job

# One number, or one for each strategy.
Numbers = Any


@dataclass(frozen=True)
class Strategy:
    """Tensor, pipeline and data parallel degrees, chunks of a stage, sequences of a microbatch.

    The `_inside` degrees are the parts within an HB domain.
    """

    tensor: Numbers
    pipeline: Numbers
    data: Numbers
    interleave: Numbers
    microbatch: Numbers
    tensor_inside: Numbers
    pipeline_inside: Numbers
    data_inside: Numbers

    @property
    def in_domain(self) -> Numbers:
        """The job's GPUs in an HB domain: all of the domain, or the most that the degrees fill."""
        return self.tensor_inside * self.pipeline_inside * self.data_inside

    def at(self, index: int) -> "Strategy":
        """One strategy of many."""
        return Strategy(*(int(getattr(self, field.name)[index]) for field in fields(self)))


@dataclass(frozen=True)
class Wish:
    """Constraints on the degrees of a strategy; `None` leaves a degree free."""

    tensor: int | None = None
    pipeline: int | None = None
    interleave: int | None = None
    microbatch: int | None = None


ANY = Wish()


@cache
def divisors(number: int) -> tuple[int, ...]:
    """All divisors, from 1 upwards."""
    small = [divisor for divisor in range(1, int(number**0.5) + 1) if number % divisor == 0]
    return tuple(sorted({*small, *(number // divisor for divisor in small)}))


def strategies(job: Job, wish: Wish = ANY) -> Strategy:
    """All strategies that a job can have, as arrays; empty if there is none."""
    rows = [row for degrees in _degrees(job, wish) for row in _placed(job, *degrees)]
    table = np.array(rows, dtype=float).reshape(-1, len(fields(Strategy)))
    return Strategy(*table.T)


def _degrees(job: Job, wish: Wish) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield the divisors that tensor, pipeline, data, interleave and microbatch can have.

    Experts are spread over data-parallel ranks.
    """
    ranks = job.transformer.experts.parallel if job.transformer.experts else 1
    for tensor in _choices(job.transformer.heads, wish.tensor):
        for pipeline in _choices(job.transformer.layers, wish.pipeline):
            data, rest = divmod(job.cluster.gpus, tensor * pipeline)
            if rest == 0 and data and job.batch % data == 0 and data % ranks == 0:
                yield from _schedules(job, wish, tensor, pipeline, data)


def _schedules(
    job: Job, wish: Wish, tensor: int, pipeline: int, data: int
) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield the degrees with every microbatch and interleaving.

    Interleaving takes whole rounds of microbatches (MegatronLM, section 2.2).
    """
    sequences, stage = job.batch // data, job.transformer.layers // pipeline
    for microbatch in _choices(sequences, wish.microbatch):
        for interleave in _choices(stage if pipeline > 1 else 1, wish.interleave):
            if interleave == 1 or (sequences // microbatch) % pipeline == 0:
                yield tensor, pipeline, data, interleave, microbatch


def _choices(whole: int, wish: int | None) -> tuple[int, ...]:
    return tuple(one for one in divisors(whole) if wish in (None, one))


def _placed(job: Job, *degrees: int) -> Iterator[tuple[int, ...]]:
    for inside in insides(*degrees[:3], job.cluster.domain_size):
        yield (*degrees, *inside)


@cache
def insides(
    tensor: int, pipeline: int, data: int, domain_size: int
) -> tuple[tuple[int, int, int], ...]:
    """Return the (tensor, pipeline, data) parts that fill the most GPUs of an HB domain."""
    triples = [
        (inner, stages, copies)
        for inner in divisors(tensor)
        if domain_size % inner == 0
        for stages in divisors(pipeline)
        if domain_size % (inner * stages) == 0
        for copies in divisors(data)
        if domain_size % (inner * stages * copies) == 0
    ]
    most = max(inner * stages * copies for inner, stages, copies in triples)
    return tuple(one for one in triples if one[0] * one[1] * one[2] == most)
