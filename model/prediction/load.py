"""Load of an execution on each kind of hop: bytes over time, and packets computed from them.

Computed from when each transfer is active and which hops it crosses. Times are those of a
prediction, or, much cheaper, those of flows that never share a link. The latter are never slower
than real flows, so they give an upper bound for the busiest second.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    slices = np.array(spans) * (SLICES / completion_s)
    sizes = np.array([wire_bytes(transfer.size_bytes) for transfer in transfers])
    size_bytes = {
        key: _spread(sizes[numbers], slices[numbers])
        for key, numbers in _crossing(transfers, paths, topology).items()
    }
    count = _spread(np.ones(len(transfers)), slices)
    return Profile(completion_s, size_bytes, count, longest_chain(transfers), exact)


def _crossing(
    transfers: Sequence[Transfer], paths: Sequence[Path], topology: Topology
) -> dict[tuple[HopKind, float], list[int]]:
    """The transfers that cross each kind of hop at each rate in bit/s, each as often as it does."""
    by_path: dict[int, tuple[Path, list[int]]] = {}
    for number, (transfer, hops) in enumerate(zip(transfers, paths, strict=True)):
        if not transfer.is_compute:
            by_path.setdefault(id(hops), (hops, []))[1].append(number)
    found: dict[tuple[HopKind, float], list[int]] = {}
    for hops, numbers in by_path.values():
        rate_bps = _rate_bps(hops)
        for kind in crossed(hops or (), topology):
            found.setdefault((kind, rate_bps), []).extend(numbers)
    return found


def _spread(amounts: Floats, spans: Floats) -> tuple[float, ...]:
    """Spread amounts evenly over spans, which are in slices; return the amount of every slice.

    What lies within a slice counts for it whole; a rounding rest after the end counts for the last.
    """
    begin, end = spans.T
    first, last = begin.astype(int), np.minimum(end.astype(int), SLICES)
    # Besides the edges of spans, the changes, at each slice, of the amount that whole slices get.
    found, changes = np.zeros((2, SLICES + 1))
    within = first >= last
    np.add.at(found, np.minimum(first[within], SLICES - 1), amounts[within])
    begin, end, first, last = (column[~within] for column in (begin, end, first, last))
    density = amounts[~within] / (end - begin)
    np.add.at(found, first, density * (first + 1 - begin))
    np.add.at(found, last, density * (end - last))
    np.add.at(changes, first + 1, density)
    np.subtract.at(changes, last, density)
    found = np.maximum(0.0, found + np.cumsum(changes))
    found[SLICES - 1] += found[SLICES]
    return tuple(found[:SLICES].tolist())


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
