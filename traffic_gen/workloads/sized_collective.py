"""A collective of a size on a grid of GPUs: all that it is asked for, and its steps at any scale.

The grid has `domains` x `domain_size` GPUs, with rank `domain * domain_size + rail`.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod

import numpy as np

from model.arrays import Ints
from model.job.communicators import EVERYONE, Asked, Communicator, Shape, communicators, label
from model.workload.schedule import Schedule
from model.workload.transfers.collective import Collective, demand_of
from model.workload.transfers.columns import Transfers
from model.workload.transfers.demand import Demand
from model.workload.transfers.proof import ScheduleError
from traffic_gen.workloads.algorithms.builder import Arrivals, Builder
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS, Algorithm, Named
from traffic_gen.workloads.algorithms.matrices import Given, Matrix

ELEMENT_BYTES = 8  # `check_data` sends numbers of this size, so chunks are a multiple of it
# A share of a size that is a whole number of elements, up to rounding, is not one more.
ROUNDING = 6
# A smaller grid can stand in for these communicators: they have the same form on every grid.
REGULAR = (EVERYONE, "rails", "domains")
Cut = tuple[Communicator, Ints]
"""A communicator, and the bytes of each chunk of its data."""


@dataclass(frozen=True)
class SizedCollective:
    """A collective with an algorithm on a grid of GPUs, and its real size.

    `size_bytes` is as nccl-tests define it. A pipelined algorithm sends each chunk in `slices`, by
    default as many as the algorithm says. An all-to-all may have a `matrix`. The ranks of a
    `communicator` alone take part.
    """

    collective: Collective
    algorithm: str
    shape: Shape
    size_bytes: float
    slices: int | None = None
    matrix: Matrix | None = None
    communicator: Asked = EVERYONE

    @property
    def named(self) -> Named:
        """The collective and its algorithm."""
        return self.collective, self.algorithm

    @property
    def name(self) -> str:
        """The names of collective, algorithm, matrix and communicators."""
        return "/".join(filter(None, (*self.named, self.variant)))

    @property
    def variant(self) -> str:
        """The names of the matrix and the communicators; empty for all pairs of all GPUs alike."""
        names = [] if self.matrix is None else [self.matrix.name]
        everyone = self.communicator == EVERYONE
        return "/".join(names + ([] if everyone else [label(self.communicator)]))

    @property
    def how(self) -> Algorithm:
        """The algorithm itself."""
        return ALGORITHMS[self.named]

    @property
    def chunk_slices(self) -> int:
        """The number of slices of each chunk: `slices`, if the algorithm is pipelined."""
        if self.slices is None or not self.how.is_pipelined:
            return self.how.slices
        return self.slices

    @property
    def phases(self) -> int:
        """The number of all-to-alls that follow one another."""
        return 1 if self.matrix is None else self.matrix.phases

    @property
    def groups(self) -> tuple[Communicator, ...]:
        """The communicators; raises `ValueError` if the grid does not have them."""
        return communicators(self.communicator, self.shape)

    @property
    def is_regular(self) -> bool:
        """Whether a closed form and a smaller grid describe it."""
        return self.matrix is None and self.communicator in REGULAR

    @property
    def largest_bytes(self) -> float:
        """The most real bytes that one transfer may have."""
        if isinstance(self.matrix, Given):
            return max(self.size_bytes, *map(max, self.matrix.rows))
        return self.size_bytes

    def scaled_bytes(self, size_scale: float = 1.0) -> int:
        """Return the size at a scale: whole bytes, at least 1."""
        return max(1, round(self.size_bytes / size_scale))

    def steps(self, size_scale: float = 1.0, time_dilation: float = 1.0) -> Schedule:
        """Build and prove the schedule; a collective does not compute, so it has no seconds.

        The size is rounded up to whole slices of whole elements.
        """
        del time_dilation
        cuts = self._cuts(size_scale)
        group, chunk_bytes = cuts[0]
        return Schedule(
            collective=self.collective,
            algorithm=self.algorithm,
            gpus=prod(self.shape),
            size_bytes=int(chunk_bytes.sum()) // self._owners(group),
            demand=self._demand(cuts),
            transfers=self._transfers(cuts),
            members=len(group.ranks),
            variant=self.variant,
        )

    def transfers(self, size_scale: float = 1.0) -> Transfers:
        """Build the same transfers without a proof.

        Raises `ScheduleError` if the algorithm refuses the grid, or sends nothing.
        """
        return self._transfers(self._cuts(size_scale))

    def require_accepted(self) -> None:
        """Raise `ScheduleError` if the algorithm refuses the grid; cheap for a grid of any size."""
        nothing = np.empty(0, np.int64)
        for shape in dict.fromkeys(group.shape for group in self.groups):
            with suppress(_Begun):
                self.how.build(_Trial(*shape, nothing))

    def _owners(self, group: Communicator) -> int:
        """Return how many ranks have data of their own, each of the size of the collective."""
        own = self.collective in (Collective.ALL_TO_ALL, Collective.SEND_RECV)
        return len(group.ranks) if own else 1

    def _cuts(self, size_scale: float) -> list[Cut]:
        size_bytes = self.scaled_bytes(size_scale)
        return [(group, self._chunk_bytes(group, size_bytes)) for group in self.groups]

    def _chunk_bytes(self, group: Communicator, size_bytes: int) -> Ints:
        """Cut the data of a communicator into chunks of whole elements."""
        slices = self.chunk_slices
        if self.matrix is not None:
            shares = self.matrix.shares(group.shape) * (size_bytes / (ELEMENT_BYTES * slices))
            elements = np.maximum(np.ceil(shares.round(ROUNDING)), shares > 0).astype(np.int64)
            return np.repeat(elements.ravel(), slices) * ELEMENT_BYTES
        shards = self.how.shards(group.shape) * slices
        each = -(-size_bytes // (shards * ELEMENT_BYTES)) * ELEMENT_BYTES
        return np.full(shards * self._owners(group), each)

    def _demand(self, cuts: Sequence[Cut]) -> Demand:
        """Return the joint demand of all communicators."""
        parts = [demand_of(self.collective, len(group.ranks), sizes) for group, sizes in cuts]
        return Demand.joined(parts, [np.array(group.ranks) for group, _ in cuts])

    def _transfers(self, cuts: Sequence[Cut]) -> Transfers:
        """Build the transfers of each communicator, independent of those of all others."""
        parts, first, first_chunk = list[Transfers](), 0, 0
        for group, chunk_bytes in cuts:
            builder = Builder(*group.shape, chunk_bytes, self.chunk_slices, self.phases)
            self.how.build(builder)
            ranks = np.array(group.ranks)
            moved = first or (ranks != builder.ranks).any()
            sent = builder.transfers
            parts.append(sent.placed(ranks, first, first_chunk) if moved else sent)
            first += len(parts[-1])
            first_chunk += len(chunk_bytes)
        if not first:
            raise ScheduleError("no GPU sends anything")
        return Transfers.joined(parts)


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
