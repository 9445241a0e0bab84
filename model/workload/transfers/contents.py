"""Contents of versions: sets of ranks, whose contributions a version sums up.

A set is stored as the union of two sets; a union of the same two sets is stored once.
"""

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from model.arrays import Bools, Ints
from model.workload.transfers.columns import NONE
from model.workload.transfers.versions import History

# Number of flags (sets times ranks) that are handled together.
BLOCK = 1 << 22


class Contents:
    """The contents of all versions: `set_of` has the number of each version's set.

    Set r has rank r alone, for all ranks; then come unions of two disjoint sets. `holder` has the
    rank of each cell that is held initially. `size` has the number of ranks in each set, `twice`
    the first move that adds a contribution that is already present, `NONE` if there is none.
    """

    def __init__(self, gpus: int, history: History, holder: Ints) -> None:
        self._gpus, self._history = gpus, history
        most = gpus + int(history.added.sum())
        # For each union: its two sets, and the first move that makes it.
        self._parts, self._move = np.empty((2, most), np.int64), np.empty(most, np.int64)
        self.size = np.empty(most, np.int64)
        self.size[:gpus] = 1
        self.set_of = np.concatenate([holder, np.empty(len(history.reads), np.int64)])
        self._set_made = self.set_of[len(holder) :]
        # The number of sets after each batch of independent moves.
        self._ends = [gpus]
        self._follow()
        self.twice = self._first_overlap()

    def bits(self, number: int) -> int:
        """Return a set as an integer, whose bit r is set for rank r."""
        mask, waiting = 0, [number]
        while waiting:
            number = waiting.pop()
            if number < self._gpus:
                mask |= 1 << number
            else:
                waiting.extend(self._parts[:, number].tolist())
        return mask

    def _follow(self) -> None:
        """Compute the sets of all versions, many independent moves at a time."""
        history = self._history
        for begin, end in self._batches():
            self._set_made[begin:end] = self.set_of[history.reads[begin:end]]
            moves = begin + np.flatnonzero(history.added[begin:end])
            if len(moves):
                self._add(moves)

    def _batches(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of moves that do not depend on each other."""
        history, transfers = self._history, self._history.transfers
        moves, needs = transfers.chunks, np.full(len(transfers), NONE)
        np.maximum.at(needs, moves.row, history.maker[history.reads])
        added = history.added
        np.maximum.at(needs, moves.row[added], history.maker[history.before[added]])
        latest = np.maximum.accumulate(needs)
        begin = 0
        while begin < len(needs):
            end = int(np.searchsorted(latest, begin))
            yield int(moves.starts[begin]), int(moves.starts[end])
            begin = end

    def _add(self, moves: Ints) -> None:
        """Unite the set of each of these moves with the set of the version before it."""
        before = self.set_of[self._history.before[moves]]
        pairs = self._set_made[moves] * len(self.size) + before
        distinct, first, which = np.unique(pairs, return_index=True, return_inverse=True)
        one, other = np.divmod(distinct, len(self.size))
        begin = self._ends[-1]
        new = slice(begin, begin + len(distinct))
        self._parts[:, new] = one, other
        self._move[new] = moves[first]
        self.size[new] = np.minimum(self.size[one] + self.size[other], self._gpus + 1)
        self._set_made[moves] = begin + which
        self._ends.append(new.stop)

    def _first_overlap(self) -> int:
        """Return the first move that unites sets with a rank in common, `NONE` if none does."""
        if not self._has_overlap(self._ends[-1]):
            return NONE
        last = bisect_left(self._ends, True, key=self._has_overlap)
        unions = np.arange(self._ends[last - 1], self._ends[last])
        return int(self._move[unions[self._overlap(unions)]].min())

    def _has_overlap(self, end: int) -> bool:
        """Whether a set below this number has a rank twice: sets within other sets need no look."""
        whole = np.ones(end, bool)
        whole[self._parts[:, self._gpus : end]] = False
        return bool(self._overlap(np.flatnonzero(whole)).any())

    def _overlap(self, numbers: Ints) -> Bools:
        """Whether each of these sets has a rank twice, in itself or in its parts."""
        overlaps = self.size[numbers] > self._gpus
        possible = np.flatnonzero(~overlaps)
        for places in np.array_split(possible, len(possible) * self._gpus // BLOCK + 1):
            sets = numbers[places]
            overlaps[places] = self._ranks_of(sets) < self.size[sets]
        return overlaps

    def _ranks_of(self, sets: Ints) -> Ints:
        """Return the number of different ranks in each set."""
        has = np.zeros((len(sets), self._gpus), bool)
        row = np.arange(len(sets))
        while len(sets):
            alone = sets < self._gpus
            has[row[alone], sets[alone]] = True
            row, sets = np.tile(row[~alone], 2), self._parts[:, sets[~alone]].ravel()
        ranks: Ints = has.sum(axis=1)
        return ranks
