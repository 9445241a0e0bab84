"""Transfers over the lanes of two GPUs: one lane for each pair by a hash, or a part on each lane.

A part is a transfer of its own, on a connection of its own, as with NCCL_IB_SPLIT_DATA_ON_QPS=1:
what waits for a transfer waits for all of its parts.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from model.arrays import Bools, Ints
from model.fabric.spec import FabricSpec, Spread
from model.routing.ecmp import flow_hash
from model.workload.transfers.collective import Demand
from model.workload.transfers.columns import NONE, Rows, Transfers, starts_of

# Chunks of whole elements have parts of whole elements.
ELEMENT_BYTES = 8


@dataclass(frozen=True, eq=False)
class Parts:
    """The number of parts of each transfer."""

    counts: Ints

    @cached_property
    def starts(self) -> Ints:
        """The first part of each transfer."""
        return starts_of(self.counts)

    @cached_property
    def whole(self) -> Ints:
        """The transfer of which each is a part."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def rows(self, rows: Rows) -> Rows:
        """Return rows of transfers with the parts of each transfer in its place."""
        each = Rows(np.arange(self.starts[-1]), self.starts).picked(rows.values)
        return Rows(each.values, each.starts[rows.starts])

    def pairs(self, later: Ints, earlier: Ints) -> tuple[Ints, Ints]:
        """Return each part of `later` with each part of `earlier`, pair by pair."""
        each = self.counts[later] * self.counts[earlier]
        pair = np.repeat(np.arange(len(later)), each)
        place = np.arange(len(pair)) - starts_of(each)[pair]
        of_later, of_earlier = np.divmod(place, self.counts[earlier[pair]])
        return self.starts[later[pair]] + of_later, self.starts[earlier[pair]] + of_earlier


@dataclass(frozen=True, eq=False)
class Lanes:
    """How transfers use `count` lanes between HB domains; `places` are the slots of the ranks.

    A row has their domains, another one their rails, by which flows are hashed.
    """

    count: int
    spread: Spread
    seed: int
    places: Ints

    @classmethod
    def of(cls, spec: FabricSpec) -> "Lanes":
        """Return the lanes between the ranks of a fabric."""
        return cls(spec.lanes, spec.nic.spread, spec.seed, spec.job_grid.places)

    def among(self, ranks: Ints) -> "Lanes":
        """Return the same between some of the ranks, numbered from 0."""
        return replace(self, places=self.places[:, ranks])

    def cut_demand(self, demand: Demand) -> Demand:
        """Cut every chunk into as many parts as there are lanes; by hash, transfers stay whole."""
        match self.spread:
            case Spread.HASH:
                return demand
            case Spread.QUEUE_PAIRS:
                return demand.cut(_shares(demand.chunk_bytes, self.count, ELEMENT_BYTES))

    def spread_out(
        self, transfers: Transfers, chunk_bytes: Ints | None = None
    ) -> tuple[Parts, Transfers]:
        """Spread transfers; `chunk_bytes` are the sizes of the parts of chunks, if there are any.

        A transfer that is too small for a part on each lane stays whole.
        """
        domain = self.places[0]
        crosses = domain[transfers.source] != domain[transfers.destination]
        if self.spread is Spread.HASH:
            lane = np.where(crosses, self._hashed(transfers), 0)
            return Parts(np.ones(len(transfers), np.int64)), replace(transfers, lane=lane)
        sizes = _shares(transfers.size_bytes, self.count)
        if chunk_bytes is not None:
            of_lanes = chunk_bytes.reshape(-1, self.count).T
            sizes = np.stack([transfers.chunks.sums(part) for part in of_lanes], axis=1)
        parts = Parts(np.where(crosses & (sizes > 0).all(axis=1), self.count, 1))
        return parts, _split(transfers, parts, sizes, chunk_bytes is not None)

    def _hashed(self, transfers: Transfers) -> Ints:
        ranks = self.places.shape[1]
        keys = transfers.source * ranks + transfers.destination
        pairs, which = np.unique(keys, return_inverse=True)
        slots = np.vstack([self.places[:, end] for end in np.divmod(pairs, ranks)])
        flows = [flow_hash(self.seed, *ends) for ends in slots.T.tolist()]
        return (np.array(flows, np.int64) % self.count)[which]


def spread(transfers: Transfers, spec: FabricSpec) -> Transfers:
    """Return transfers between the ranks of a fabric as it spreads them, without their chunks."""
    return Lanes.of(spec).spread_out(transfers)[1] if spec.lanes > 1 else transfers


def _shares(sizes: Ints, count: int, unit: int = 1) -> Ints:
    """Divide sizes nearly equally, in whole units; the last part has what is left of a unit."""
    units, rest = np.divmod(sizes, unit)
    # The larger parts of small sizes are dealt out.
    place = (np.arange(count) + np.arange(len(sizes))[:, None]) % count
    shares = (units[:, None] // count + (place < units[:, None] % count)) * unit
    shares[:, -1] += rest
    return shares


def _split(transfers: Transfers, parts: Parts, sizes: Ints, has_chunks: bool) -> Transfers:
    """Cut each transfer into its number of parts; `sizes` has a column for each lane."""
    whole, count = parts.whole, sizes.shape[1]
    lane, is_part = np.arange(len(whole)) - parts.starts[whole], parts.counts[whole] > 1
    later, earlier = parts.pairs(transfers.after.row, transfers.after.values)
    ready = transfers.ready[whole]
    # A rendezvous of a part is with the same part; that of a whole transfer, with the last part.
    met = parts.starts[ready] + np.minimum(np.where(is_part, lane, count), parts.counts[ready] - 1)
    none = Rows(np.empty(0, np.int64), np.zeros(len(whole) + 1, np.int64))
    return Transfers(
        source=transfers.source[whole],
        destination=transfers.destination[whole],
        size_bytes=np.where(is_part, sizes[whole, lane], transfers.size_bytes[whole]),
        chunks=_cut(transfers.chunks, whole, lane, is_part, count) if has_chunks else none,
        after=Rows.grouped(earlier, later, len(whole)),
        ready=np.where(ready == NONE, NONE, met),
        reduce=transfers.reduce[whole],
        compute_ns=transfers.compute_ns[whole],
        lane=lane,
        processor=transfers.processor[whole],
        turn=transfers.turn[whole],
    )


def _cut(chunks: Rows, whole: Ints, lane: Ints, is_part: Bools, count: int) -> Rows:
    """Return the parts of chunks that each part of a transfer carries: its own; if whole, all."""
    each = np.where(is_part, 1, count)
    lengths = chunks.lengths[whole] * each
    row = np.repeat(np.arange(len(whole)), lengths)
    chunk, part = np.divmod(np.arange(len(row)) - starts_of(lengths)[row], each[row])
    values = chunks.values[chunks.starts[whole[row]] + chunk] * count
    return Rows(values + np.where(is_part[row], lane[row], part), starts_of(lengths))
