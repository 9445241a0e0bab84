"""Versions of cells: the data that each transfer of a schedule reads, and the data it writes.

A cell is a chunk at a rank, numbered `rank * chunks + chunk`. A *move* is one chunk of one
transfer: it makes a version of the cell at its receiver. Versions held initially have the first
numbers, in the order of cells; then comes that of each move, so that the data of moves that happen
at about the same time lie together.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from model.arrays import Bools, Ints
from model.workload.transfers.columns import NONE, Transfers

# Stands for an event in no cell.
NOWHERE = np.iinfo(np.int64).max
# Events in a batch: a few times as many as a processor's cache holds.
BLOCK = 1 << 17


@dataclass(frozen=True)
class History:
    """All versions of all cells; `initial` has the cells that are held initially, in order.

    For each move, `before` has the version of its receiver's cell until then, and `reads` the
    version that it sends. `last` has the last version of each wanted cell. `NONE` is no version.
    """

    transfers: Transfers
    initial: Ints
    before: Ints
    reads: Ints
    last: Ints

    @cached_property
    def maker(self) -> Ints:
        """The transfer that made each version, `NONE` for an initial one."""
        return np.concatenate([np.full(len(self.initial), NONE), self.transfers.chunks.row])

    @cached_property
    def added(self) -> Bools:
        """Whether each move adds to the version before."""
        added: Bools = self.transfers.reduce[self.transfers.chunks.row] & (self.before != NONE)
        return added

    @property
    def repeated(self) -> Bools:
        """Whether the transfer of each move made the version before, too."""
        known = self.before != NONE
        same: Bools = known & (self.maker[self.before] == self.transfers.chunks.row)
        return same

    def needed(self) -> tuple[Ints, Ints]:
        """Pairs of a transfer and a delivery to its sender whose data it sends."""
        later, earlier = list[Ints](), list[Ints]()
        transfer, version = self.transfers.chunks.row, self.reads
        while len(version):
            delivered = version >= len(self.initial)
            transfer, version = transfer[delivered], version[delivered]
            later.append(transfer)
            earlier.append(self.maker[version])
            move = version - len(self.initial)
            has_more = self.added[move]
            transfer, version = transfer[has_more], self.before[move[has_more]]
        return np.concatenate(later), np.concatenate(earlier)


def history_of(transfers: Transfers, chunks: int, initial: Ints, wanted: Ints) -> History:
    """Follow every cell through the transfers, from the initial versions to the wanted cells.

    An event reads or writes a version of a cell. Initial versions are written before all moves;
    wanted cells are read after them.
    """
    known, made = len(initial), len(initial) + len(transfers.chunks.values)
    count = made + len(wanted)
    # A cell, a version, and whether it is read, in one number: numpy sorts plain numbers fastest.
    bits = (2 * count).bit_length()
    events = _events(transfers, chunks, initial, wanted) << bits
    # Views of the events: `+=` changes these.
    writes, reads = np.split(events, [made])
    writes += np.arange(0, 2 * made, 2)
    reads += np.arange(2 * known + 1, 2 * count, 2)
    events.sort()
    versions = _versions_before(events, bits, 2 * count)
    moved, asked = versions[2 * known : 2 * made], versions[2 * made :]
    return History(
        transfers, initial, moved[::2].copy(), moved[1::2].copy(), last=asked[1::2].copy()
    )


def _events(transfers: Transfers, chunks: int, initial: Ints, wanted: Ints) -> Ints:
    """Return the cells of all writes, in the order of versions, and of all reads."""
    moves = transfers.chunks
    written, read = (
        ranks[moves.row] * chunks + moves.values
        for ranks in (transfers.destination, transfers.source)
    )
    return np.concatenate([initial, written, read, wanted])


def _versions_before(events: Ints, bits: int, count: int) -> Ints:
    """Return the version that each event finds in its cell, `NONE` where there is none.

    `events` are sorted. The lowest `bits` of an event have its number, its row in the result: twice
    the version that it reads or writes, and one more for a read.
    """
    lowest = (1 << bits) - 1
    versions = np.full(count, NONE)
    written = NOWHERE
    for block in np.array_split(events, len(events) // BLOCK + 1):
        # The place of the last write before each event; that of the block before is at 0.
        place = np.arange(len(block) + 1)
        place[1:][(block & 1).astype(bool)] = 0
        np.maximum.accumulate(place, out=place)
        latest = np.append(written, block)[place]
        is_known = (latest[:-1] ^ block) <= lowest
        versions[block & lowest] = np.where(is_known, (latest[:-1] & lowest) >> 1, NONE)
        written = latest[-1]
    return versions
