"""Collective operations: the chunks that every rank holds before, and must hold after."""

from enum import StrEnum

import numpy as np

from model.arrays import Ints
from model.workload.transfers.demand import EVERYONE, Cells, Demand


class Collective(StrEnum):
    """Collective operations of the GPUs."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    BROADCAST = "broadcast"
    SEND_RECV = "send-recv"

    @property
    def has_root(self) -> bool:
        """Whether one of the ranks, the root, has a part of its own."""
        match self:
            case Collective.BROADCAST:
                return True
            case (
                Collective.ALL_REDUCE
                | Collective.ALL_GATHER
                | Collective.REDUCE_SCATTER
                | Collective.ALL_TO_ALL
                | Collective.SEND_RECV
            ):
                return False

    @property
    def reduces(self) -> bool:
        """Whether contributions of several ranks are summed."""
        match self:
            case Collective.ALL_REDUCE | Collective.REDUCE_SCATTER:
                return True
            case (
                Collective.ALL_GATHER
                | Collective.ALL_TO_ALL
                | Collective.BROADCAST
                | Collective.SEND_RECV
            ):
                return False


def pair_chunk(gpus: int, source: Ints, destination: Ints) -> Ints:
    """The chunk of an all-to-all that `source` has for `destination`."""
    return source * gpus + destination


# The rank whose buffer a broadcast sends to all others.
ROOT = 0


def demand_of(collective: Collective, gpus: int, chunk_bytes: Ints) -> Demand:
    """Return the demand of a collective of `gpus` ranks with chunks of these sizes.

    AllReduce and Broadcast: one buffer, cut into any number of chunks. AllGather and ReduceScatter:
    a shard for each rank, all cut into equally many chunks, which are numbered shard by shard.
    All-to-all: as many chunks for each pair of ranks, numbered by `pair_chunk`; some may have no
    bytes. Send/Recv chain: data of each rank but the last for the next rank.
    """
    chunks = np.arange(len(chunk_bytes))
    shards = Cells(chunks * gpus // max(1, len(chunks)), chunks)
    match collective:
        case Collective.ALL_REDUCE:
            everywhere = Cells.all_of(gpus, chunks)
            return Demand(chunk_bytes, everywhere, everywhere, _everyone(everywhere))
        case Collective.REDUCE_SCATTER:
            return Demand(chunk_bytes, Cells.all_of(gpus, chunks), shards, _everyone(shards))
        case Collective.ALL_GATHER:
            everywhere = Cells.all_of(gpus, chunks)
            return Demand(chunk_bytes, shards, everywhere, shards.ranks[everywhere.chunks])
        case Collective.BROADCAST:
            root, everywhere = Cells(np.full(len(chunks), ROOT), chunks), Cells.all_of(gpus, chunks)
            return Demand(chunk_bytes, root, everywhere, np.full(len(everywhere.chunks), ROOT))
        case Collective.ALL_TO_ALL:
            transposed = chunks.reshape(gpus, gpus, -1).swapaxes(0, 1).ravel()
            sent, received = chunk_bytes > 0, chunk_bytes[transposed] > 0
            held = Cells(shards.ranks[sent], chunks[sent])
            wanted = Cells(shards.ranks[received], transposed[received])
            return Demand(chunk_bytes, held, wanted, shards.ranks[wanted.chunks])
        case Collective.SEND_RECV:
            sent = shards.ranks < gpus - 1
            held = Cells(shards.ranks[sent], chunks[sent])
            return Demand(chunk_bytes, held, Cells(held.ranks + 1, held.chunks), held.ranks)


def _everyone(cells: Cells) -> Ints:
    """For each cell: the sum of all contributions."""
    return np.full(len(cells.chunks), EVERYONE)
