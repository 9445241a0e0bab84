"""Arrival times of transfers that never share a link, computed without simulation.

A transfer then has the rate of its slowest link from beginning to end, and its times follow from
those of its dependencies. All transfers whose dependencies are done are computed together. Once two
of them share a link, only the simulation is right.
"""

from collections.abc import Mapping

import numpy as np

from model.arrays import Floats, Ints
from model.prediction.network import PADDING, Network, PathClass
from model.prediction.simulation import SAME_TIME_S, Releases
from model.prediction.terms import ALL, Terms
from model.workload.transfers.columns import Transfers


class SharedLink(Exception):
    """Two transfers share a link, or one has no path."""


def unshared_arrivals_s(
    transfers: Transfers,
    pair: Ints,
    net: Network,
    latency_s: Mapping[PathClass, float],
    terms: Terms = ALL,
) -> Floats:
    """Return the arrival times of all transfers in seconds; or raise `SharedLink`."""
    has_path = np.array([bool(kind) for kind in net.classes])[net.class_of][pair]
    if not (has_path | transfers.is_compute).all():
        raise SharedLink
    latencies = np.array([latency_s[kind] if kind else 0.0 for kind in net.classes])
    travel_s = latencies[net.class_of][pair]
    releases, links = Releases(transfers), _Links(terms.applied(net))
    releases.travel(travel_s)
    sizes, last = terms.size(transfers.size_bytes), terms.last(transfers.size_bytes)
    computes, compute_s = transfers.is_compute, transfers.compute_ns / 1e9
    begin_s, arrival_s = np.zeros(len(transfers)), np.zeros(len(transfers))
    # A row for each hop: numpy works on whole rows, and quickly only on contiguous ones.
    hops = np.ascontiguousarray(net.paths.T)
    due = np.flatnonzero(releases.missing == 0)
    while len(due):
        sent, computed = due[~computes[due]], due[computes[due]]
        left_s = links.carry(hops.take(pair[sent], axis=1), sizes[sent], last[sent], begin_s[sent])
        arrival_s[sent] = left_s + travel_s[sent]
        arrival_s[computed] = begin_s[computed] + compute_s[computed]
        due = _release(releases, due, begin_s, arrival_s)
    return arrival_s


def _release(releases: Releases, done: Ints, begin_s: Floats, arrival_s: Floats) -> Ints:
    """Delay the dependents of these transfers until their release; return those that are ready."""
    places, earlier = releases.of(done)
    later = releases.later[places]
    np.maximum.at(begin_s, later, arrival_s[earlier] + releases.later_s(places))
    np.subtract.at(releases.missing, later, 1)
    due: Ints = np.sort(later[releases.missing[later] == 0])
    return _once(due)


def _once(ordered: Ints) -> Ints:
    """Leave out repetitions of sorted numbers: in half the time of `numpy.unique`, which hashes."""
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


class _Links:
    """The links: when each is free again, and the tokens that its bucket has then."""

    def __init__(self, net: Network) -> None:
        self._net = net
        self._free_s, self._tokens = np.zeros(net.links), net.burst.copy()

    def carry(self, hops: Ints, sizes: Floats, last: Floats, begin_s: Floats) -> Floats:
        """Carry transfers, with a row of `hops` for each hop; return when their last bytes leave.

        The last segments leave on credit, and a transfer waits until its links are out of debt.
        """
        if self._are_shared(hops, begin_s):
            raise SharedLink
        rate, burst = self._net.rate.take(hops), self._net.burst.take(hops)
        idle_s = begin_s - self._free_s.take(hops)
        tokens = np.minimum(burst, self._tokens.take(hops) + rate * idle_s)
        wait_s = np.maximum(0.0, (-tokens / rate).max(axis=0))
        tokens = np.minimum(burst, tokens + rate * wait_s)
        slowest = rate.min(axis=0)
        passed = np.minimum(sizes, np.maximum(0.0, tokens.min(axis=0)))
        seconds = np.maximum(0.0, sizes - passed - last) / slowest
        owed = sizes - passed - slowest * seconds
        regained = (rate - slowest) * seconds
        self._tokens[hops] = np.minimum(burst, tokens - passed + regained) - owed
        end_s: Floats = begin_s + wait_s + seconds
        self._free_s[hops] = end_s
        self._free_s[PADDING] = 0.0
        return end_s

    def _are_shared(self, hops: Ints, begin_s: Floats) -> bool:
        """Whether a link is in use when a transfer begins, or is on two of these paths."""
        times = np.bincount(hops.ravel(), minlength=self._net.links)
        times[PADDING] = 0
        return bool((times > 1).any() or (self._free_s.take(hops) > begin_s + SAME_TIME_S).any())
