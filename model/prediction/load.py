"""Load of an execution on each kind of hop, and the processor time that it needs.

Bytes over time, and packets, are computed from when each transfer is active and which hops it
crosses. Times are those of a prediction, or, much cheaper, those of flows that never share a link.
The latter are never slower than real flows, so they give an upper bound for the busiest second.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from typing import Any

import numpy as np

from model.arrays import Floats, Ints
from model.fabric.shaping import PACKET_HEADER_BYTES, SEGMENT_PACKETS, segment_bytes, wire_bytes
from model.fabric.spec import FabricSpec
from model.fabric.topology import Topology
from model.prediction.machine import HopKind, Machine
from model.prediction.network import FIRST_LINK, LEAST_RATE, Network
from model.prediction.simulation import SAME_TIME_S
from model.workload.transfers.columns import Rows, Transfers

SLICES = 400
# Two flows that each fill a link.
CONTENDED = 2 - 1e-6
# Length in slices of a moment: the rounding of its ends would distort a span shorter than this.
TINY = 1e-6
# The least completion time: bursts take no time in a prediction, but a rate needs some.
SHORTEST_S = 1e-6
# Mean packet size in bytes, acknowledgements included, by the rate of the flow in bit/s. From
# packet counters of collectives, the smallest that were seen; the first is an assumption
# (docs/explanation/measuring.md). TCP hands down about a millisecond's worth at once, from two
# packets to 64 KiB (tcp_tso_autosize in net/ipv4/tcp_output.c).
PACKETS = ((5e6, 3_200.0), (20e6, 12_500.0), (180e6, 30_000.0))

# One number, or an array with one for each of several loads.
Number = Any
# Shares that `auto` may use of all cores, and of one core for the switches' only thread. Sixteen
# GPUs at 15 to 55 % of two cores are within 1 % of their model
# (docs/reference/measurements.md, "Quickstart").
CPU_BUDGET = 0.5
THREAD_BUDGET = 0.6
# Estimates are conservative: 256 GPUs, estimated at 107 % of all cores, were within 3 % of their
# model (docs/reference/measurements.md, "Capacity"). Loads that may still work are not
# refused.
REFUSED_ABOVE = 1.5
# Share of all cores for the agents' own work, which is smaller in longer executions.
TRANSFER_BUDGET = 0.1


@dataclass(frozen=True)
class Load:
    """Packets and bytes per second by kind of hop, and transfers per second."""

    packets: Mapping[HopKind, Number]
    size_bytes: Mapping[HopKind, Number]
    transfers: Number


@dataclass(frozen=True, order=True)
class Flows:
    """Flows of one rate in bit/s; those of RoCE have a mean size of packets, whatever the rate."""

    rate_bps: float
    packet_bytes: float


@dataclass(frozen=True)
class Profile:
    """Bytes that each kind of hop carries over an execution, in slices of equal length.

    `size_bytes` is keyed by kind of hop and kind of flows, as packets are larger at higher rates.
    `steps` is the length of the longest chain of dependent transfers. Segments have at most
    `grain_packets`. `contention` is how often flows would fill a link at once, if none shared it:
    the most of all links.
    """

    completion_s: float
    size_bytes: Mapping[tuple[HopKind, Flows], tuple[float, ...]]
    transfers: tuple[float, ...]
    steps: int
    grain_packets: int = SEGMENT_PACKETS
    contention: float = 1.0

    @property
    def is_contended(self) -> bool:
        """Whether flows share links that each would fill, so that they could fall out of step."""
        return self.contention >= CONTENDED

    def scaled(self, bandwidth_scale: float, size_scale: float) -> "Profile":
        """The same execution on slower links, with less data."""
        return replace(
            self,
            completion_s=self.completion_s * bandwidth_scale / size_scale,
            size_bytes={
                (kind, replace(flows, rate_bps=flows.rate_bps / bandwidth_scale)): tuple(
                    part / size_scale for part in parts
                )
                for (kind, flows), parts in self.size_bytes.items()
            },
        )

    def busiest(self, window_s: float, weight: Callable[[Load], Number]) -> Load:
        """Return the load per second of the heaviest `window_s` of the execution.

        `weight` rates all windows in one call: it takes a load of arrays, one number a window.
        """
        width = max(1, min(SLICES, round(window_s / self.completion_s * SLICES)))
        loads = self._loads(width)
        heaviest = int(np.argmax(weight(loads)))
        return Load(
            {kind: float(amounts[heaviest]) for kind, amounts in loads.packets.items()},
            {kind: float(amounts[heaviest]) for kind, amounts in loads.size_bytes.items()},
            float(loads.transfers[heaviest]),
        )

    def _loads(self, width: int) -> Load:
        """The loads of all windows of `width` slices, as arrays."""
        seconds = width * self.completion_s / SLICES
        packets = {kind: np.zeros(SLICES - width + 1) for kind in HopKind}
        size_bytes = {kind: np.zeros(SLICES - width + 1) for kind in HopKind}
        for (kind, flows), parts in self.size_bytes.items():
            rates = _window_sums(parts, width) / seconds
            size_bytes[kind] += rates
            by_tcp = packet_bytes(flows.rate_bps, self.grain_packets)
            packets[kind] += rates / (flows.packet_bytes or by_tcp)
        return Load(packets, size_bytes, _window_sums(self.transfers, width) / seconds)


def _window_sums(parts: Sequence[float], width: int) -> Floats:
    """The sums of all `width` consecutive parts."""
    totals: Floats = np.append(0.0, np.cumsum(parts))
    return np.subtract(totals[width:], totals[:-width])


def profile(
    transfers: Transfers,
    pair: Ints,
    net: Network,
    topology: Topology,
    arrival_s: Sequence[float] | Floats | None = None,
) -> Profile:
    """The profile of an execution; without `arrival_s`, as if no two flows shared a link.

    `pair` has the pair of each transfer among those of the network.
    """
    begin_s, end_s = alone_s = _spans_s(transfers, pair, net)
    steps = transfers.longest_chain
    if arrival_s is not None:
        end_s = np.array(arrival_s)
        begin_s = transfers.begins_s(end_s)
    completion_s = max(0.0 if arrival_s is None else SHORTEST_S, float(end_s.max()))
    begin, end = begin_s * (SLICES / completion_s), end_s * (SLICES / completion_s)
    sizes = net.wire_bytes(transfers.size_bytes, pair)
    size_bytes = {}
    for key, times in _crossing(net, topology).items():
        amounts = sizes * times[pair]
        numbers = np.flatnonzero(amounts)
        if len(numbers):
            size_bytes[key] = _spread(amounts[numbers], begin[numbers], end[numbers])
    return Profile(
        completion_s,
        size_bytes,
        transfers=_spread(np.ones(len(transfers)), begin, end),
        steps=steps,
        grain_packets=topology.spec.grain_packets,
        contention=_contention(*alone_s, pair, net),
    )


def _spans_s(transfers: Transfers, pair: Ints, net: Network) -> tuple[Floats, Floats]:
    """Return when each step begins and ends, as if no two flows shared a link."""
    end_s = transfers.ends_s(_alone_s(transfers, pair, net))
    return transfers.begins_s(end_s), end_s


def is_contended(transfers: Transfers, pair: Ints, net: Network) -> bool:
    """Whether flows share links that each would fill, so that they could fall out of step."""
    return _contention(*_spans_s(transfers, pair, net), pair, net) >= CONTENDED


def _contention(begin_s: Floats, end_s: Floats, pair: Ints, net: Network) -> float:
    """Return how often the flows under way at once would fill a link: the most of all links.

    A flow alone fills the slowest link of its path. Flows that follow one another do not meet.
    """
    links, flow = _crossed(np.flatnonzero(end_s - begin_s > SAME_TIME_S), pair, net)
    begin_s, end_s = begin_s[flow], end_s[flow]
    follows = begin_s[1:] >= end_s[:-1] - SAME_TIME_S
    if (follows | (links[1:] != links[:-1])).all():
        return 1.0
    moments_s = np.concatenate([begin_s, end_s - SAME_TIME_S])
    rates = np.maximum(LEAST_RATE, net.rate)
    fills = rates[net.paths].min(axis=1)[pair[flow]] / rates[links]
    changes = np.concatenate([fills, -fills])
    order = np.lexsort((changes, moments_s, np.tile(links, 2)))
    # Each link's changes add up to nothing, so the sums begin anew at the next link.
    return float(np.cumsum(changes[order]).max(initial=1.0))


def _crossed(flows: Ints, pair: Ints, net: Network) -> tuple[Ints, Ints]:
    """Return the links that flows cross, link by link, each time with the flow."""
    crossed = Rows.of_table(net.paths, net.paths >= FIRST_LINK).picked(pair[flows])
    links = crossed.values.astype(np.min_scalar_type(net.links))
    order = np.argsort(links, kind="stable")
    return links[order], flows[crossed.row[order]]


def _alone_s(transfers: Transfers, pair: Ints, net: Network) -> Floats:
    """Seconds of each transfer that shares no link, and of each step of compute."""
    seconds = transfers.compute_ns / 1e9
    sent = ~transfers.is_compute
    seconds[sent] = net.wire_bytes(transfers.size_bytes, pair)[sent] / net.slowest[pair[sent]]
    return seconds


def _crossing(net: Network, topology: Topology) -> dict[tuple[HopKind, Flows], Ints]:
    """How often each pair's path crosses each kind of hop, by kind of flows.

    The ends of a path are one hop of their kind, besides the nodes between them.
    """
    kinds = [None, None, *(_kind_of(hop.receiver, topology) for hop in net.hops)]
    reached = {kind: np.array([one is kind for one in kinds]) * net.share for kind in HopKind}
    times = {
        kind: of_kind[net.paths].sum(axis=1).round().astype(np.int64)
        for kind, of_kind in reached.items()
    }
    # The last node of a path is a GPU that forwards nothing.
    times[HopKind.ENDS] = (times[HopKind.TRANSIT] > 0).astype(np.int64)
    times[HopKind.TRANSIT] -= times[HopKind.ENDS]
    times[HopKind.QUEUE_PAIR] = net.by_roce.astype(np.int64)
    rates_bps = net.slowest * 8
    packets = np.where(net.by_roce, net.roce.mean_packet_bytes, 0.0)
    pairs = sorted({*zip(rates_bps.tolist(), packets.tolist(), strict=True)})
    return {
        (kind, Flows(*of)): crossing
        for of in pairs
        for kind, some in times.items()
        if (crossing := np.where((rates_bps == of[0]) & (packets == of[1]), some, 0)).any()
    }


def _kind_of(node: str, topology: Topology) -> HopKind:
    if node in topology.gpu_by_name:
        return HopKind.TRANSIT
    return HopKind.SWITCH if node in topology.switch_by_name else HopKind.HB_SWITCH


def _spread(amounts: Floats, begin: Floats, end: Floats) -> tuple[float, ...]:
    """Spread amounts evenly over spans, which are in slices; return the amount of every slice.

    A span within a slice, or shorter than `TINY`, counts for the slice in which it begins; a
    rounding rest after the end counts for the last.
    """
    first, last = begin.astype(int), np.minimum(end.astype(int), SLICES)
    # `per_slice` has the edges of spans; `changes` the steps of the amount that whole slices get.
    per_slice, changes = np.zeros((2, SLICES + 1))
    within = (first >= last) | (end - begin < TINY)
    np.add.at(per_slice, np.minimum(first[within], SLICES - 1), amounts[within])
    begin, end, first, last = (column[~within] for column in (begin, end, first, last))
    density = amounts[~within] / (end - begin)
    np.add.at(per_slice, first, density * (first + 1 - begin))
    np.add.at(per_slice, last, density * (end - last))
    np.add.at(changes, first + 1, density)
    np.subtract.at(changes, last, density)
    per_slice = np.maximum(0.0, per_slice + np.cumsum(changes))
    per_slice[SLICES - 1] += per_slice[SLICES]
    return tuple(per_slice[:SLICES].tolist())


def packet_bytes(rate_bps: float, grain_packets: int = SEGMENT_PACKETS) -> float:
    """Mean packet size at a flow's rate, at most that of full segments with acknowledgements.

    Interpolated between logarithms, and constant outside of `PACKETS`.
    """
    most = (wire_bytes(segment_bytes(grain_packets)) + PACKET_HEADER_BYTES) / 2
    rates, sizes = np.log(PACKETS).T
    return min(most, exp(np.interp(log(max(1.0, rate_bps)), rates, sizes)))


@dataclass(frozen=True)
class Need:
    """Needs of a load: shares of all cores, and of one core for the switches' `thread`."""

    by_hop: Mapping[HopKind, float]
    transfers: float
    thread: float

    @property
    def data(self) -> float:
        """The share of all cores for packets and bytes."""
        return sum(self.by_hop.values())

    @property
    def is_too_much(self) -> bool:
        """Whether the machine cannot carry the load."""
        return max(self.data, self.thread) > REFUSED_ABOVE

    @property
    def is_within_budget(self) -> bool:
        """Whether data leaves enough machine headroom; the number of transfers is not judged."""
        return self.data <= CPU_BUDGET and self.thread <= THREAD_BUDGET


def switch_ports(spec: FabricSpec) -> int:
    """The number of ports of all rail and spine switches, which one daemon's thread serves."""
    if spec.nic.links:
        gpus = set(spec.gpu_names)
        return sum(1 + (link.lower not in gpus) for link in spec.nic.links)
    rails = spec.nics + spec.spares.rail_switches
    leaves = rails * spec.nic.leaves * spec.nic.ports
    uplinks = leaves * spec.nic.spines if spec.has_spines else 0
    return spec.domains * spec.nics * spec.nic.ports + 2 * uplinks


def need(load: Load, machine: Machine, ports: int) -> Need:
    """Return the needs of a load on a machine whose switches have `ports` ports in all."""
    cores, threads = machine.key.cores, machine.threads
    by_hop = {
        kind: machine.hop_cost(kind).cpu_s(load.packets[kind], load.size_bytes[kind]) / cores
        for kind in HopKind
    }
    packets, size = load.packets[HopKind.SWITCH], load.size_bytes[HopKind.SWITCH]
    by_hop[HopKind.SWITCH] += threads.wakeup_share(packets, ports) / cores
    return Need(
        by_hop=by_hop,
        transfers=load.transfers * machine.transfer_s / cores,
        thread=threads.cost.cpu_s(packets, size),
    )
