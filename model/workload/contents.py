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

    Set r has rank r alone, for all ranks; then come unions of two disjoint sets. `size` has the
    number of ranks in each set, `twice` the first move that adds a contribution that is already
    there, `NONE` if there is none.
    """

    def __init__(self, gpus: int, history: History, rank_of: Ints) -> None:
        self._history = history
        most = gpus + int(history.added.sum())
        self._bits = np.zeros((most, -(-gpus // WORD_BITS)), np.uint64)
        ranks = np.arange(gpus)
        self._bits[ranks, ranks // WORD_BITS] = np.uint64(1) << (ranks % WORD_BITS).astype("u8")
        self.size = np.ones(most, np.int64)
        self.count = gpus
        self.set_of = np.where(history.initial, rank_of, NONE)
        self.twice = NONE
        self._follow()

    def bits(self, number: int) -> int:
        """Return a set as an integer."""
        return int.from_bytes(self._bits[number].astype("<u8").tobytes(), "little")

    def _follow(self) -> None:
        """Compute the contents of all versions, many independent moves at a time."""
        history, added = self._history, self._history.added[self._history.makes]
        for begin, end in self._batches():
            moves = np.arange(begin, end)
            made = history.makes[moves]
            self.set_of[made] = self.set_of[history.reads[moves]]
            moves = moves[added[moves]]
            if len(moves) and not self._add(moves, history.makes[moves]):
                return

    def _batches(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of moves, none of which needs what another one of the same range makes."""
        history, moves = self._history, self._history.transfers.chunks
        needs = np.full(len(moves.lengths), NONE)
        np.maximum.at(needs, moves.row, history.maker[history.reads])
        added = history.added[history.makes]
        np.maximum.at(needs, moves.row[added], history.maker[history.makes[added] - 1])
        latest = np.maximum.accumulate(needs)
        begin = 0
        while begin < len(needs):
            end = int(np.searchsorted(latest, begin))
            yield int(moves.starts[begin]), int(moves.starts[end])
            begin = end

    def _add(self, moves: Ints, made: Ints) -> bool:
        """Add what these moves bring to the versions before; return whether that is possible."""
        pairs = self.set_of[made] * len(self._bits) + self.set_of[made - 1]
        distinct, which = np.unique(pairs, return_inverse=True)
        one, other = np.divmod(distinct, len(self._bits))
        common = np.any(self._bits[one] & self._bits[other], axis=1)
        if common.any():
            self.twice = int(moves[common[which]].min())
            return False
        new = self.count + np.arange(len(distinct))
        self._bits[new] = self._bits[one] | self._bits[other]
        self.size[new] = self.size[one] + self.size[other]
        self.count += len(new)
        self.set_of[made] = new[which]
        return True
