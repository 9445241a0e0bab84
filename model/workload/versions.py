"""Versions of cells: what every transfer of a schedule sends, and what it makes of what was there.

A cell is a chunk at a rank, numbered `rank * chunks + chunk`. Its first version is what the rank
holds initially; each delivery makes another one. Versions are numbered by cell, then by transfer.
A *move* is one chunk of one transfer.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from model.arrays import Bools, Ints
from model.workload.transfers import NONE, Transfers


@dataclass(frozen=True)
class History:
    """All versions of all cells: the cell of each, and the move that made it, `NONE` if initial.

    `reads` has the version that each move sends, `NONE` if its sender holds no such chunk.
    """

    transfers: Transfers
    cell: Ints
    made_by: Ints
    reads: Ints

    @property
    def initial(self) -> Bools:
        """Whether each version is held initially."""
        return np.equal(self.made_by, NONE)

    @cached_property
    def makes(self) -> Ints:
        """The version that each move makes."""
        made = np.empty(len(self.reads), np.int64)
        made[self.made_by[~self.initial]] = np.flatnonzero(~self.initial)
        return made

    @cached_property
    def maker(self) -> Ints:
        """The transfer that made each version, `NONE` for an initial one."""
        return np.where(self.initial, NONE, self.transfers.chunks.row[self.made_by])

    @cached_property
    def added(self) -> Bools:
        """Whether each version is the one before it with something added."""
        found: Bools = np.append(False, np.diff(self.cell) == 0) & ~self.initial
        found &= self.transfers.reduce[self.maker]
        return found

    @property
    def repeated(self) -> Bools:
        """Whether each version was made by the transfer that made the one before it."""
        same = (np.diff(self.cell) == 0) & (np.diff(self.maker) == 0)
        return np.append(False, same)

    def needed(self) -> tuple[Ints, Ints]:
        """Pairs of a transfer and a delivery to its sender whose data it sends."""
        numbers = np.arange(len(self.cell))
        since = np.maximum.accumulate(np.where(self.added, 0, numbers))
        first = (since + self.initial[since])[self.reads]
        counts = self.reads - first + 1
        places = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        deliveries = self.maker[np.repeat(first, counts) + places]
        return np.repeat(self.transfers.chunks.row, counts), deliveries

    def last_versions(self, cells: Ints) -> Ints:
        """The version of each cell in the end, `NONE` where nothing ever was."""
        last = np.searchsorted(self.cell, cells, side="right") - 1
        return np.where(self.cell[last] == cells, last, NONE)


def history_of(transfers: Transfers, chunks: int, initial: Ints) -> History:
    """Follow every cell through the transfers; `initial` has the cells that are held initially."""
    moves = transfers.chunks
    numbers = np.arange(len(moves.values))
    sent = transfers.source[moves.row] * chunks + moves.values
    received = transfers.destination[moves.row] * chunks + moves.values
    # Sort by cell, then by moves; whether a move reads is the lowest bit. All is in one number, as
    # numpy sorts plain numbers fastest. What is held initially comes before move 0.
    bits = (2 * len(numbers) + 2).bit_length()
    reads, writes = sent << bits | 2 * numbers + 3, received << bits | 2 * numbers + 2
    happens = np.concatenate([initial << bits, reads, writes])
    happens.sort()
    reading = np.bitwise_and(happens, 1, dtype=np.int64).astype(bool)
    latest = np.cumsum(~reading, dtype=np.int32)[reading] - 1
    versions, readers = happens[~reading], happens[reading]
    cell, lowest = versions >> bits, (1 << bits) - 1
    held = (latest >= 0) & (cell[latest] == readers >> bits)
    found = np.empty(len(numbers), np.int64)
    found[((readers & lowest) >> 1) - 1] = np.where(held, latest, NONE)
    return History(transfers, cell, ((versions & lowest) >> 1) - 1, found)
