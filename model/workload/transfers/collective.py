"""Collective operations: the chunks that every rank holds before, and must hold after."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from model.arrays import Ints
from model.workload.transfers.columns import Rows, starts_of


@dataclass(frozen=True, eq=False)
class Cells:
    """Chunks at ranks: chunk `chunks[i]` at rank `ranks[i]`, in order of ranks, then of chunks."""

    ranks: Ints
    chunks: Ints

    @classmethod
    def all_of(cls, ranks: int, chunks: Ints) -> "Cells":
        """Return these chunks at every rank."""
        return cls(np.repeat(np.arange(ranks), len(chunks)), np.tile(chunks, ranks))

    def placed(self, ranks: Ints, first_chunk: int) -> "Cells":
        """Return these cells at other ranks, in the same order, with other chunks."""
        return Cells(ranks[self.ranks], self.chunks + first_chunk)

    def at(self, rank: int) -> slice:
        """Return the places of the cells of a rank."""
        begin, end = np.searchsorted(self.ranks, (rank, rank + 1))
        return slice(int(begin), int(end))


@dataclass(frozen=True, eq=False)
class Demand:
    """Demand of a collective: the cells that are `held` before it, and those `wanted` after it.

    A rank holds its own contribution to a chunk before. A wanted cell must be the sum of all that
    were held of its chunk. `chunk_bytes` has the size of each chunk.
    """

    chunk_bytes: Ints
    held: Cells
    wanted: Cells

    @classmethod
    def joined(cls, parts: Sequence["Demand"], ranks: Sequence[Ints]) -> "Demand":
        """Join demands, each with its own ranks and its own chunks."""
        if len(parts) == 1 and (ranks[0] == np.arange(len(ranks[0]))).all():
            return parts[0]
        firsts = starts_of([len(part.chunk_bytes) for part in parts]).tolist()
        placed = list(zip(parts, ranks, firsts[:-1], strict=True))
        held = _in_order([part.held.placed(*place) for part, *place in placed])
        wanted = _in_order([part.wanted.placed(*place) for part, *place in placed])
        return cls(np.concatenate([part.chunk_bytes for part in parts]), held, wanted)

    def cut(self, sizes: Ints) -> "Demand":
        """Cut every chunk into parts; `sizes` has a row of theirs for each chunk."""
        parts = sizes.shape[1]
        held, wanted = (
            Cells(
                np.repeat(cells.ranks, parts),
                (cells.chunks[:, None] * parts + np.arange(parts)).ravel(),
            )
            for cells in (self.held, self.wanted)
        )
        return Demand(sizes.ravel(), held, wanted)

    @cached_property
    def holders(self) -> Rows:
        """The ranks that hold each chunk before the schedule."""
        return Rows.grouped(self.held.ranks, self.held.chunks, len(self.chunk_bytes))

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the demand's contents."""
        cells = (self.held.ranks, self.held.chunks, self.wanted.ranks, self.wanted.chunks)
        hashed = hashlib.sha256()
        for column in (*cells, self.chunk_bytes):
            hashed.update(np.ascontiguousarray(column).data)
        return hashed.hexdigest()[:16]


def _in_order(parts: Sequence[Cells]) -> Cells:
    """Return the cells of all parts, sorted."""
    ranks = np.concatenate([part.ranks for part in parts])
    chunks = np.concatenate([part.chunks for part in parts])
    # A stable sort takes no time if the cells are in order already.
    order = np.argsort(ranks * (1 + chunks.max(initial=0)) + chunks, kind="stable")
    return Cells(ranks[order], chunks[order])


class Collective(StrEnum):
    """Collective operations of the GPUs."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    SEND_RECV = "send-recv"

    @property
    def has_root(self) -> bool:
        """Whether one of the ranks, the root, has a part of its own."""
        rooted = {Collective.BROADCAST, Collective.REDUCE, Collective.GATHER, Collective.SCATTER}
        return self in rooted

    @property
    def reduces(self) -> bool:
        """Whether contributions of several ranks are summed."""
        return self in {Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE}

    @property
    def has_shards(self) -> bool:
        """Whether the data has a part for each rank, instead of being one buffer."""
        of_all = {Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL}
        return self in of_all | {Collective.GATHER, Collective.SCATTER}


# The rank that has the data of a Broadcast or Scatter, or receives those of a Reduce or Gather.
ROOT = 0


def demand_of(collective: Collective, gpus: int, chunk_bytes: Ints) -> Demand:
    """Return the demand of a collective of `gpus` ranks with chunks of these sizes.

    AllReduce, Broadcast and Reduce: one buffer, cut into any number of chunks. AllGather,
    ReduceScatter, Gather and Scatter: a shard for each rank, all cut into equally many chunks,
    which are numbered shard by shard.
    All-to-all: as many chunks for each pair of ranks, the pair `source * gpus + destination`; some
    may have no bytes. Send/Recv chain: data of each rank but the last for the next rank.
    """
    chunks = np.arange(len(chunk_bytes))
    shards = Cells(chunks * gpus // max(1, len(chunks)), chunks)
    at_root = Cells(np.full(len(chunks), ROOT), chunks)
    match collective:
        case Collective.ALL_REDUCE:
            held = wanted = Cells.all_of(gpus, chunks)
        case Collective.REDUCE_SCATTER:
            held, wanted = Cells.all_of(gpus, chunks), shards
        case Collective.ALL_GATHER:
            held, wanted = shards, Cells.all_of(gpus, chunks)
        case Collective.BROADCAST:
            held, wanted = at_root, Cells.all_of(gpus, chunks)
        case Collective.REDUCE:
            held, wanted = Cells.all_of(gpus, chunks), at_root
        case Collective.GATHER:
            held, wanted = shards, at_root
        case Collective.SCATTER:
            held, wanted = at_root, shards
        case Collective.ALL_TO_ALL:
            transposed = chunks.reshape(gpus, gpus, -1).swapaxes(0, 1).ravel()
            sent, received = chunk_bytes > 0, chunk_bytes[transposed] > 0
            held = Cells(shards.ranks[sent], chunks[sent])
            wanted = Cells(shards.ranks[received], transposed[received])
        case Collective.SEND_RECV:
            sent = shards.ranks < gpus - 1
            held = Cells(shards.ranks[sent], chunks[sent])
            wanted = Cells(held.ranks + 1, held.chunks)
    return Demand(chunk_bytes, held, wanted)
