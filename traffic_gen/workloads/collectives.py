"""Collectives on a grid of GPUs: every algorithm generates its transfers and dependencies.

The grid has `domains` x `domain_size` GPUs, with rank `domain * domain_size + rail`.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import prod

import numpy as np

from model.arrays import Ints
from model.prediction import closed_forms as closed
from model.workload.collective import Collective, demand_of
from model.workload.proof import ScheduleError
from model.workload.schedule import Schedule
from model.workload.transfers import Transfers
from traffic_gen.workloads.all_to_all import (
    direct_all_to_all,
    pairwise_all_to_all,
    two_step_all_to_all,
)
from traffic_gen.workloads.builder import Arrivals, Builder
from traffic_gen.workloads.chains import hierarchical_broadcast, ring_broadcast, send_recv_chain
from traffic_gen.workloads.reductions import (
    double_tree_all_reduce,
    halving_doubling_all_reduce,
    hierarchical_all_gather,
    hierarchical_all_reduce,
    hierarchical_reduce_scatter,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
)

# Into how many slices algorithms cut each chunk, unless a workload says so.
DEFAULT_SLICES, TREE_SLICES, MICROBATCHES = 4, 16, 8
ELEMENT_BYTES = 8  # `check_data` sends numbers of this size, so chunks are a multiple of it
Shape = tuple[int, int]
"""Domains, and GPUs in each."""


def _one_a_rank(shape: Shape) -> int:
    return prod(shape)


def _one_a_rail(shape: Shape) -> int:
    return shape[1]


def _one_for_each(_shape: Shape) -> int:
    return 1


@dataclass(frozen=True)
class Algorithm:
    """An algorithm of a collective: the function that builds its transfers, and its closed form.

    A pipelined one sends its chunks in slices; `slices` is their number unless a workload says so.
    `shards` is the number of chunks that the data of a rank are cut into. The function raises
    `ScheduleError` for a grid of GPUs that it cannot serve, before it sends.
    """

    build: Callable[[Builder], object]
    closed_form: closed.ClosedForm
    slices: int = 1
    shards: Callable[[Shape], int] = _one_a_rank

    @property
    def is_pipelined(self) -> bool:
        """Whether the number of slices is a parameter."""
        return self.slices > 1


def build_schedule(
    collective: Collective,
    algorithm: str,
    domains: int,
    domain_size: int,
    size_bytes: int,
    slices: int | None = None,
) -> Schedule:
    """Build and verify the schedule of a collective of about `size_bytes` on a grid of GPUs.

    `size_bytes` is as nccl-tests define it, rounded up to whole slices of whole elements. A
    pipelined algorithm sends each chunk in `slices`, by default as many as the algorithm says.
    """
    named, shape = (collective, algorithm), (domains, domain_size)
    gpus = prod(shape)
    sizes = _chunk_bytes(named, shape, size_bytes, slices)
    return Schedule(
        collective=collective,
        algorithm=algorithm,
        gpus=gpus,
        size_bytes=int(sizes[0]) * _parts(named, shape, slices),
        demand=demand_of(collective, gpus, sizes),
        transfers=build_transfers(*named, *shape, size_bytes, slices),
    )


def build_transfers(
    collective: Collective,
    algorithm: str,
    domains: int,
    domain_size: int,
    size_bytes: int,
    slices: int | None = None,
) -> Transfers:
    """Build the same transfers without verification.

    Raises `ScheduleError` if the algorithm refuses the grid, or sends nothing.
    """
    named, shape = (collective, algorithm), (domains, domain_size)
    sizes = _chunk_bytes(named, shape, size_bytes, slices)
    builder = Builder(*shape, sizes, slices_of(*named, slices))
    ALGORITHMS[named].build(builder)
    transfers = builder.transfers
    if not len(transfers):
        raise ScheduleError("no GPU sends anything")
    return transfers


def slices_of(collective: Collective, algorithm: str, asked: int | None = None) -> int:
    """Return into how many slices an algorithm cuts each chunk, if asked for so many."""
    found = ALGORITHMS[collective, algorithm]
    return found.slices if asked is None or not found.is_pipelined else asked


def require_accepted(
    collective: Collective, algorithm: str, domains: int, domain_size: int
) -> None:
    """Raise the algorithm's `ScheduleError` if it refuses a grid; cheap for a grid of any size."""
    with suppress(_Begun):
        ALGORITHMS[collective, algorithm].build(_Trial(domains, domain_size, np.empty(0, np.int64)))


class _Begun(Exception):
    """An algorithm sends, so it has accepted the grid."""


class _Trial(Builder):
    """A builder that ends at the first transfer, before its chunks are numbered."""

    def send(self, *_: object, **__: object) -> Arrivals:
        """End the trial."""
        raise _Begun

    def permute(self, *_: object, **__: object) -> Arrivals:
        """End the trial."""
        raise _Begun


def _parts(named: tuple[Collective, str], shape: Shape, slices: int | None) -> int:
    """Return into how many chunks, slices counted, the size of a collective is cut."""
    return ALGORITHMS[named].shards(shape) * slices_of(*named, slices)


def _chunk_bytes(
    named: tuple[Collective, str], shape: Shape, size_bytes: int, slices: int | None
) -> Ints:
    """Return the size of every chunk, in whole elements."""
    parts = _parts(named, shape, slices)
    each = -(-size_bytes // (parts * ELEMENT_BYTES)) * ELEMENT_BYTES
    each_has_its_own = named[0] in (Collective.ALL_TO_ALL, Collective.SEND_RECV)
    return np.full(parts * prod(shape) if each_has_its_own else parts, each)


ALGORITHMS: dict[tuple[Collective, str], Algorithm] = {
    (Collective.ALL_REDUCE, "ring"): Algorithm(ring_all_reduce, closed.Twice(closed.Ring())),
    (Collective.ALL_REDUCE, "hierarchical"): Algorithm(
        hierarchical_all_reduce, closed.Twice(closed.Hierarchical())
    ),
    (Collective.ALL_REDUCE, "halving-doubling"): Algorithm(
        halving_doubling_all_reduce, closed.Twice(closed.HalvingDoubling())
    ),
    (Collective.ALL_REDUCE, "double-binary-tree"): Algorithm(
        double_tree_all_reduce, closed.DoubleTree(), TREE_SLICES, _one_a_rail
    ),
    (Collective.ALL_GATHER, "ring"): Algorithm(ring_all_gather, closed.Ring()),
    (Collective.ALL_GATHER, "hierarchical"): Algorithm(
        hierarchical_all_gather, closed.Hierarchical()
    ),
    (Collective.REDUCE_SCATTER, "ring"): Algorithm(ring_reduce_scatter, closed.Ring()),
    (Collective.REDUCE_SCATTER, "hierarchical"): Algorithm(
        hierarchical_reduce_scatter, closed.Hierarchical()
    ),
    (Collective.ALL_TO_ALL, "direct"): Algorithm(direct_all_to_all, closed.Direct()),
    (Collective.ALL_TO_ALL, "pairwise"): Algorithm(pairwise_all_to_all, closed.Pairwise()),
    (Collective.ALL_TO_ALL, "two-step"): Algorithm(two_step_all_to_all, closed.TwoStep()),
    (Collective.ALL_TO_ALL, "two-step-pipelined"): Algorithm(
        two_step_all_to_all, closed.TwoStepPipelined(), DEFAULT_SLICES
    ),
    (Collective.BROADCAST, "ring"): Algorithm(ring_broadcast, closed.Chain()),
    (Collective.BROADCAST, "hierarchical"): Algorithm(
        hierarchical_broadcast, closed.HierarchicalBroadcast()
    ),
    (Collective.SEND_RECV, "chain"): Algorithm(
        send_recv_chain, closed.Stages(), MICROBATCHES, _one_for_each
    ),
}


def algorithms_of(collective: Collective) -> list[str]:
    """Return the names of the algorithms of a collective."""
    return [name for of, name in ALGORITHMS if of is collective]
