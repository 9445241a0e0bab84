"""Order and times of transfers by their dependencies alone: which ends before another begins."""

from itertools import pairwise

import numpy as np

from model.arrays import Bools, Floats, Ints
from model.workload.transfers.columns import NONE, Transfers, occurrences

Pair = tuple[int, int]
# Pairs that are looked up at once: there may be millions.
AT_ONCE = 2**20


def first_unordered(transfers: Transfers, later: Ints, earlier: Ints) -> Pair | None:
    """Return the first pair of a transfer and an earlier one that it does not depend on, if any.

    All of `earlier` were delivered to the sender of `later`. Most often the transfer depends on
    the delivery directly, or one before it on the same chain does; other pairs are searched.
    """
    deliveries, unordered = None, list[Pair]()
    for begin in range(0, len(later), AT_ONCE):
        after, before = later[begin : begin + AT_ONCE], earlier[begin : begin + AT_ONCE]
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


def ends_s(transfers: Transfers, lasts_s: Floats) -> Floats:
    """Return the end of each step that lasts `lasts_s` and begins when its dependencies have ended.

    Seconds since the start. A rendezvous counts as a dependency.
    """
    levels, end_s = transfers.levels, np.empty(len(transfers))
    values, starts, ends = levels.waits.values, levels.waits.starts, lasts_s[levels.order]
    for first, end in pairwise(levels.bounds[1:].tolist()):
        begin, rows = starts[first], starts[first:end]
        ends[first:end] += np.maximum.reduceat(ends[values[begin : starts[end]]], rows - begin)
    end_s[levels.order] = ends
    return end_s


def begins_s(transfers: Transfers, end_s: Floats) -> Floats:
    """Return the earliest begin of each step: the end of its last dependency, or 0."""
    begin_s = np.zeros(len(transfers))
    np.maximum.at(begin_s, transfers.waits.row, end_s[transfers.waits.values])
    return begin_s


def longest_chain(transfers: Transfers) -> int:
    """Return the length of the longest chain of dependent steps."""
    return len(transfers.levels.bounds) - 1
