"""What an execution asks of each kind of hop: bytes in time, and from them packets.

Pure bookkeeping over transfers: when each is under way, and what it crosses. The times are those of
a prediction, or, much cheaper, those of flows that never share a link. With these no flow is ever
slower than real, so what comes out as the busiest second is an upper bound.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import exp, log

from model.fabric.shaping import wire_bytes
from model.fabric.topology import Hop, Topology
from model.prediction.machine import HopKind
from model.routing.paths import Routing
from model.workload.schedule import Transfer

SLICES = 400
# What buckets let through at once takes no time in the model; a load needs some to be a rate.
SHORTEST_S = 1e-6
# Mean bytes of a packet, acknowledgements among them, by the rate of the flow in bit/s. From the
# counters of collectives, the smallest of those that were looked at; the first is an assumption
# (docs/measuring.md). TCP hands
# down about a millisecond's worth at once, from two packets to 64 KiB (tcp_tso_autosize in
# net/ipv4/tcp_output.c).
PACKETS = ((5e6, 3_200.0), (20e6, 12_500.0), (180e6, 30_000.0))

Span = tuple[float, float]
Path = Sequence[Hop] | None


@dataclass(frozen=True)
class Load:
    """What is asked for in a second."""

    packets: Mapping[HopKind, float]
    size_bytes: Mapping[HopKind, float]
    transfers: float


@dataclass(frozen=True)
class Profile:
    """Bytes that each kind of hop carries over an execution, in slices of equal length.

    They are kept by the rate of the flow in bit/s, as packets are larger at higher rates. `steps`
    is the longest chain of transfers that wait for each other. An `exact` profile follows a
    prediction.
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

    def busiest(self, window_s: float, weight: Callable[[Load], float]) -> Load:
        """The heaviest `window_s` of the execution, as a load per second."""
        width = max(1, min(SLICES, round(window_s / self.completion_s * SLICES)))
        return max((self._load(first, width) for first in range(SLICES - width + 1)), key=weight)

    def _load(self, first: int, width: int) -> Load:
        seconds = width * self.completion_s / SLICES
        packets = dict.fromkeys(HopKind, 0.0)
        size_bytes = dict.fromkeys(HopKind, 0.0)
        for (kind, rate_bps), sums in self._sums.items():
            rate = (sums[first + width] - sums[first]) / seconds
            size_bytes[kind] += rate
            packets[kind] += rate / packet_bytes(rate_bps)
        transfers = self._transfer_sums[first + width] - self._transfer_sums[first]
        return Load(packets, size_bytes, transfers / seconds)

    @cached_property
    def _sums(self) -> dict[tuple[HopKind, float], tuple[float, ...]]:
        return {key: tuple(accumulate(p, initial=0.0)) for key, p in self.size_bytes.items()}

    @cached_property
    def _transfer_sums(self) -> tuple[float, ...]:
        return tuple(accumulate(self.transfers, initial=0.0))


def profile(
    transfers: Sequence[Transfer],
    paths: Sequence[Path],
    topology: Topology,
    arrival_s: Sequence[float] | None = None,
) -> Profile:
    """The profile of an execution; without arrivals, as if no two flows ever shared a link."""
    exact = arrival_s is not None
    spans = _spans(transfers, arrival_s) if arrival_s is not None else free_spans(transfers, paths)
    completion_s = max(SHORTEST_S, *(end for _, end in spans))
    tallies: dict[tuple[HopKind, float], _Tally] = {}
    count = _Tally(completion_s)
    for transfer, hops, span in zip(transfers, paths, spans, strict=True):
        rate_bps = _rate_bps(hops)
        for kind in crossed(hops or (), topology):
            tally = tallies.setdefault((kind, rate_bps), _Tally(completion_s))
            tally.add(wire_bytes(transfer.size_bytes), span)
        count.add(1.0, span)
    sizes = {key: tally.slices() for key, tally in tallies.items()}
    return Profile(completion_s, sizes, count.slices(), longest_chain(transfers), exact)


def crossed_paths(transfers: Iterable[Transfer], topology: Topology) -> list[Path]:
    """The path of every transfer between the ranks of a job on a fabric that is well."""
    routing, gpus = Routing(topology), topology.job_gpus
    known = {
        pair: routing.path(gpus[pair[0]], gpus[pair[1]])
        for pair in {(transfer.source, transfer.destination) for transfer in transfers}
    }
    return [known[transfer.source, transfer.destination] for transfer in transfers]


def crossed(hops: Iterable[Hop], topology: Topology) -> list[HopKind]:
    """What handles a flow's packets: its two ends, and the nodes between them."""
    between = [hop.receiver for hop in hops][:-1]
    return [HopKind.ENDS, *(_kind_of(node, topology) for node in between)]


def _kind_of(node: str, topology: Topology) -> HopKind:
    if node in topology.gpu_by_name:
        return HopKind.FORWARDING
    return HopKind.SWITCH if node in topology.switch_by_name else HopKind.HB_SWITCH


def free_spans(transfers: Sequence[Transfer], paths: Sequence[Path]) -> list[Span]:
    """From when to when each transfer flows if it has its links to itself, in seconds."""
    arrival_s: list[float] = []
    spans = []
    for transfer, hops in zip(transfers, paths, strict=True):
        begin_s = _begin_s(transfer, arrival_s)
        end_s = begin_s + wire_bytes(transfer.size_bytes) * 8 / _rate_bps(hops)
        arrival_s.append(end_s)
        spans.append((begin_s, end_s))
    return spans


def _spans(transfers: Sequence[Transfer], arrival_s: Sequence[float]) -> list[Span]:
    return [(_begin_s(transfer, arrival_s), arrival_s[transfer.id]) for transfer in transfers]


def _begin_s(transfer: Transfer, arrival_s: Sequence[float]) -> float:
    """When all that a transfer waits for has arrived."""
    waits = transfer.after if transfer.clear is None else (*transfer.after, transfer.clear)
    return max((arrival_s[other] for other in waits), default=0.0)


def _rate_bps(hops: Path) -> float:
    """The rate of the slowest link of a path."""
    return min(hop.link.rate_bps for hop in hops or ())


def longest_chain(transfers: Sequence[Transfer]) -> int:
    """How many transfers wait for each other, at most, one after the other."""
    depth: list[int] = []
    for transfer in transfers:
        waits = transfer.after if transfer.clear is None else (*transfer.after, transfer.clear)
        depth.append(1 + max((depth[other] for other in waits), default=0))
    return max(depth)


def packet_bytes(rate_bps: float) -> float:
    """The mean packet of a flow at a rate: between measured rates by powers, beyond constant."""
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
        # What begins and ends to be added to each whole slice.
        self.changes = [0.0] * (SLICES + 1)

    def add(self, amount: float, span: Span) -> None:
        """Spread an amount over a span."""
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
        """The amount of every slice; rounding may have left a trace behind the last one."""
        whole = list(accumulate(self.changes))
        found = [max(0.0, edge + all_) for edge, all_ in zip(self.edges, whole, strict=True)]
        found[SLICES - 1] += found.pop()
        return tuple(found)
