"""Load of an execution on each kind of hop: bytes over time, and packets computed from them.

Computed from when each transfer is active and which hops it crosses. Times are those of a
prediction, or, much cheaper, those of flows that never share a link. The latter are never slower
than real flows, so they give an upper bound for the busiest second.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import exp, log
from typing import Any

import numpy as np

from model.arrays import Floats
from model.fabric.shaping import wire_bytes
from model.fabric.topology import Hop, Topology
from model.prediction.machine import HopKind
from model.workload.transfers import Transfer

SLICES = 400
# The least completion time: bursts take no time in the model, but a rate needs some.
SHORTEST_S = 1e-6
# Mean packet size in bytes, acknowledgements included, by the rate of the flow in bit/s. From
# packet counters of collectives, the smallest that were seen; the first is an assumption
# (docs/explanation/measuring.md). TCP hands down about a millisecond's worth at once, from two
# packets to 64 KiB (tcp_tso_autosize in net/ipv4/tcp_output.c).
PACKETS = ((5e6, 3_200.0), (20e6, 12_500.0), (180e6, 30_000.0))

Span = tuple[float, float]
Path = Sequence[Hop] | None
# One number, or an array with one for each of several loads.
Number = Any


@dataclass(frozen=True)
class Load:
    """Packets and bytes per second by kind of hop, and transfers per second."""

    packets: Mapping[HopKind, Number]
    size_bytes: Mapping[HopKind, Number]
    transfers: Number


@dataclass(frozen=True)
class Profile:
    """Bytes that each kind of hop carries over an execution, in slices of equal length.

    `size_bytes` is keyed by kind of hop and rate of the flow in bit/s, as packets are larger at
    higher rates. `steps` is the length of the longest chain of dependent transfers. An `exact`
    profile has the times of a prediction.
    """

    completion_s: float
    size_bytes: Mapping[tuple[HopKind, float], tuple[float, ...]]
    transfers: tuple[float, ...]
    steps: int
    exact: bool

    def scaled(self, bandwidth_scale: float, size_scale: float) -> "Profile":
        """The same execution on slower links, with less data."""
        return replace(
            self,
            completion_s=self.completion_s * bandwidth_scale / size_scale,
            size_bytes={
                (kind, rate_bps / bandwidth_scale): tuple(part / size_scale for part in parts)
                for (kind, rate_bps), parts in self.size_bytes.items()
            },
        )

    def busiest(self, window_s: float, weight: Callable[[Load], Number]) -> Load:
        """The heaviest `window_s` of the execution, as a load per second.

        `weight` is of all windows at once: the numbers of the load that it takes are arrays.
        """
        width = max(1, min(SLICES, round(window_s / self.completion_s * SLICES)))
        loads = self._loads(width)
        heaviest = int(np.argmax(weight(loads)))
        return Load(
            {kind: float(found[heaviest]) for kind, found in loads.packets.items()},
            {kind: float(found[heaviest]) for kind, found in loads.size_bytes.items()},
            float(loads.transfers[heaviest]),
        )

    def _loads(self, width: int) -> Load:
        """The loads of all windows of `width` slices, as arrays."""
        seconds = width * self.completion_s / SLICES
        packets = {kind: np.zeros(SLICES - width + 1) for kind in HopKind}
        size_bytes = {kind: np.zeros(SLICES - width + 1) for kind in HopKind}
        for (kind, rate_bps), parts in self.size_bytes.items():
            rates = _window_sums(parts, width) / seconds
            size_bytes[kind] += rates
            packets[kind] += rates / packet_bytes(rate_bps)
        return Load(packets, size_bytes, _window_sums(self.transfers, width) / seconds)


def _window_sums(parts: Sequence[float], width: int) -> Floats:
    """The sums of all `width` parts that follow one another."""
    totals: Floats = np.append(0.0, np.cumsum(parts))
    return np.subtract(totals[width:], totals[:-width])


def profile(
    transfers: Sequence[Transfer],
    paths: Sequence[Path],
    topology: Topology,
    arrival_s: Sequence[float] | None = None,
) -> Profile:
    """The profile of an execution; without `arrival_s`, as if no two flows shared a link."""
    exact = arrival_s is not None
    spans = _spans(transfers, arrival_s) if arrival_s is not None else free_spans(transfers, paths)
    completion_s = max(SHORTEST_S, *(end for _, end in spans))
    tallies: dict[tuple[HopKind, float], _Tally] = {}
    count = _Tally(completion_s)
    for transfer, hops, span in zip(transfers, paths, spans, strict=True):
        count.add(1.0, span)
        if transfer.is_compute:
            continue
        rate_bps = _rate_bps(hops)
        for kind in crossed(hops or (), topology):
            tally = tallies.setdefault((kind, rate_bps), _Tally(completion_s))
            tally.add(wire_bytes(transfer.size_bytes), span)
    sizes = {key: tally.slices() for key, tally in tallies.items()}
    return Profile(completion_s, sizes, count.slices(), longest_chain(transfers), exact)


def crossed(hops: Iterable[Hop], topology: Topology) -> list[HopKind]:
    """Kinds of hops that handle a flow's packets: its two ends, and the nodes between them."""
    between = [hop.receiver for hop in hops][:-1]
    return [HopKind.ENDS, *(_kind_of(node, topology) for node in between)]


def _kind_of(node: str, topology: Topology) -> HopKind:
    if node in topology.gpu_by_name:
        return HopKind.TRANSIT
    return HopKind.SWITCH if node in topology.switch_by_name else HopKind.HB_SWITCH


def free_spans(transfers: Sequence[Transfer], paths: Sequence[Path]) -> list[Span]:
    """Begin and end of each transfer in seconds, if no links are shared."""
    arrival_s: list[float] = []
    spans = []
    for transfer, hops in zip(transfers, paths, strict=True):
        begin_s = _begin_s(transfer, arrival_s)
        end_s = begin_s + _alone_s(transfer, hops)
        arrival_s.append(end_s)
        spans.append((begin_s, end_s))
    return spans


def _alone_s(transfer: Transfer, hops: Path) -> float:
    """Seconds of a transfer that shares no link, or of a step of compute."""
    if transfer.is_compute:
        return transfer.compute_ns / 1e9
    return wire_bytes(transfer.size_bytes) * 8 / _rate_bps(hops)


def _spans(transfers: Sequence[Transfer], arrival_s: Sequence[float]) -> list[Span]:
    return [(_begin_s(transfer, arrival_s), arrival_s[transfer.id]) for transfer in transfers]


def _begin_s(transfer: Transfer, arrival_s: Sequence[float]) -> float:
    """Time in seconds at which all dependencies of a transfer have arrived."""
    waits = transfer.after if transfer.ready is None else (*transfer.after, transfer.ready)
    return max((arrival_s[other] for other in waits), default=0.0)


def _rate_bps(hops: Path) -> float:
    return min(hop.link.rate_bps for hop in hops or ())


def longest_chain(transfers: Sequence[Transfer]) -> int:
    """Length of the longest chain of dependent transfers."""
    depth: list[int] = []
    for transfer in transfers:
        waits = transfer.after if transfer.ready is None else (*transfer.after, transfer.ready)
        depth.append(1 + max((depth[other] for other in waits), default=0))
    return max(depth)


def packet_bytes(rate_bps: float) -> float:
    """Mean packet size at a flow's rate: log-log interpolation, constant outside `PACKETS`."""
    place = bisect_right(PACKETS, (rate_bps, 0.0))
    if place in (0, len(PACKETS)):
        return PACKETS[min(place, len(PACKETS) - 1)][1]
    (slow_bps, small), (fast_bps, large) = PACKETS[place - 1], PACKETS[place]
    part = log(rate_bps / slow_bps) / log(fast_bps / slow_bps)
    return exp(log(small) + part * (log(large) - log(small)))


class _Tally:
    """Amounts that are spread evenly over spans of time, collected in slices."""

    def __init__(self, completion_s: float) -> None:
        self.slices_a_second = SLICES / completion_s
        self.edges = [0.0] * (SLICES + 1)
        # Changes, at each slice, of the amount that whole slices get.
        self.changes = [0.0] * (SLICES + 1)

    def add(self, amount: float, span: Span) -> None:
        """Spread an amount evenly over a span."""
        begin, end = (moment_s * self.slices_a_second for moment_s in span)
        first, last = int(begin), min(int(end), SLICES)
        if first >= last:
            self.edges[min(first, SLICES - 1)] += amount
            return
        density = amount / (end - begin)
        self.edges[first] += density * (first + 1 - begin)
        self.edges[last] += density * (end - last)
        self.changes[first + 1] += density
        self.changes[last] -= density

    def slices(self) -> tuple[float, ...]:
        """Amount of every slice; a rounding rest after the end is added to the last slice."""
        whole = list(accumulate(self.changes))
        found = [max(0.0, edge + all_) for edge, all_ in zip(self.edges, whole, strict=True)]
        found[SLICES - 1] += found.pop()
        return tuple(found)
