"""Measure this machine's processor time for each kind of hop, with small fabrics.

The real agents send over four kinds of paths of one fabric, with small and with large packets:

    ends + switch                        two domains on one leaf switch
    ends + 3 switches                    two domains on different leaf switches
    ends + HB switch                     two GPUs of one domain
    ends + HB switch + transit + switch  two rails

so that each hop's cost is a difference of two paths. A second fabric, with many idle ports, gives
the cost of a port. About 20 s.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from execution.cases.emulation import Experiment, experiment
from linux.machine.processor import busy_s, processes_s, timer_lateness_s
from model.fabric.shaping import wire_bytes
from model.fabric.spec import FabricKind, FabricSpec, HbNetwork, NicNetwork
from model.fabric.topology import LinkKind
from model.measurement.pauses import profile
from model.prediction.load import switch_ports
from model.prediction.machine import (
    HopCost,
    HopKind,
    Machine,
    MachineKey,
    ThreadSample,
    solve_cost,
    solve_threads,
    with_ports,
)
from model.workload.transfers.columns import streams
from testbed.instruments.pauses import watching_pauses
from testbed.nodes.gpu_proxies import ProxyKind

RATE_BPS = 150_000_000
SMALL_SEGMENTS = 2  # full packets in one GSO segment of TCP, as at a low rate
LARGE_SEGMENTS = 65535 // 1448
LOAD_S = 0.4
# Small packets are many: a part of the bytes gives enough of them.
SMALL_PART = 0.25
TRIALS = 2
TRANSFERS = 300
TRANSFER_BYTES = 64
SLEEPS, SLEEP_S = 400, 0.002
IDLE_S = 0.4
# Two leaf switches a rail, with two domains each: some paths have one switch, some have three.
FABRIC = FabricSpec(
    kind=FabricKind.RAIL_ONLY,
    domains=4,
    domain_size=2,
    platform="own",
    hb=HbNetwork(RATE_BPS),
    nic=NicNetwork(RATE_BPS, spines=1, leaves=2),
    bandwidth_scale=1.0,
)
MANY_PORTS = replace(FABRIC, domain_size=1, nic=replace(FABRIC.nic, spines=16))
# Partners of every rank (2 d + r for domain d, rail r), by the switches between the two.
HB = {0: 1, 1: 0, 2: 3, 3: 2, 4: 5, 5: 4, 6: 7, 7: 6}
ONE_SWITCH = {0: 2, 2: 0, 1: 3, 3: 1, 4: 6, 6: 4, 5: 7, 7: 5}
THREE_SWITCHES = {0: 4, 4: 0, 1: 5, 5: 1, 2: 6, 6: 2, 3: 7, 7: 3}
CROSS_RAIL = {0: 3, 3: 0, 1: 2, 2: 1, 4: 7, 7: 4, 5: 6, 6: 5}
# The same as ONE_SWITCH where a domain has one GPU.
ONE_GPU = {0: 1, 1: 0, 2: 3, 3: 2}
Pairs = Mapping[int, int]


@dataclass(frozen=True)
class Sample:
    """One load: packets and bytes from GPUs; processor time, in all and in switch threads."""

    packets: float
    size_bytes: float
    cpu_s: float
    thread_s: float
    sending_s: float

    def thread(self, switches: int) -> ThreadSample:
        """Return the load of the switches' thread if each packet passes `switches` of them."""
        return ThreadSample(
            packets=self.packets * switches / self.sending_s,
            size_bytes=self.size_bytes * switches / self.sending_s,
            busy=self.thread_s / self.sending_s,
        )


@dataclass(frozen=True)
class Bench:
    """A fabric that is up, with the cores that are busy while it is idle: in all, in switches."""

    fabric: Experiment
    background_cores: float
    background_thread_cores: float

    def path(self, pairs: Pairs) -> tuple[Sample, Sample]:
        """Measure a path with small and with large packets."""
        self.limit_segments(SMALL_SEGMENTS)
        small = self.load(pairs, SMALL_PART)
        self.limit_segments(LARGE_SEGMENTS)
        return small, self.load(pairs)

    def limit_segments(self, full_packets: int) -> None:
        """Limit TCP's GSO segments to this many full packets; close all connections."""
        links = self.fabric.bed.links
        for gpu in self.fabric.topology.gpus:
            for link in self.fabric.topology.links_of(gpu.name):
                index = links.index_of(link.lower)
                with links.netlink_of(link.lower) as netlink:
                    netlink.link("set", index=index, gso_max_segs=full_packets)
        self.fabric.rearrange(self.fabric.placement)

    def load(self, pairs: Pairs, part: float = 1.0) -> Sample:
        """Send between all pairs at full rate."""
        return self.least_busy(pairs, round(part * RATE_BPS / 8 * LOAD_S / wire_bytes(1)), 1)

    def least_busy(self, pairs: Pairs, size: int, rounds: int) -> Sample:
        """Send between all pairs; return the trial with the least processor time."""
        trials = [self._sample(pairs, size, rounds) for _ in range(TRIALS)]
        return min(trials, key=lambda sample: sample.cpu_s)

    def _sample(self, pairs: Pairs, size: int, rounds: int) -> Sample:
        sent = streams([(*pair, size) for pair in pairs.items()], rounds)
        before = self._sent()
        begun_s, cpu_s, thread_s = time.monotonic(), busy_s(), self.threads_s()
        done = self.fabric.agents.execute(sent, self.fabric.placement.addresses(), 10 * LOAD_S)
        cpu_s, thread_s = busy_s() - cpu_s, self.threads_s() - thread_s
        elapsed_s, after = time.monotonic() - begun_s, self._sent()
        return Sample(
            packets=after[0] - before[0],
            size_bytes=after[1] - before[1],
            cpu_s=cpu_s - elapsed_s * self.background_cores,
            thread_s=max(0.0, thread_s - elapsed_s * self.background_thread_cores),
            sending_s=done.completion_s,
        )

    def threads_s(self) -> float:
        """Processor time of the switches' threads so far."""
        return processes_s((self.fabric.bed.open_vswitch.process_id,))

    def _sent(self) -> tuple[int, int]:
        """Return the packets and bytes that all GPUs have sent so far, forwarded ones included."""
        counters = self.fabric.bed.links.read_counters().counters
        links = [link for link in self.fabric.topology.links if link.kind is not LinkKind.UPLINK]
        found = [counters[link.name] for link in links]
        return sum(c.received_packets for c in found), sum(c.received_bytes for c in found)


@contextmanager
def bench(name: str, spec: FabricSpec, first: Pairs) -> Iterator[Bench]:
    """Bring up a fabric; measure its background load when it is idle after a first load."""
    with experiment(spec, ProxyKind.PROCESS, f"doctor-{os.getpid()}-{name}") as fabric:
        quiet = Bench(fabric, 0.0, 0.0)
        quiet.load(first)
        cpu_s, thread_s = busy_s(), quiet.threads_s()
        time.sleep(IDLE_S)
        cpu_s, thread_s = busy_s() - cpu_s, quiet.threads_s() - thread_s
        yield Bench(fabric, cpu_s / IDLE_S, thread_s / IDLE_S)


def measure(key: MachineKey) -> Machine:
    """Measure this machine, which must do nothing else meanwhile.

    The pauses are read last, as they show only while something wants to run.
    """
    with watching_pauses() as watch:
        late_s = timer_lateness_s(SLEEPS, SLEEP_S)
        with bench("hops", FABRIC, ONE_SWITCH) as hops:
            one, three = hops.path(ONE_SWITCH), hops.path(THREE_SWITCHES)
            hb, cross_rail = hops.path(HB), hops.path(CROSS_RAIL)
            exchanged = hops.least_busy(HB, TRANSFER_BYTES, TRANSFERS)
        with bench("ports", MANY_PORTS, ONE_GPU) as ports:
            many = ports.load(ONE_GPU, SMALL_PART)
        pauses = profile(watch.log())
    costs = _hops(*(_cost(*path) for path in (one, three, hb, cross_rail)))
    carried = costs[HopKind.ENDS], costs[HopKind.HB_SWITCH]
    packets_s = sum(cost.cpu_s(exchanged.packets, exchanged.size_bytes) for cost in carried)
    few, more = switch_ports(FABRIC), switch_ports(MANY_PORTS)
    (small, large), (_, one_large) = three, one
    threads = solve_threads(small.thread(3), large.thread(3), one_large.thread(1), few)
    return Machine(
        key=key,
        hops=costs,
        threads=with_ports(threads, few, many.thread(1), more),
        transfer_s=max(0.0, exchanged.cpu_s - packets_s) / (len(HB) * TRANSFERS),
        timer_median_s=late_s[len(late_s) // 2],
        timer_p99_s=late_s[len(late_s) * 99 // 100],
        pauses=pauses,
    )


def _cost(small: Sample, large: Sample) -> HopCost:
    """Return the cost of a packet and of a byte outside of switches' threads."""

    def outside(load: Sample) -> tuple[float, float, float]:
        return load.packets, load.size_bytes, max(0.0, load.cpu_s - load.thread_s)

    return solve_cost(outside(small), outside(large))


def _hops(
    one_switch: HopCost, three_switches: HopCost, hb: HopCost, cross_rail: HopCost
) -> dict[HopKind, HopCost]:
    """Return each hop's cost as the difference of paths with and without the hop."""
    two_switches = minus(three_switches, one_switch)
    switch = HopCost(two_switches.packet_s / 2, two_switches.byte_s / 2)
    ends = minus(one_switch, switch)
    bridge = minus(hb, ends)
    # Forwarded packets were counted twice: at the source GPU and at the transit GPU.
    cross_rail = HopCost(cross_rail.packet_s * 2, cross_rail.byte_s * 2)
    transit = minus(minus(minus(cross_rail, ends), bridge), switch)
    kinds = HopKind.ENDS, HopKind.HB_SWITCH, HopKind.SWITCH, HopKind.TRANSIT
    return dict(zip(kinds, (ends, bridge, switch, transit), strict=True))


def minus(whole: HopCost, part: HopCost) -> HopCost:
    """Subtract costs, down to 0: noise may have made the part larger than the whole."""
    packet_s, byte_s = whole.packet_s - part.packet_s, whole.byte_s - part.byte_s
    return HopCost(max(0.0, packet_s), max(0.0, byte_s))
