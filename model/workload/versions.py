"""Versions of cells: what every transfer of a schedule sends, and what it makes of what was there.

A cell is a chunk at a rank, numbered `rank * chunks + chunk`. A *move* is one chunk of one
transfer: it makes a version of the cell at its receiver. Versions held initially have the first
numbers, in the order of cells; then comes that of each move, so that the data of moves that happen
at about the same time lie together.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from model.arrays import Bools, Ints
from model.workload.transfers import NONE, Transfers


@dataclass(frozen=True)
class History:
    """All versions of all cells; `initial` has the cells that are held initially, in order.

    For each move, `before` has the version of its receiver's cell until then, and `reads` the
    version that it sends: `NONE` where there is none. `last` has the last version of `cells`.
    """

    transfers: Transfers
    initial: Ints
    before: Ints
    reads: Ints
    cells: Ints
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

    def last_versions(self, cells: Ints) -> Ints:
        """The version of each cell in the end, `NONE` where nothing ever was."""
        places = np.minimum(np.searchsorted(self.cells, cells), len(self.cells) - 1)
        return np.where(self.cells[places] == cells, self.last[places], NONE)


def history_of(transfers: Transfers, chunks: int, initial: Ints) -> History:
    """Follow every cell through the transfers; `initial` has the cells that are held initially."""
    moves = transfers.chunks
    count = len(moves.values)
    # Sort by cell, then by moves; whether a move reads is the lowest bit. All is in one number, as
    # numpy sorts plain numbers fastest. What is held initially comes before move 0.
    bits = (2 * count + 2).bit_length()
    happens = np.concatenate([initial, np.empty(2 * count, np.int64)])
    known, sent, received = np.split(happens, (len(initial), len(initial) + count))
    known <<= bits
    moments = 2 * np.arange(count) + 2
    for events, ranks, reads in ((sent, transfers.source, 1), (received, transfers.destination, 0)):
        np.multiply(ranks[moves.row], chunks, out=events)
        events += moves.values
        events <<= bits
        events += moments + reads
    happens.sort()
    reading = (happens.astype(np.uint8) & 1).astype(bool)
    return _versions(transfers, initial, happens[~reading], happens[reading], reading, bits)


def _versions(
    transfers: Transfers, initial: Ints, writes: Ints, reads: Ints, reading: Bools, bits: int
) -> History:
    """Number the versions that these events, in order, write and read."""
    lowest = (1 << bits) - 1
    cell, moment = writes >> bits, (writes & lowest) >> 1
    made = moment > 0
    version = np.where(made, moment - 1 + len(initial), np.cumsum(~made) - 1)
    goes_on = np.append(cell[1:] == cell[:-1], False)
    before, found = np.empty((2, len(reads)), np.int64)
    earlier = np.append(NONE, np.where(goes_on, version, NONE)[:-1])
    before[moment[made] - 1] = earlier[made]
    latest = np.cumsum(~reading, dtype=np.int32)[reading] - 1
    is_held = (latest >= 0) & (cell[latest] == reads >> bits)
    found[((reads & lowest) >> 1) - 1] = np.where(is_held, version[latest], NONE)
    return History(transfers, initial, before, found, cell[~goes_on], version[~goes_on])
