"""Parallel strategies: degrees, and how much of each lies inside an HB domain."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from itertools import islice, product
from math import gcd
from typing import Any

import numpy as np

from model.errors import InputError, Problem
from model.training.job import Cluster, Job, Numbers


@dataclass(frozen=True)
class Strategy:
    """Tensor, pipeline and data parallel degrees, chunks of a stage, sequences of a microbatch.

    `data` ranks have the same weights. `context` of them share a sequence; the others have
    sequences of their own. Experts are spread over `expert` of a stage's tensor and data-parallel
    ranks. The `_inside` degrees are the parts within an HB domain.
    """

    tensor: Numbers
    pipeline: Numbers
    data: Numbers
    interleave: Numbers
    microbatch: Numbers
    tensor_inside: Numbers
    pipeline_inside: Numbers
    data_inside: Numbers
    expert: Numbers = 1
    context: Numbers = 1

    @property
    def in_domain(self) -> Numbers:
        """The job's GPUs in an HB domain: all of the domain, or the most that the degrees fill."""
        return self.tensor_inside * self.pipeline_inside * self.data_inside

    @property
    def replicas(self) -> Numbers:
        """Groups of ranks with sequences of their own."""
        return self.data // self.context

    @property
    def context_inside(self) -> Numbers:
        """Ranks in a domain that share a sequence."""
        return common(self.data_inside, self.context)

    @property
    def expert_inside(self) -> Numbers:
        """Ranks in a domain that share experts."""
        return common(self.tensor_inside * self.data_inside, self.expert)

    @property
    def copies(self) -> Numbers:
        """Ranks that have the same experts."""
        return self.tensor * self.data // self.expert

    @property
    def copies_inside(self) -> Numbers:
        """Ranks in a domain that have the same experts."""
        return self.tensor_inside * self.data_inside // self.expert_inside

    def take(self, which: Any) -> "Strategy":
        """Some strategies of many."""
        return Strategy(*(getattr(self, field.name)[which] for field in fields(self)))

    def at(self, index: int) -> "Strategy":
        """One strategy of many."""
        return Strategy(*map(int, vars(self.take(index)).values()))


@dataclass(frozen=True)
class Wish:
    """Constraints on the degrees of a strategy; `None` leaves a degree free."""

    tensor: int | None = None
    pipeline: int | None = None
    interleave: int | None = None
    microbatch: int | None = None
    expert: int | None = None
    context: int | None = 1


ANY = Wish()
# DeepSeek-V3 on 65 536 GPUs has 106 560, with those of its context.
MOST_DEGREES = 1_000_000


@cache
def divisors(number: int) -> tuple[int, ...]:
    """All divisors, from 1 upwards."""
    small = [divisor for divisor in range(1, int(number**0.5) + 1) if number % divisor == 0]
    return tuple(sorted({*small, *(number // divisor for divisor in small)}))


def common(one: Numbers, other: Numbers) -> Numbers:
    """The greatest common divisor."""
    return np.gcd(np.asarray(one, int), np.asarray(other, int))


def stage_layers(layers: int, pipeline: Numbers) -> Numbers:
    """The layers of the largest stage."""
    return -(-layers // pipeline)


def strategies(job: Job, wish: Wish = ANY) -> Strategy:
    """All strategies that a job can have, as arrays; empty if there is none."""
    return placed(within_one_domain(job, wish), job.cluster)


@lru_cache(maxsize=32)
def within_one_domain(job: Job, wish: Wish = ANY) -> Strategy:
    """All degrees that a job can have, as strategies in an HB domain of all GPUs.

    Raises `InputError` for more than memory holds.
    """
    rows = [
        (*degrees, *degrees[:3], *others)
        for *degrees, others in islice(_degrees(job, wish), MOST_DEGREES + 1)
    ]
    if len(rows) > MOST_DEGREES:
        what = f"can have more than {MOST_DEGREES} combinations of degrees"
        raise InputError(Problem("strategy", what, "give some of them, or other numbers"))
    table = np.array(rows, dtype=float).reshape(-1, len(fields(Strategy)))
    return Strategy(*table.T.copy())


def placed(whole: Strategy, cluster: Cluster) -> Strategy:
    """Strategies with every split of their degrees into parts inside and across HB domains."""
    used = used_of_domain(cluster.gpus, cluster.domain_size)
    keys = whole.tensor * (cluster.gpus + 1) + whole.pipeline
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    parts = [insides(one.tensor, one.pipeline, one.data, used) for one in map(whole.at, first)]
    sizes = np.array(list(map(len, parts)), dtype=int)
    of_row = sizes[group]
    rows = np.repeat(np.arange(len(group)), of_row)
    number = np.arange(len(rows)) - np.repeat(np.cumsum(of_row) - of_row, of_row)
    table = np.array([inside for part in parts for inside in part], dtype=float).reshape(-1, 3)
    columns = table[(np.cumsum(sizes) - sizes)[group[rows]] + number].T
    names = ("tensor_inside", "pipeline_inside", "data_inside")
    return replace(whole.take(rows), **dict(zip(names, columns, strict=True)))


def _degrees(job: Job, wish: Wish) -> Iterator[tuple[Any, ...]]:
    """Yield tensor, pipeline, data, interleave and microbatch, and a pair of expert and context.

    Stages may differ by a layer. Experts with tensor parallelism need sequence parallelism, as each
    tensor-parallel rank sends tokens of its own.
    """
    model = job.transformer
    with_tensor = model.experts is None or job.sequence_parallel
    for tensor in _choices(model.heads if with_tensor else 1, wish.tensor):
        if not model.shares_heads(tensor):
            continue
        for pipeline in _choices(job.cluster.gpus, wish.pipeline):
            data, rest = divmod(job.cluster.gpus, tensor * pipeline)
            if rest == 0 and data and pipeline <= model.layers:
                for others in _others(job, wish, tensor, data):
                    for schedule in _schedules(job, wish, pipeline, data // others[1]):
                        yield tensor, pipeline, data, *schedule, others


def _others(job: Job, wish: Wish, tensor: int, data: int) -> Iterator[tuple[int, int]]:
    """Yield the degrees of experts and context; ranks that share a sequence have equal parts."""
    model = job.transformer
    for expert in _choices(model.experts.count if model.experts else 1, wish.expert):
        for context in _choices(data, wish.context):
            is_whole = context == 1 and not job.sequence_parallel
            fits = is_whole or model.sequence % (tensor * context) == 0
            if tensor * data % expert == 0 and fits and job.batch % (data // context) == 0:
                yield expert, context


def _schedules(job: Job, wish: Wish, pipeline: int, replicas: int) -> Iterator[tuple[int, int]]:
    """Yield every interleaving and microbatch.

    Interleaving takes whole rounds of microbatches (MegatronLM, section 2.2).
    """
    sequences, stage = job.batch // replicas, stage_layers(job.transformer.layers, pipeline)
    for microbatch in _choices(sequences, wish.microbatch):
        for interleave in _choices(stage if pipeline > 1 else 1, wish.interleave):
            if interleave == 1 or (sequences // microbatch) % pipeline == 0:
                yield interleave, microbatch


def _choices(whole: int, wish: int | None) -> tuple[int, ...]:
    return tuple(one for one in divisors(whole) if wish in (None, one))


def used_of_domain(gpus: int, domain_size: int) -> int:
    """The GPUs of each domain that a job of `gpus` uses, so that its degrees divide them.

    Powers of two rarely divide a domain of 72 GPUs: 64 are then in use, and 8 idle. As many GPUs as
    tensor-parallel ranks, powers of two, can have in a domain stay together.
    """
    power = gcd(gpus, 2 ** (domain_size.bit_length() - 1))
    parts = (one for one in divisors(gpus) if one <= domain_size and one % power == 0)
    return max(gcd(gpus, domain_size), *parts)


@cache
def insides(
    tensor: int, pipeline: int, data: int, domain_size: int
) -> tuple[tuple[int, int, int], ...]:
    """Return the (tensor, pipeline, data) parts that fill an HB domain."""
    found = []
    for inner, stages in product(divisors(tensor), divisors(pipeline)):
        copies, rest = divmod(domain_size, inner * stages)
        if rest == 0 and data % copies == 0:
            found.append((inner, stages, copies))
    return tuple(found)
