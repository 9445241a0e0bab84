"""Simulation of the fluid model: all flows that change at the same moment change together.

Flows have max-min fair rates, and take tokens from the buckets of their links: a link limits them
once its bucket is empty.

Transfers that never share a link need no simulation: each has the rate of its slowest link from
beginning to end, and its times follow from those of its dependencies. All transfers whose
dependencies are done are computed together. Once two of them share a link, only the simulation is
right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from model.arrays import Bools, Floats, Ints, distinct
from model.prediction.network import (
    ALL,
    FIRST_LINK,
    LEAST_RATE,
    PADDING,
    SAME_SHARE,
    UNLIMITED,
    Network,
    PathClass,
    Terms,
    sums,
)
from model.routing.paths import Unreachable
from model.workload.transfers.columns import NONE, Transfers, starts_of

# Events closer than this are one event: rounding, a part of the time, must not separate those that
# are simultaneous. Where a nanosecond is much data, it is this part of a byte on the fastest link.
SAME_TIME_S, SAME_BYTES, SAME_PART = 1e-9, 0.05, 1e-12
# Of more flows than these, a part that nobody awaits ends as one event (docs/explanation/model.md).
ONE_BY_ONE, TOGETHER = 1024, 1 / 32
# What releases a transfer that waits for an earlier one.
ARRIVAL, CONFIRMATION, DEPARTURE, RENDEZVOUS = np.arange(4, dtype=np.int8)


def fair_rates(paths: Ints, rate: Floats, weight: Floats) -> Floats:
    """Return the weighted max-min fair rate of each flow.

    `paths` has a row of links for each flow, `rate` the rate of each link, `weight` the weight of
    each flow. All flows are raised evenly, in proportion to their weights; a link that is the
    tightest of all its flows freezes them at its fair share. Of transposed paths, numpy compares
    whole rows, in a tenth of the time.
    """
    rates = np.zeros(len(paths))
    spare, left = rate.copy(), np.arange(len(paths))
    while True:
        weights = sums(paths, weight, len(rate))
        share = np.divide(spare, weights, out=np.full(len(rate), np.inf), where=weights > 0)
        tightest = share.take(paths.T).min(axis=0)
        least = np.full(len(rate), np.inf)
        np.minimum.at(least, paths.ravel(), tightest.repeat(paths.shape[1]))
        saturated = share <= least * (1 + SAME_SHARE)
        frozen = saturated.take(paths.T).any(axis=0)
        rates[left[frozen]] = tightest[frozen] * weight[frozen]
        if frozen.all():
            return rates
        spare -= sums(paths[frozen], rates[left[frozen]], len(rate))
        left, paths, weight = left[~frozen], paths[~frozen], weight[~frozen]


def take_tokens(paths: Ints, sizes: Floats, tokens: Floats, unlimited: int) -> Floats:
    """Return the bytes of each flow that pass at once, and take their tokens, in this order.

    A flow passes as much as the emptiest bucket on its path has. Flows on links of their own, or
    with an empty bucket, need not wait for earlier flows. The first `unlimited` links are
    placeholders for no link.
    """
    passed = np.zeros(len(paths))
    left = np.flatnonzero(tokens.take(paths.T).min(axis=0) > 0)
    while len(left):
        links = paths[left]
        first = np.full(len(tokens), len(paths))
        np.minimum.at(first, links.ravel(), left.repeat(links.shape[1]))
        ready = ((first.take(links.T) == left) | (links < unlimited).T).all(axis=0)
        available = np.maximum(0.0, tokens.take(links.T).min(axis=0))
        ready |= available == 0
        passed[left[ready]] = np.minimum(sizes[left[ready]], available[ready])
        tokens -= sums(links[ready], passed[left[ready]], len(tokens))
        left = left[~ready]
    return passed


class Releases:
    """The transfers that wait for the end of each transfer, or for its rendezvous.

    A receiver learns of an arrival at once, another sender by the ready-to-receive message. The
    sender sends on when all bytes have left, a latency before; but by a confirmation when a window
    of transfers to the same peer is unconfirmed, and to another peer by TCP. It computes by a
    confirmation. Without `confirmations`, it goes on with the arrival.
    """

    def __init__(self, transfers: Transfers, pair: Ints, net: Network, terms: Terms) -> None:
        earlier, later, meets = transfers.dependencies
        self.missing = transfers.after.lengths + (transfers.ready != NONE)
        # There may be tens of millions.
        by = np.full(len(later), ARRIVAL)
        if terms.confirmations:
            to, lane = transfers.destination, transfers.lane
            other_connection = (to[earlier] != to[later]) | (lane[earlier] != lane[later])
            awaits = transfers.is_compute[later] | (net.window == 1)
            awaits |= ~net.by_roce[pair[earlier]] & other_connection
            by = np.where(awaits, CONFIRMATION, DEPARTURE)
            by[transfers.source[later] == to[earlier]] = ARRIVAL
            by[meets] = RENDEZVOUS
        if terms.confirmations and net.window > 1:
            first, last = _windows(transfers, net.window)
            self.missing += np.bincount(last, minlength=len(transfers))
            earlier, later = np.append(earlier, first), np.append(later, last)
            by = np.append(by, np.full(len(last), CONFIRMATION))
            order = np.argsort(earlier, kind="stable")
            earlier, later, by = earlier[order], later[order], by[order]
        self.earlier, self.later, self._by = earlier, later, by
        counts = np.bincount(earlier, minlength=len(transfers))
        self.are_awaited, self._starts = counts > 0, starts_of(counts)

    def later_s(self, places: Ints, latency_s: Floats) -> Floats:
        """Return the time from the arrival until each of these is released; negative before it.

        `latency_s` has each transfer's latency, as its confirmation and rendezvous have it.
        """
        by = self._by[places]
        if not by.any():
            return np.zeros(len(places))
        travels = np.where(by == RENDEZVOUS, self.later[places], self.earlier[places])
        travel_s = latency_s[travels]
        return np.select([by == ARRIVAL, by == DEPARTURE], [0.0, -travel_s], travel_s)

    def of(self, ended: Ints) -> Ints:
        """Return the indices into `later` that ended transfers release."""
        begins = self._starts[ended]
        counts = self._starts[ended + 1] - begins
        ends = np.cumsum(counts)
        places: Ints = np.arange(counts.sum()) + np.repeat(begins - ends + counts, counts)
        return places


def _windows(transfers: Transfers, window: int) -> tuple[Ints, Ints]:
    """Return the pairs of transfers on one connection that are a window apart."""
    sent = np.flatnonzero(~transfers.is_compute)
    ends = transfers.source[sent], transfers.destination[sent], transfers.lane[sent]
    connection = np.ravel_multi_index(ends, [end.max(initial=0) + 1 for end in ends])
    order = np.argsort(connection, kind="stable")
    first, last = order[:-window], order[window:]
    same = connection[first] == connection[last]
    return sent[first[same]], sent[last[same]]


def windowed(fabric: Sequence[Network], latency_s: Mapping[PathClass, float]) -> Sequence[Network]:
    """Return the states of a fabric with a link for the windows of each pair that sends by RoCE.

    A window passes at once, and again in each round trip, as through a token bucket. A round trip
    ends when as many packets have arrived as are acknowledged at once, and the answer is back. Of
    these, links that are idle between two windows pass a burst and a packet at once. Unchanged if
    no window is slower than the links on its path.
    """
    fabric_rates = [(net, _window_rates(net, latency_s)) for net in fabric]
    if not any((rates < net.slowest * (1 - SAME_SHARE)).any() for net, rates in fabric_rates):
        return fabric
    first = max(net.links for net in fabric)
    return [_with_windows(net, rates, first) for net, rates in fabric_rates]


def _window_bytes(net: Network) -> int:
    """Return the bytes of all windows of a pair that sends by RoCE."""
    return net.queue_pairs * net.roce.window * net.roce.frame_bytes


def _window_rates(net: Network, latency_s: Mapping[PathClass, float]) -> Floats:
    """Return the bytes/s that windows let through of each pair; no limit for those by TCP."""
    answered_bytes = net.roce.acknowledged_packets * net.roce.frame_bytes
    burst = net.burst[net.paths].min(axis=1)
    waiting_bytes = np.maximum(0.0, answered_bytes - burst - net.roce.frame_bytes * (burst > 0))
    waiting_s = waiting_bytes / np.maximum(LEAST_RATE, net.slowest)
    with np.errstate(divide="ignore"):
        rates = _window_bytes(net) / (2 * net.travel_s(latency_s) + waiting_s)
    return np.where(net.by_roce, np.minimum(rates, UNLIMITED), UNLIMITED)


def _with_windows(net: Network, rates: Floats, first: int) -> Network:
    """Add the links, numbered from `first` on; the last packet leaves on credit."""
    spare = np.full(first - net.links, UNLIMITED)
    burst = _window_bytes(net) - net.roce.frame_bytes
    windows = np.where(net.by_roce, first + np.arange(len(rates)), PADDING)
    return replace(
        net,
        paths=np.column_stack([net.paths, windows]),
        rate=np.concatenate([net.rate, spare, rates]),
        burst=np.concatenate([net.burst, spare, np.full(len(rates), float(burst))]),
    )


class Processors:
    """When each processor is free again, on which steps of compute take turns.

    `_came_s` is when a step was ready, not a number before.
    """

    def __init__(self, transfers: Transfers) -> None:
        self.compute_s = transfers.compute_ns / 1e9
        self._of = np.full(len(transfers), NONE)
        turns = np.flatnonzero(transfers.processor != NONE)
        places = transfers.source[turns], transfers.processor[turns]
        keys = np.ravel_multi_index(places, [place.max(initial=0) + 1 for place in places])
        processors, self._of[turns] = np.unique(keys, return_inverse=True)
        self._free_s, self._turn = np.zeros(len(processors)), transfers.turn
        self._came_s = np.full(len(transfers), np.nan)

    @property
    def least_s(self) -> float:
        """What the busiest processor needs for all of its steps."""
        turns = self._of != NONE
        return float(np.bincount(self._of[turns], self.compute_s[turns]).max(initial=0.0))

    def begins_s(self, steps: Ints, ready_s: Floats) -> Floats:
        """Return when these steps begin, or, if others are before them, may ask again."""
        begin_s = ready_s.copy()
        taking = np.flatnonzero(self._of[steps] != NONE)
        came_s = self._came_s[steps[taking]] = np.fmin(self._came_s[steps[taking]], ready_s[taking])
        taking = taking[np.lexsort((steps[taking], came_s, self._turn[steps[taking]]))]
        processors, first = np.unique(self._of[steps[taking]], return_index=True)
        is_free = self._free_s[processors] <= ready_s[taking[first]] + SAME_TIME_S
        begun = taking[first[is_free]]
        self._free_s[processors[is_free]] = ready_s[begun] + self.compute_s[steps[begun]]
        waiting = np.delete(taking, first[is_free])
        begin_s[waiting] = self._free_s[self._of[steps[waiting]]]
        return begin_s


class Simulation:
    """The state of the fluid model: flows, tokens of the buckets, and transfers to begin.

    `_flows` are the transfers under way. Each transfer has its bytes left and its rate in bytes/s;
    the last `_credit` bytes of those left leave without tokens.
    """

    def __init__(
        self,
        transfers: Transfers,
        pair: Ints,
        epochs: Sequence[Network],
        latency_s: Mapping[PathClass, float],
        terms: Terms = ALL,
        weight: Floats | None = None,
    ) -> None:
        self._pair, self._latency_of = pair, latency_s
        self._weight = np.ones(len(transfers)) if weight is None else weight
        framed = [terms.applied(epoch) for epoch in epochs]
        self._epochs = list(windowed(framed, latency_s) if terms.windows else framed)
        self._size = terms.size(transfers.size_bytes, pair, epochs[0])
        self._last = terms.last(transfers.size_bytes, pair, epochs[0])
        self._computes, self._processors = transfers.is_compute, Processors(transfers)
        self._releases = Releases(transfers, pair, epochs[0], terms)
        self._missing = self._releases.missing
        self._moment_s = np.zeros(len(transfers))
        self._waiting = np.flatnonzero(self._missing == 0)
        # Rendezvous released while their pair has no path: they begin once the pair has one.
        self._held = self._waiting[:0]
        self._now_s = 0.0
        # On paper, links have no buckets: no burst passes at once, and nothing leaves on credit.
        bursts = any(epoch.burst[FIRST_LINK:].any() for epoch in self._epochs)
        self._has_buckets = bursts or bool(self._last.any())
        # Buckets that no path has used yet have NaN tokens.
        self._tokens = np.full(max(epoch.links for epoch in self._epochs), np.nan)
        self._least_s = SAME_BYTES / float(epochs[0].rate[FIRST_LINK:].max(initial=LEAST_RATE))
        self._flows = self._waiting[:0]
        self._left, self._rate, self._credit = np.zeros((3, len(transfers)))
        self._enter(self._epochs.pop(0))
        # Bytes/s that flows take from each bucket.
        self._used = np.zeros(self._net.links)

    def run(self) -> Floats:
        """Run the simulation; return the arrival times of all transfers in seconds."""
        while len(self._waiting) or len(self._flows) or len(self._held):
            self._advance(self._next_moment())
            self._finish()
            while self._epochs and self._epochs[0].begin_s <= self._now_s + self._same_s:
                self._enter(self._epochs.pop(0))
            self._start()
            self._share()
        return self._moment_s

    @property
    def _same_s(self) -> float:
        """Seconds between events that are one."""
        return min(SAME_TIME_S, max(self._least_s, SAME_PART * self._now_s))

    def _enter(self, net: Network) -> None:
        """Put all pairs on their paths in this epoch; new buckets are full."""
        self._net = net
        self._latency_s = net.travel_s(self._latency_of)[self._pair]
        fresh = np.zeros(len(self._tokens), bool)
        fresh[net.paths] = True
        fresh &= np.isnan(self._tokens)
        self._tokens[fresh] = net.burst[fresh[: net.links]]
        self._paths = net.paths[self._pair[self._flows]]
        held, self._held = self._held, self._held[:0]
        self._release(held, np.full(len(held), self._now_s))

    def _next_moment(self) -> float:
        """Return when the next flow ends or begins, or a bucket changes."""
        moments = [
            self._now_s + self._until_end_s(),
            self._now_s + self._until_empty_s().min(initial=inf),
            self._moment_s[self._waiting].min(initial=inf),
            *(epoch.begin_s for epoch in self._epochs[:1]),
        ]
        if min(moments) == inf:
            stuck = sorted((*self._flows.tolist(), *self._releases.later[self._held].tolist()))
            raise Unreachable(f"transfers have no path: {stuck[:3]}")
        return max(self._now_s, float(min(moments)))

    def _until_end_s(self) -> float:
        """Return when the next flow ends; of many that nobody awaits, when a part has ended."""
        moving = self._flows[self._rate[self._flows] > 0]
        until_s = (self._left[moving] - self._credit[moving]) / self._rate[moving]
        part = int((len(moving) - ONE_BY_ONE) * TOGETHER)
        if self._has_buckets or part <= 0:
            return float(until_s.min(initial=inf))
        awaited_s = until_s[self._releases.are_awaited[moving]].min(initial=inf)
        return float(min(awaited_s, np.partition(until_s, part)[part]))

    def _until_empty_s(self) -> Floats:
        """Return when buckets of links in use run empty, or have paid their debts."""
        if not self._has_buckets:
            return np.zeros(0)
        net, used, tokens = self._net, self._used, self._tokens[: self._net.links]
        changing = np.abs(tokens) > net.rate * self._same_s
        changing &= (used > 0) & (tokens * np.sign(net.rate - used) < 0)
        until_s: Floats = tokens[changing] / (used - net.rate)[changing]
        return until_s

    def _advance(self, moment_s: float) -> None:
        elapsed_s, net, rate = moment_s - self._now_s, self._net, self._rate[self._flows]
        self._left[self._flows] -= rate * elapsed_s
        if self._has_buckets:
            tokens = self._tokens[: net.links]
            np.minimum(net.burst, tokens + (net.rate - self._used) * elapsed_s, out=tokens)
        else:
            self._fill_up(elapsed_s)
        self._now_s = moment_s

    def _are_over(self, flows: Ints) -> Bools:
        """Return which of these flows have ended before now."""
        are_over: Bools = self._left[flows] < -self._rate[flows] * self._same_s
        return are_over

    def _fill_up(self, elapsed_s: float) -> None:
        """Share what links have left idle since flows ended, in these seconds, among the others."""
        flows, net = self._flows, self._net
        over = self._are_over(flows)
        if over.any():
            passed = self._rate[flows] * elapsed_s + np.minimum(0.0, self._left[flows])
            idle = np.maximum(0.0, net.rate * elapsed_s - sums(self._paths, passed, net.links))
            others, paths = flows[~over], self._paths[~over]
            more = fair_rates(paths, idle, self._weight[others])
            self._left[others] -= more
            self._rate[others] += more / elapsed_s  # the mean, by which `_finish` finds an end

    def _finish(self) -> None:
        """End flows whose last byte has left, and release others.

        Buckets are in debt for what left on credit.
        """
        flows = self._flows
        ended = self._left[flows] - self._credit[flows] <= self._rate[flows] * self._same_s
        if not ended.any():
            return
        done, debts = flows[ended], np.maximum(0.0, self._left[flows[ended]])
        end_s = np.full(len(done), self._now_s)
        if self._has_buckets:
            self._tokens -= sums(self._paths[ended], debts, len(self._tokens))
        else:
            over = self._are_over(done)
            end_s[over] += self._left[done[over]] / self._rate[done[over]]
        self._flows, self._paths = flows[~ended], self._paths[~ended]
        self._end(done, end_s + self._latency_s[done])

    def _end(self, numbers: Ints, moments_s: Floats) -> None:
        """Let transfers or steps of compute end at these moments, and release others."""
        self._moment_s[numbers] = moments_s
        places = self._releases.of(numbers)
        self._release(places, self._moment_s[self._releases.earlier[places]])

    def _release(self, places: Ints, since_s: Floats) -> None:
        """Count one dependency of each as done; a transfer without any left is released."""
        later_s = self._releases.later_s(places, self._latency_s)
        if (stuck := np.isinf(later_s)).any():
            self._held = np.append(self._held, places[stuck])
            places, since_s, later_s = places[~stuck], since_s[~stuck], later_s[~stuck]
        later = self._releases.later[places]
        np.maximum.at(self._moment_s, later, since_s + later_s)
        np.subtract.at(self._missing, later, 1)
        self._waiting = np.append(self._waiting, distinct(later[self._missing[later] == 0]))

    def _start(self) -> None:
        """Start the flows that are due; first bytes use tokens."""
        self._wait_for_credit()
        moments_s = self._moment_s[self._waiting]
        due = moments_s <= self._now_s + self._same_s
        if not due.any():
            return
        numbers = self._waiting[due][np.lexsort((self._waiting[due], moments_s[due]))]
        self._waiting = self._waiting[~due]
        computes = self._computes[numbers]
        if computes.any():
            self._compute(numbers[computes])
            numbers = numbers[~computes]
        paths, sizes = self._net.paths[self._pair[numbers]], self._size[numbers]
        self._left[numbers] = sizes
        if self._has_buckets:
            self._left[numbers] -= take_tokens(paths, sizes, self._tokens, FIRST_LINK)
        self._flows = np.concatenate([self._flows, numbers])
        self._paths = np.concatenate([self._paths, paths])

    def _compute(self, steps: Ints) -> None:
        """Let steps of compute begin whose turn it is; others ask again.

        Nothing slows a step of compute: when its turn begins, its end is known.
        """
        begin_s = self._processors.begins_s(steps, self._moment_s[steps])
        has_turn = begin_s <= self._moment_s[steps]
        self._moment_s[steps] = begin_s
        self._waiting = np.append(self._waiting, steps[~has_turn])
        begun, begin_s = steps[has_turn], begin_s[has_turn]
        self._end(begun, begin_s + self._processors.compute_s[begun])

    def _wait_for_credit(self) -> None:
        """Let flows that are due begin when the idle links on their paths have paid their debts."""
        net, due = self._net, self._moment_s[self._waiting] <= self._now_s + self._same_s
        if not (self._has_buckets and due.any()):
            return
        numbers = self._waiting[due]
        is_paying = np.bincount(self._paths.ravel(), minlength=net.links) == 0
        is_paying &= net.rate > 0
        tokens = np.where(is_paying, self._tokens[: net.links], 0.0)
        debt_s = -tokens / np.maximum(net.rate, LEAST_RATE)
        wait_s = debt_s.take(net.paths[self._pair[numbers]].T).max(axis=0, initial=0.0)
        late = wait_s > self._same_s
        self._moment_s[numbers[late]] = self._now_s + wait_s[late]

    def _share(self) -> None:
        """Share the links among the flows, and the credit for their last segments.

        No bucket gives more credit than for one segment, less what it has given already; flows
        that share it share the credit.
        """
        flows, paths, net = self._flows, self._paths, self._net
        if not self._has_buckets:
            self._rate[flows] = fair_rates(paths, net.rate, self._weight[flows])
            return
        # A link passes more than its rate until its bucket is empty, and a broken one nothing.
        has_tokens = (self._tokens[: net.links] > net.rate * self._same_s) & (net.rate > 0)
        rate = np.where(has_tokens, UNLIMITED, net.rate)
        if has_tokens[FIRST_LINK:].any():
            # After an outage, buckets are full again, but TCP does not come back with a burst.
            resumed = paths[(rate.take(paths.T) == UNLIMITED).all(axis=0)]
            rate[resumed] = net.rate[resumed]
        self._rate[flows] = fair_rates(paths, rate, self._weight[flows])
        self._used = sums(paths, self._rate[flows], net.links)
        share = self._rate[flows] / np.maximum(self._bottlenecks(), LEAST_RATE)
        debt = np.minimum(0.0, self._tokens.take(paths.T).min(axis=0))
        self._credit[flows] = np.maximum(0.0, self._last[flows] + debt) * share

    def _bottlenecks(self) -> Floats:
        """Return the bytes/s of the fullest link that holds each flow up: none there has more.

        A flow that no link holds up has its own.
        """
        flows, paths, net = self._flows, self._paths, self._net
        is_full = self._used >= net.rate * (1 - SAME_SHARE)
        full = np.where(is_full, np.maximum(net.rate, self._used), 0.0)
        level = self._rate[flows] / self._weight[flows]
        most = np.zeros(net.links)
        np.maximum.at(most, paths.ravel(), level.repeat(paths.shape[1]))
        held_up = most.take(paths.T) <= level * (1 + SAME_SHARE)
        fullest: Floats = np.where(held_up, full.take(paths.T), 0.0).max(axis=0)
        return np.maximum(fullest, self._rate[flows])


class SharedLink(Exception):
    """Two transfers share a link, two steps of compute a processor, or a transfer has no path."""


def unshared_arrivals_s(
    transfers: Transfers,
    pair: Ints,
    net: Network,
    latency_s: Mapping[PathClass, float],
    terms: Terms = ALL,
) -> Floats:
    """Return the arrival times of all transfers in seconds; or raise `SharedLink`."""
    travel_s = net.travel_s(latency_s)[pair]
    if not (np.isfinite(travel_s) | transfers.is_compute).all():
        raise SharedLink
    sizes, last = (of(transfers.size_bytes, pair, net) for of in (terms.size, terms.last))
    framed, releases = terms.applied(net), Releases(transfers, pair, net, terms)
    if terms.windows:
        (framed,) = windowed([framed], latency_s)
    links = _Links(framed)
    computes, processors = transfers.is_compute, Processors(transfers)
    begin_s, arrival_s = np.zeros(len(transfers)), np.zeros(len(transfers))
    # The transfer that releases each one last.
    cause = np.full(len(transfers), NONE)
    # A row for each hop: numpy works on whole rows, and quickly only on contiguous ones.
    hops = np.ascontiguousarray(framed.paths.T)
    due = np.flatnonzero(releases.missing == 0)
    while len(due):
        sent, computed = due[~computes[due]], due[computes[due]]
        ways = hops.take(pair[sent], axis=1)
        links.begin(ways, begin_s[sent], sent, cause[sent])
        left_s = links.carry(ways, sizes[sent], last[sent], begin_s[sent])
        arrival_s[sent] = left_s + travel_s[sent]
        if (processors.begins_s(computed, begin_s[computed]) > begin_s[computed]).any():
            raise SharedLink
        arrival_s[computed] = begin_s[computed] + processors.compute_s[computed]
        places = releases.of(due)
        earlier, later = releases.earlier[places], releases.later[places]
        released_s = arrival_s[earlier] + releases.later_s(places, travel_s)
        np.maximum.at(begin_s, later, released_s)
        is_last = released_s == begin_s[later]
        cause[later[is_last]] = earlier[is_last]
        np.subtract.at(releases.missing, later, 1)
        due = distinct(later[releases.missing[later] == 0])
    return arrival_s


class _Links:
    """The links: when each is free again, and its bucket's tokens then; its last transfer."""

    def __init__(self, net: Network) -> None:
        self._net = net
        self._free_s, self._tokens = np.zeros(net.links), net.burst.copy()
        self._begun_s, self._latest = np.full(net.links, -inf), np.full(net.links, NONE)

    def begin(self, hops: Ints, begin_s: Floats, numbers: Ints, cause: Ints) -> None:
        """Begin transfers; raise `SharedLink` if a link has another one under way then.

        One that passes in no time, on tokens or on credit, is under way with others that begin at
        that moment, but for the one that it releases, its `cause`.
        """
        times = np.bincount(hops.ravel(), minlength=FIRST_LINK)
        times[PADDING] = 0
        is_busy = self._free_s.take(hops) > begin_s + SAME_TIME_S
        is_busy |= (self._begun_s.take(hops) > begin_s - SAME_TIME_S) & (
            self._latest.take(hops) != cause
        )
        if (times > 1).any() or is_busy.any():
            raise SharedLink
        self._begun_s[hops], self._latest[hops] = begin_s, numbers
        self._begun_s[PADDING] = -inf

    def carry(self, hops: Ints, sizes: Floats, last: Floats, begin_s: Floats) -> Floats:
        """Carry transfers, with a row of `hops` for each hop; return when their last bytes leave.

        The last segments leave on credit, and a transfer waits until its links are out of debt.
        """
        free_s = self._free_s.take(hops)
        rate, burst = self._net.rate.take(hops), self._net.burst.take(hops)
        tokens = np.minimum(burst, self._tokens.take(hops) + rate * (begin_s - free_s))
        wait_s = np.maximum(0.0, (-tokens / rate).max(axis=0))
        tokens = np.minimum(burst, tokens + rate * wait_s)
        # Each link passes its tokens at once, and the rest at its rate.
        seconds = np.maximum(0.0, (sizes - last - tokens) / rate).max(axis=0)
        tokens = tokens + rate * seconds
        passed = np.minimum(sizes, tokens.min(axis=0))
        self._tokens[hops] = np.minimum(burst, tokens - passed) - (sizes - passed)
        end_s: Floats = begin_s + wait_s + seconds
        self._free_s[hops] = end_s
        self._free_s[PADDING] = 0.0
        return end_s
