"""Collectives on a grid of GPUs: every algorithm generates its transfers and dependencies.

The grid has `domains` x `domain_size` GPUs, with rank `domain * domain_size + rail`.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod

import numpy as np

from model.arrays import Ints
from model.job.communicators import (
    EVERYONE,
    Asked,
    Communicator,
    Shape,
    communicators,
    label,
)
from model.prediction import closed_forms as closed
from model.transfers.collective import Collective, demand_of
from model.transfers.columns import Transfers
from model.transfers.demand import Demand
from model.transfers.proof import ScheduleError
from model.workload.schedule import Schedule
from traffic_gen.workloads.algorithms.all_to_all import (
    direct_all_to_all,
    pairwise_all_to_all,
    spreading_all_to_all,
    two_step_all_to_all,
)
from traffic_gen.workloads.algorithms.builder import Arrivals, Builder
from traffic_gen.workloads.algorithms.chains import (
    hierarchical_broadcast,
    ring_broadcast,
    send_recv_chain,
)
from traffic_gen.workloads.algorithms.matrices import Matrix
from traffic_gen.workloads.algorithms.reductions import (
    double_tree_all_reduce,
    halving_doubling_all_reduce,
    hierarchical_all_gather,
    hierarchical_all_reduce,
    hierarchical_reduce_scatter,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
)

# Number of slices that algorithms cut each chunk into, unless a workload says otherwise.
DEFAULT_SLICES, TREE_SLICES, MICROBATCHES = 4, 16, 8
ELEMENT_BYTES = 8  # `check_data` sends numbers of this size, so chunks are a multiple of it
# A share of a size that is a whole number of elements, up to rounding, is not one more.
ROUNDING = 6
Named = tuple[Collective, str]
"""A collective, and the name of its algorithm."""


def _one_a_rank(shape: Shape) -> int:
    return prod(shape)


def _one_a_rail(shape: Shape) -> int:
    return shape[1]


def _one_for_each(_shape: Shape) -> int:
    return 1


@dataclass(frozen=True)
class Algorithm:
    """An algorithm of a collective: the function that builds its transfers, and its closed form.

    A pipelined algorithm sends its chunks in slices; `slices` is their number unless a workload
    says otherwise. `shards` is the number of chunks that the data of a rank are cut into. The
    function raises `ScheduleError` for a grid of GPUs that it cannot serve, before it sends.
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
    matrix: Matrix | None = None,
    communicator: Asked = EVERYONE,
) -> Schedule:
    """Build and prove the schedule of a collective of about `size_bytes` on a grid of GPUs.

    `size_bytes` is as nccl-tests define it, rounded up to whole slices of whole elements. A
    pipelined algorithm sends each chunk in `slices`, by default as many as the algorithm says. An
    all-to-all may have a `matrix`. The ranks of a `communicator` alone take part.
    """
    named, shape = (collective, algorithm), (domains, domain_size)
    groups = communicators(communicator, shape)
    cuts = [_cut(named, group.shape, size_bytes, slices, matrix) for group in groups]
    sizes = cuts[0].chunk_bytes
    return Schedule(
        collective=collective,
        algorithm=algorithm,
        gpus=prod(shape),
        size_bytes=int(sizes.sum()) // (len(groups[0].ranks) if _has_own_data(collective) else 1),
        demand=_demand(collective, groups, cuts),
        transfers=_transfers(named, groups, cuts),
        members=len(groups[0].ranks),
        variant=variant(matrix, communicator),
    )


def build_transfers(
    collective: Collective,
    algorithm: str,
    domains: int,
    domain_size: int,
    size_bytes: int,
    slices: int | None = None,
    matrix: Matrix | None = None,
    communicator: Asked = EVERYONE,
) -> Transfers:
    """Build the same transfers without a proof.

    Raises `ScheduleError` if the algorithm refuses the grid, or sends nothing.
    """
    named = collective, algorithm
    groups = communicators(communicator, (domains, domain_size))
    cuts = [_cut(named, group.shape, size_bytes, slices, matrix) for group in groups]
    return _transfers(named, groups, cuts)


def variant(matrix: Matrix | None, communicator: Asked) -> str:
    """Return the matrix of an all-to-all and the communicators as a part of the case's name."""
    names = [] if matrix is None else [matrix.name]
    return "/".join(names + ([] if communicator == EVERYONE else [label(communicator)]))


@dataclass(frozen=True, eq=False)
class _Cut:
    """The chunks of a collective among the GPUs of a communicator."""

    chunk_bytes: Ints
    slices: int
    phases: int


def _cut(
    named: Named, shape: Shape, size_bytes: int, slices: int | None, matrix: Matrix | None
) -> _Cut:
    """Cut the data of a collective into chunks of whole elements."""
    parts, ranks = slices_of(*named, slices), prod(shape)
    if matrix is not None:
        shares = matrix.shares(shape) * (size_bytes / (ELEMENT_BYTES * parts))
        elements = np.maximum(np.ceil(shares.round(ROUNDING)), shares > 0).astype(np.int64)
        sizes = np.repeat(elements.ravel(), parts) * ELEMENT_BYTES
        return _Cut(sizes, parts, matrix.phases)
    shards = ALGORITHMS[named].shards(shape) * parts
    each = -(-size_bytes // (shards * ELEMENT_BYTES)) * ELEMENT_BYTES
    return _Cut(np.full(shards * (ranks if _has_own_data(named[0]) else 1), each), parts, 1)


def _has_own_data(collective: Collective) -> bool:
    """Whether each rank has data of its own, of the size of the collective."""
    return collective in (Collective.ALL_TO_ALL, Collective.SEND_RECV)


def _demand(collective: Collective, groups: Sequence[Communicator], cuts: Sequence[_Cut]) -> Demand:
    """Return the joint demand of all communicators."""
    parts = [
        demand_of(collective, len(group.ranks), cut.chunk_bytes)
        for group, cut in zip(groups, cuts, strict=True)
    ]
    return Demand.joined(parts, [np.array(group.ranks) for group in groups])


def _transfers(named: Named, groups: Sequence[Communicator], cuts: Sequence[_Cut]) -> Transfers:
    """Build the transfers of each communicator, independent of those of all others."""
    parts, first, first_chunk = list[Transfers](), 0, 0
    for group, cut in zip(groups, cuts, strict=True):
        builder = Builder(*group.shape, cut.chunk_bytes, cut.slices, cut.phases)
        ALGORITHMS[named].build(builder)
        ranks = np.array(group.ranks)
        moved = first or (ranks != builder.ranks).any()
        sent = builder.transfers
        parts.append(sent.placed(ranks, first, first_chunk) if moved else sent)
        first += len(parts[-1])
        first_chunk += len(cut.chunk_bytes)
    if not first:
        raise ScheduleError("no GPU sends anything")
    return Transfers.joined(parts)


def slices_of(collective: Collective, algorithm: str, asked: int | None = None) -> int:
    """Return the number of slices of each chunk: `asked`, if the algorithm is pipelined."""
    found = ALGORITHMS[collective, algorithm]
    return found.slices if asked is None or not found.is_pipelined else asked


def require_accepted(
    collective: Collective,
    algorithm: str,
    domains: int,
    domain_size: int,
    communicator: Asked = EVERYONE,
) -> None:
    """Raise the algorithm's `ScheduleError` if it refuses a grid; cheap for a grid of any size."""
    nothing = np.empty(0, np.int64)
    shapes = (group.shape for group in communicators(communicator, (domains, domain_size)))
    for shape in dict.fromkeys(shapes):
        with suppress(_Begun):
            ALGORITHMS[collective, algorithm].build(_Trial(*shape, nothing))


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


ALGORITHMS: dict[Named, Algorithm] = {
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
    (Collective.ALL_TO_ALL, "spreading"): Algorithm(
        spreading_all_to_all, closed.TwoStepPipelined(), DEFAULT_SLICES
    ),
    (Collective.BROADCAST, "ring"): Algorithm(ring_broadcast, closed.Chain()),
    (Collective.BROADCAST, "hierarchical"): Algorithm(
        hierarchical_broadcast, closed.HierarchicalBroadcast()
    ),
    (Collective.SEND_RECV, "chain"): Algorithm(
        send_recv_chain, closed.Stages(), MICROBATCHES, _one_for_each
    ),
}
# The algorithms that are part of Railbed; plugins add others.
BUILT_IN = frozenset(ALGORITHMS)


def algorithms_of(collective: Collective) -> list[str]:
    """Return the names of the algorithms of a collective."""
    return [name for of, name in ALGORITHMS if of is collective]
