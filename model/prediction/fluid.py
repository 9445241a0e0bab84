"""Fluid model of the completion time of one schedule on one fabric.

Transfers are fluids. Each flows along the path that the routing gives it, flows on one link share
it fairly (max-min), and each begins when its dependencies are done. A shaped link is a token
bucket: after idleness the first bytes pass at once (`model.fabric.shaping.Shaper`). Latencies are
measured on single idle paths and passed in; no constant is fitted to a collective.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from model.fabric.health import HEALTHY, Epoch, Health
from model.fabric.shaping import wire_bytes
from model.fabric.topology import Hop, LinkKind, RankGpus, Topology
from model.routing.paths import Routing, Unreachable
from model.workload.schedule import Schedule, Transfer

PathClass = tuple[LinkKind, ...]

# Events closer than this are one event: rounding must not separate simultaneous events.
SAME_TIME_S = 1e-9
# The most that TCP hands down at once (GSO_LEGACY_MAX_SIZE in linux/netdevice.h).
MAX_SEGMENT_BYTES = 65536
# The number and the length of a transfer travel with its payload.
HEADER_BYTES = 8


@dataclass(frozen=True)
class Prediction:
    """Seconds of emulated time, from the common start until the last byte has arrived."""

    topology_digest: str
    schedule_digest: str
    completion_s: float
    lower_bound_s: float
    arrival_s: tuple[float, ...]


def path_class(hops: Iterable[Hop]) -> PathClass:
    """The kinds of links on a path; paths of one class have one latency."""
    return tuple(hop.link.kind for hop in hops)


def predict(
    schedule: Schedule,
    topology: Topology,
    latency_s: Mapping[PathClass, float],
    health: Health = HEALTHY,
    gpus: RankGpus | None = None,
) -> Prediction:
    """Simulate the schedule. `latency_s` is one-way, for a packet without payload.

    Raises `Unreachable` if a transfer has no path.
    """
    return predict_through(schedule, [Epoch(topology, health)], latency_s, gpus)


def predict_through(
    schedule: Schedule,
    epochs: Sequence[Epoch],
    latency_s: Mapping[PathClass, float],
    gpus: RankGpus | None = None,
) -> Prediction:
    """Predict on a fabric that changes during the execution. Packets take new paths at once.

    A transfer without a path waits for a later epoch; if none has one, raises `Unreachable`.
    """
    gpus = gpus or epochs[0].topology.job_gpus
    arrival_s = _Simulation(schedule, epochs, latency_s, gpus).run()
    return Prediction(
        topology_digest=epochs[0].topology.digest,
        schedule_digest=schedule.digest,
        completion_s=max(arrival_s),
        lower_bound_s=min(lower_bound_s(schedule, epoch, gpus) for epoch in epochs),
        arrival_s=tuple(arrival_s),
    )


def transfer_paths(
    transfers: Sequence[Transfer], epoch: Epoch, gpus: RankGpus
) -> list[tuple[Hop, ...] | None]:
    """The path of every transfer; `None` for unreachable destinations."""
    routing = Routing(epoch.topology, epoch.health)
    known = {
        pair: routing.path_if_any(gpus[pair[0]], gpus[pair[1]])
        for pair in {(transfer.source, transfer.destination) for transfer in transfers}
    }
    return [known[transfer.source, transfer.destination] for transfer in transfers]


def link_loads(schedule: Schedule, paths: Sequence[tuple[Hop, ...] | None]) -> dict[Hop, float]:
    """Bytes that each direction of each link has to carry, headers included."""
    loads: dict[Hop, float] = {}
    for transfer, hops in zip(schedule.transfers, paths, strict=True):
        for hop in hops or ():
            loads[hop] = loads.get(hop, 0.0) + wire_bytes(transfer.size_bytes)
    return loads


def lower_bound_s(schedule: Schedule, epoch: Epoch, gpus: RankGpus) -> float:
    """The busiest link's load over its rate, in seconds: no measurement may be shorter.

    Two parts of the load leave at once and do not count: the burst of the token bucket, and the
    last segment (up to segmentation offload's maximum), for which the bucket may go into debt.
    """
    largest = max(wire_bytes(transfer.size_bytes) for transfer in schedule.transfers)
    last_segment = min(largest, wire_bytes(MAX_SEGMENT_BYTES))
    loads = link_loads(schedule, transfer_paths(schedule.transfers, epoch, gpus))
    bounds = [0.0]
    for hop, load in loads.items():
        shaper = epoch.health.shaper(hop)
        bounds.append((load - shaper.burst_bytes - last_segment) / (shaper.rate_bps / 8))
    return max(bounds)


@dataclass
class _Bucket:
    """One direction of a link. `rate` is in bytes/s; tokens are bytes that may pass at once."""

    rate: float
    burst: float
    tokens: float
    flows: set[int] = field(default_factory=set)

    def refill(self, used: float, elapsed_s: float) -> None:
        """Add tokens for the unused rate, up to `burst`."""
        self.tokens = min(self.burst, self.tokens + (self.rate - used) * elapsed_s)


class _Simulation:
    """The state of the fluid model: active flows, buckets, and events to come."""

    def __init__(
        self,
        schedule: Schedule,
        epochs: Sequence[Epoch],
        latency_s: Mapping[PathClass, float],
        gpus: RankGpus,
    ) -> None:
        self.transfers = schedule.transfers
        self.epochs = list(epochs)
        self.latency_s = latency_s
        self.gpus = gpus
        self.latency: list[float] = []
        self.buckets: dict[Hop, _Bucket] = {}
        self.no_path = _Bucket(0.0, 0.0, 0.0)
        self.route: list[tuple[_Bucket, ...]] = []
        self.missing = [len(t.after) + (t.ready is not None) for t in self.transfers]
        self.waiting, self.readied = _dependents(self.transfers)
        self.remaining: dict[int, float] = {}
        self.rates: dict[int, float] = {}
        self.arrival_s = [0.0] * len(self.transfers)
        self.events: list[tuple[float, int]] = []
        # Rendezvous released while their pair has no path: they take place when it has one.
        self.held: list[int] = []
        self.now_s = 0.0

    def _enter_epoch(self) -> int:
        """Begin the epochs that are due: active flows continue on new paths; return how many."""
        entered = 0
        while self.epochs and self.epochs[0].begin_s <= self.now_s + SAME_TIME_S:
            epoch = self.epochs.pop(0)
            paths = transfer_paths(self.transfers, epoch, self.gpus)
            for bucket in (*self.buckets.values(), self.no_path):
                bucket.flows.clear()
            self.latency = [self.latency_s[path_class(p)] if p else inf for p in paths]
            self.route = [
                tuple(self._bucket(hop, epoch.health) for hop in p) if p else (self.no_path,)
                for p in paths
            ]
            for flow in self.remaining:
                for bucket in self.route[flow]:
                    bucket.flows.add(flow)
            held, self.held = self.held, []
            for flow in held:
                self._meet(flow, self.now_s)
            entered += 1
        return entered

    def _bucket(self, hop: Hop, health: Health) -> _Bucket:
        shaper = health.shaper(hop)
        rate, burst = shaper.rate_bps / 8, shaper.burst_bytes
        bucket = self.buckets.setdefault(hop, _Bucket(rate, burst, burst))
        bucket.rate, bucket.burst = rate, burst
        return bucket

    def run(self) -> list[float]:
        """Run the simulation; return the arrival times of all transfers in seconds."""
        self._enter_epoch()
        for transfer in self.transfers:
            if not self.missing[transfer.id]:
                heapq.heappush(self.events, (0.0, transfer.id))
        while self.events or self.remaining or self.held:
            self._advance(self._next_moment())
            changed = self._finish() + self._enter_epoch() + self._start()
            if changed:
                self.rates = _fair_rates(self.remaining, self.route)
        return self.arrival_s

    def _next_moment(self) -> float:
        moments = [
            self.now_s + left / self.rates[flow]
            for flow, left in self.remaining.items()
            if self.rates[flow]
        ]
        if self.events:
            moments.append(self.events[0][0])
        if self.epochs:
            moments.append(self.epochs[0].begin_s)
        if not moments or min(moments) == inf:
            stuck = sorted((*self.remaining, *self.held))
            raise Unreachable(f"transfers have no path: {stuck[:3]}")
        return max(self.now_s, min(moments))

    def _advance(self, moment_s: float) -> None:
        elapsed_s = moment_s - self.now_s
        for flow, rate in self.rates.items():
            self.remaining[flow] -= rate * elapsed_s
        for bucket in self.buckets.values():
            bucket.refill(sum(self.rates[flow] for flow in bucket.flows), elapsed_s)
        self.now_s = moment_s

    def _finish(self) -> int:
        """End flows whose last byte has left and release their dependents; return how many."""
        finished = [
            flow
            for flow, left in self.remaining.items()
            if left <= self.rates.get(flow, 0.0) * SAME_TIME_S
        ]
        for flow in finished:
            del self.remaining[flow], self.rates[flow]
            for bucket in self.route[flow]:
                bucket.flows.discard(flow)
            self._arrive(flow)
        return len(finished)

    def _arrive(self, flow: int) -> None:
        transfer = self.transfers[flow]
        self.arrival_s[flow] = self.now_s + self.latency[flow]
        confirmed_s = self.arrival_s[flow] + self.latency[flow]
        for other in self.waiting[flow]:
            here = self.transfers[other].source == transfer.destination
            self._release(other, self.arrival_s[flow] if here else confirmed_s)
        for other in self.readied[flow]:
            self._meet(other, self.arrival_s[flow])

    def _meet(self, flow: int, moment_s: float) -> None:
        """Release `flow` one latency after its receiver is ready; hold it while it has no path."""
        if self.latency[flow] == inf:
            self.held.append(flow)
        else:
            self._release(flow, moment_s + self.latency[flow])

    def _release(self, flow: int, moment_s: float) -> None:
        """Count one dependency of `flow` as done at `moment_s`; the last one starts it."""
        self.missing[flow] -= 1
        self.arrival_s[flow] = max(self.arrival_s[flow], moment_s)
        if not self.missing[flow]:
            heapq.heappush(self.events, (self.arrival_s[flow], flow))

    def _start(self) -> int:
        """Start the flows that are due; first bytes use their path's tokens; return how many."""
        started = 0
        while self.events and self.events[0][0] <= self.now_s + SAME_TIME_S:
            _, flow = heapq.heappop(self.events)
            size = wire_bytes(self.transfers[flow].size_bytes + HEADER_BYTES)
            free = min(size, *(max(0.0, bucket.tokens) for bucket in self.route[flow]))
            for bucket in self.route[flow]:
                bucket.tokens -= free
                bucket.flows.add(flow)
            self.remaining[flow] = size - free
            started += 1
        return started


def _dependents(transfers: tuple[Transfer, ...]) -> tuple[list[list[int]], list[list[int]]]:
    """For each transfer, those that wait for its end, and those that it makes ready-to-receive."""
    waiting: list[list[int]] = [[] for _ in transfers]
    readied: list[list[int]] = [[] for _ in transfers]
    for transfer in transfers:
        for earlier in transfer.after:
            waiting[earlier].append(transfer.id)
        if transfer.ready is not None:
            readied[transfer.ready].append(transfer.id)
    return waiting, readied


def _fair_rates(flows: Mapping[int, float], route: list[tuple[_Bucket, ...]]) -> dict[int, float]:
    """Max-min fair rates in bytes/s: raise all flows evenly, freeze those on a saturated link."""
    rates: dict[int, float] = {}
    open_flows = {id(b): (b, set(b.flows)) for flow in flows for b in route[flow]}
    spare = {key: bucket.rate for key, (bucket, _) in open_flows.items()}
    while len(rates) < len(flows):
        tightest, (_, frozen) = min(
            ((key, entry) for key, entry in open_flows.items() if entry[1]),
            key=lambda item: spare[item[0]] / len(item[1][1]),
        )
        share = spare[tightest] / len(frozen)
        for flow in tuple(frozen):
            rates[flow] = share
            for bucket in route[flow]:
                spare[id(bucket)] -= share
                open_flows[id(bucket)][1].discard(flow)
    return rates
