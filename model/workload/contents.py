"""Contents of versions: sets of ranks, whose contributions a version sums up.

Equal sets that come about in the same way are stored once. Bit r of a set is set for rank r.
"""

from collections.abc import Iterator

import numpy as np

from model.arrays import Ints
from model.workload.transfers import NONE
from model.workload.versions import History

WORD_BITS = 64


class Contents:
    """The contents of all versions: `set_of` has the number of each version's set.

    Set r has rank r alone, for all ranks; then come unions of two disjoint sets. `holder` has the
    rank of each cell that is held initially. `size` has the number of ranks in each set, `twice`
    the first move that adds a contribution that is already there, `NONE` if there is none.
    """

    def __init__(self, gpus: int, history: History, holder: Ints) -> None:
        self._history = history
        most = gpus + int(history.added.sum())
        self._bits = np.zeros((most, -(-gpus // WORD_BITS)), np.uint64)
        ranks = np.arange(gpus)
        self._bits[ranks, ranks // WORD_BITS] = np.uint64(1) << (ranks % WORD_BITS).astype("u8")
        self.size = np.ones(most, np.int64)
        self.count = gpus
        self.set_of = np.concatenate([holder, np.empty(len(history.reads), np.int64)])
        self._set_made = self.set_of[len(holder) :]
        self.twice = NONE
        self._follow()

    def bits(self, number: int) -> int:
        """Return a set as an integer."""
        return int.from_bytes(self._bits[number].astype("<u8").tobytes(), "little")

    def _follow(self) -> None:
        """Compute the contents of all versions, many independent moves at a time."""
        history = self._history
        for begin, end in self._batches():
            self._set_made[begin:end] = self.set_of[history.reads[begin:end]]
            moves = begin + np.flatnonzero(history.added[begin:end])
            if len(moves) and not self._add(moves):
                return

    def _batches(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of moves, none of which needs what another one of the same range makes."""
        history, moves = self._history, self._history.transfers.chunks
        needs = np.full(len(moves.lengths), NONE)
        np.maximum.at(needs, moves.row, history.maker[history.reads])
        added = history.added
        np.maximum.at(needs, moves.row[added], history.maker[history.before[added]])
        latest = np.maximum.accumulate(needs)
        begin = 0
        while begin < len(needs):
            end = int(np.searchsorted(latest, begin))
            yield int(moves.starts[begin]), int(moves.starts[end])
            begin = end

    def _add(self, moves: Ints) -> bool:
        """Add what these moves bring to the versions before; return whether that is possible."""
        before = self.set_of[self._history.before[moves]]
        pairs = self._set_made[moves] * len(self._bits) + before
        distinct, which = np.unique(pairs, return_inverse=True)
        one, other = np.divmod(distinct, len(self._bits))
        ones, others = self._bits.take(one, axis=0), self._bits.take(other, axis=0)
        common = np.any(ones & others, axis=1)
        if common.any():
            self.twice = int(moves[common[which]].min())
            return False
        new = slice(self.count, self.count + len(distinct))
        self._bits[new] = ones | others
        self.size[new] = self.size[one] + self.size[other]
        self._set_made[moves] = self.count + which
        self.count += len(distinct)
        return True
