"""Proof that the transfers of a schedule meet its demand.

The transfers are executed symbolically. Shown for each transfer: it is well-formed; its sender
holds the chunks; in any order in which real transfers may run, the deliveries of these chunks come
before it; it adds no contribution twice. In the end, every rank holds what is wanted there.

A cell is a chunk at a rank, numbered `rank * chunks + chunk`. A *move* is one chunk of one
transfer: it makes a version of the cell at its receiver. Versions held initially have the first
numbers, in the order of cells; then comes that of each move, so that the data of moves that happen
at about the same time lie together. A version sums up the contributions of a set of ranks. A set is
stored as the union of two sets; a union of the same two sets is stored once.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

import numpy as np

from model.arrays import Bools, Ints
from model.workload.transfers.collective import Cells, Demand
from model.workload.transfers.columns import NONE, Transfers, occurrences

# A cell and a version must fit into one number, with two bits more.
NUMBER_BITS = 61
# Stands for an event in no cell.
NOWHERE = np.iinfo(np.int64).max
# Events in a batch: a few times as many as a processor's cache holds.
EVENTS_AT_ONCE = 1 << 17
# Pairs of transfers that are looked up at once: there may be millions.
PAIRS_AT_ONCE = 1 << 20
# Number of flags (sets times ranks) that are handled together.
FLAGS_AT_ONCE = 1 << 22

Pair = tuple[int, int]


class ScheduleError(ValueError):
    """Steps do not do what their collective or other workload asks; the message says why."""


def prove(gpus: int, demand: Demand, transfers: Transfers) -> None:
    """Raise `ScheduleError` unless the transfers of these ranks meet the demand."""
    _check_form(gpus, demand, transfers)
    check_dependencies(transfers)
    chunks = len(demand.chunk_bytes)
    initial, wanted = _cells(demand.held, chunks), _cells(demand.wanted, chunks)
    versions = len(initial) + len(transfers.chunks.values) + len(wanted)
    if (gpus * chunks).bit_length() + versions.bit_length() > NUMBER_BITS:
        raise ScheduleError(f"{chunks} chunks at {gpus} ranks exceed what can be proved")
    history = history_of(transfers, chunks, initial, wanted)
    _check_order(history)
    contents = Contents(gpus, history, demand.held.ranks)
    if contents.twice != NONE:
        _refuse_move(transfers, contents.twice, "chunk {} is added twice")
    _check_postcondition(demand, history.last, contents)


def _cells(cells: Cells, chunks: int) -> Ints:
    return cells.ranks * chunks + cells.chunks


def _refuse(transfer: int, what: str) -> NoReturn:
    raise ScheduleError(f"transfer {transfer}: {what}")


def _refuse_move(transfers: Transfers, move: int, what: str) -> NoReturn:
    _refuse(transfers.chunks.row[move], what.format(transfers.chunks.values[move]))


def _first(wrong: Bools) -> int:
    """Return the place of the first true value, `NONE` if there is none."""
    return int(wrong.argmax()) if wrong.any() else NONE


def _is_outside(gpus: int, transfers: Transfers) -> Bools:
    """Whether each transfer has an end that is not among the ranks."""
    wrong = (transfers.source < 0) | (transfers.source >= gpus)
    wrong |= (transfers.destination < 0) | (transfers.destination >= gpus)
    return wrong


def _check_form(gpus: int, demand: Demand, transfers: Transfers) -> None:
    """Raise `ScheduleError` unless each transfer is between two ranks, and carries whole chunks."""
    if (place := _first(_is_outside(gpus, transfers))) != NONE:
        _refuse(place, f"must be between GPUs 0 to {gpus - 1}")
    if (place := _first(transfers.source == transfers.destination)) != NONE:
        _refuse(place, f"GPU {transfers.source[place]} sends to itself")
    carried, known = transfers.chunks, len(demand.chunk_bytes)
    if (move := _first((carried.values < 0) | (carried.values >= known))) != NONE:
        _refuse_move(transfers, move, f"unknown chunk {{}}; known: 0 to {known - 1}")
    if (place := _first(transfers.size_bytes != carried.sums(demand.chunk_bytes))) != NONE:
        _refuse(place, f"{transfers.size_bytes[place]} bytes differ from the sum of its chunks")


def check_steps(gpus: int, transfers: Transfers) -> None:
    """Raise `ScheduleError` for ranks that do not exist, and for compute without a duration."""
    if (place := _first(_is_outside(gpus, transfers))) != NONE:
        raise ScheduleError(
            f"step {place}: source or destination is not a rank from 0 to {gpus - 1}"
        )
    computes = transfers.is_compute
    wrong = (computes != (transfers.compute_ns > 0)) | (computes != (transfers.size_bytes == 0))
    if (place := _first(wrong)) != NONE:
        raise ScheduleError(f"step {place}: is neither a transfer nor compute")


def check_dependencies(transfers: Transfers) -> None:
    """Raise `ScheduleError` for a dependency that is later, or whose end the sender cannot see."""
    source, destination, after = transfers.source, transfers.destination, transfers.after
    if (place := _first((after.values < 0) | (after.values >= after.row))) != NONE:
        what = f"depends on {after.values[place]}, which does not come before it"
        _refuse(after.row[place], what)
    sender = np.repeat(source, after.lengths)
    seen = sender == source[after.values]
    seen |= sender == destination[after.values]
    if (place := _first(~seen)) != NONE:
        _refuse(
            after.row[place], f"GPU {sender[place]} takes no part in transfer {after.values[place]}"
        )
    waits = np.flatnonzero(transfers.ready != NONE)
    ready = np.minimum(transfers.ready[waits], waits)
    wrong = (ready < 0) | (ready == waits) | (destination[ready] != destination[waits])
    if (place := _first(wrong)) != NONE:
        what = f"{transfers.ready[waits[place]]} does not make its destination ready-to-receive"
        _refuse(waits[place], what)


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
    moves = transfers.chunks
    known, made = len(initial), len(initial) + len(moves.values)
    count = made + len(wanted)
    # A cell, a version, and whether it is read, in one number: numpy sorts plain numbers fastest.
    bits = (2 * count).bit_length()
    written, read = (
        ranks[moves.row] * chunks + moves.values
        for ranks in (transfers.destination, transfers.source)
    )
    # All writes, in the order of versions, and all reads.
    events = np.concatenate([initial, written, read, wanted]) << bits
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


def _versions_before(events: Ints, bits: int, count: int) -> Ints:
    """Return the version that each event finds in its cell, `NONE` where there is none.

    `events` are sorted. The lowest `bits` of an event have its number, its row in the result: twice
    the version that it reads or writes, and one more for a read.
    """
    lowest = (1 << bits) - 1
    versions = np.full(count, NONE)
    written = NOWHERE
    for block in np.array_split(events, len(events) // EVENTS_AT_ONCE + 1):
        # The place of the last write before each event; that of the block before is at 0.
        place = np.arange(len(block) + 1)
        place[1:][(block & 1).astype(bool)] = 0
        np.maximum.accumulate(place, out=place)
        latest = np.append(written, block)[place]
        is_known = (latest[:-1] ^ block) <= lowest
        versions[block & lowest] = np.where(is_known, (latest[:-1] & lowest) >> 1, NONE)
        written = latest[-1]
    return versions


def _check_order(history: History) -> None:
    """Raise `ScheduleError` unless senders hold their data in any possible order of transfers."""
    if (move := _first(history.repeated)) != NONE:
        _refuse_move(history.transfers, move, "carries chunk {} twice")
    if (move := _first(history.reads == NONE)) != NONE:
        _refuse_move(history.transfers, move, "sender does not hold chunk {}")
    unordered = first_unordered(history.transfers, *history.needed())
    if unordered is not None:
        _refuse(unordered[0], f"does not wait for {unordered[1]}, whose data it sends")


def first_unordered(transfers: Transfers, later: Ints, earlier: Ints) -> Pair | None:
    """Return the first pair of a transfer and an earlier one that it does not depend on, if any.

    All of `earlier` were delivered to the sender of `later`. Most often the transfer depends on
    the delivery directly, or one before it on the same chain does; other pairs are searched.
    """
    deliveries, unordered = None, list[Pair]()
    for begin in range(0, len(later), PAIRS_AT_ONCE):
        after, before = later[begin : begin + PAIRS_AT_ONCE], earlier[begin : begin + PAIRS_AT_ONCE]
        direct = transfers.after.have(after, before)
        after, before = after[~direct], before[~direct]
        if not len(after):
            continue
        deliveries = deliveries or _Deliveries(transfers)
        known = deliveries.are_awaited(after, before)
        unordered += _searched(transfers, after[~known], before[~known])
    return min(unordered, default=None)


class _Deliveries:
    """What each transfer, or one before it on its chain, awaits of the deliveries to its sender.

    A chain: transfers of one sender, each of which depends on the one before. Of those that wait
    for a delivery, the first decides.
    """

    def __init__(self, transfers: Transfers) -> None:
        chain, self._place = _chains(transfers)
        # The number of each transfer's chain among those of its sender, from 0.
        heads, number = np.flatnonzero(chain == np.arange(len(chain))), np.zeros_like(chain)
        number[heads] = occurrences(transfers.source[heads])
        self._number = number[chain]
        after = transfers.after
        received = transfers.destination[after.values] == transfers.source[after.row]
        waiting, delivery = after.row[received], after.values[received]
        keys, places = self._keys(waiting, delivery), self._place[waiting]
        order = np.lexsort((places, keys))
        self._awaited, self._places = keys[order], places[order]

    def _keys(self, transfers: Ints, deliveries: Ints) -> Ints:
        return self._number[transfers] * len(self._number) + deliveries

    def are_awaited(self, later: Ints, earlier: Ints) -> Bools:
        """Whether each transfer's chain awaits the delivery, so far."""
        if not len(self._awaited):
            return np.zeros(len(later), bool)
        wanted = self._keys(later, earlier)
        first = np.minimum(np.searchsorted(self._awaited, wanted), len(self._awaited) - 1)
        are_awaited: Bools = self._awaited[first] == wanted
        are_awaited &= self._places[first] <= self._place[later]
        return are_awaited


def _chains(transfers: Transfers) -> tuple[Ints, Ints]:
    """The chain of each transfer, as the number of its first transfer, and its place in it."""
    after, numbers = transfers.after, np.arange(len(transfers))
    own = transfers.source[after.values] == transfers.source[after.row]
    before = np.full(len(transfers), NONE)
    np.maximum.at(before, after.row[own], after.values[own])
    next_ = np.full(len(transfers), NONE)
    next_[before[::-1]] = numbers[::-1]  # of several transfers, the first continues the chain
    goes_on = (before != NONE) & (next_[before] == numbers)
    chain, place = np.where(goes_on, before, numbers), goes_on.astype(np.int64)
    while (chain[chain] != chain).any():
        place, chain = place + place[chain], chain[chain]
    return chain, place


def _searched(transfers: Transfers, later: Ints, earlier: Ints) -> list[Pair]:
    """Return the pairs that no path of dependencies joins, by a search from each transfer."""
    wanted: dict[int, set[int]] = {}
    for transfer, delivery in zip(later.tolist(), earlier.tolist(), strict=True):
        wanted.setdefault(transfer, set()).add(delivery)
    return [
        (transfer, delivery)
        for transfer, deliveries in wanted.items()
        for delivery in deliveries - _ancestors(transfers, transfer, min(deliveries))
    ]


def _ancestors(transfers: Transfers, transfer: int, since: int) -> set[int]:
    """Return the transfers from number `since` on that a transfer depends on, directly or not."""
    waiting, seen = [transfer], {transfer}
    while waiting:
        after = transfers.after.at(waiting.pop()).tolist()
        new = {earlier for earlier in after if earlier >= since} - seen
        seen |= new
        waiting.extend(new)
    return seen


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
        for begin, end in self._batches():
            self._set_made[begin:end] = self.set_of[history.reads[begin:end]]
            moves = begin + np.flatnonzero(history.added[begin:end])
            if len(moves):
                self._add(moves)
        self.twice = self._first_overlap()

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
        for places in np.array_split(possible, len(possible) * self._gpus // FLAGS_AT_ONCE + 1):
            sets = numbers[places]
            overlaps[places] = self.members(sets).sum(axis=1) < self.size[sets]
        return overlaps

    def members(self, sets: Ints) -> Bools:
        """Whether each of these sets, a row each, has each rank."""
        has = np.zeros((len(sets), self._gpus), bool)
        row = np.arange(len(sets))
        while len(sets):
            alone = sets < self._gpus
            has[row[alone], sets[alone]] = True
            row, sets = np.tile(row[~alone], 2), self._parts[:, sets[~alone]].ravel()
        return has


def _check_postcondition(demand: Demand, last: Ints, contents: Contents) -> None:
    """Raise `ScheduleError` unless every rank holds the wanted contributions.

    `last` has the last version of each wanted cell. Contributions come from ranks that held the
    chunk before, each at most once: if there are as many as holders, none is missing.
    """
    chunks = demand.wanted.chunks
    final = np.where(last == NONE, NONE, contents.set_of[last])
    holders = np.bincount(demand.held.chunks, minlength=len(demand.chunk_bytes))
    right = (final != NONE) & (contents.size[final] == holders[chunks])
    if (place := _first(~right)) != NONE:
        sets = final[[place]][final[[place]] != NONE]
        held = np.flatnonzero(contents.members(sets).any(axis=0))
        lacks = np.setdiff1d(demand.holders.at(chunks[place]), held)
        more = f" and {len(lacks) - 1} more" if len(lacks) > 1 else ""
        raise ScheduleError(
            f"rank {demand.wanted.ranks[place]} ends with chunk {chunks[place]} without the "
            f"contribution of rank {lacks[0]}{more}"
        )
