"""Costs of a machine: processor time of packets and bytes by kind of hop, and of transfers.

Costs are in seconds. They are measured once on a machine (`railbed doctor`), with small fabrics;
`load.py` computes the needs of a load from them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from model.measurement.pauses import PauseProfile

# Step size and number of steps in the search for the cost of a wake-up.
WAKE_STEP_S, WAKE_STEPS = 1e-6, 200
# A packet of a queue pair takes the agents as long as so many transfers: at both ends it wakes the
# agent, and is a system call and some Python (docs/explanation/roce.md, "What a packet costs").
TRANSFERS_A_PACKET = 3


class HopKind(StrEnum):
    """Packet handlers on a path: one pair of ends, and any number of the others.

    The agents' own work for packets of RoCE comes on top of that of the ends.
    """

    ENDS = "sender and receiver"
    QUEUE_PAIR = "queue pair in user space"
    HB_SWITCH = "HB switch"
    SWITCH = "rail or spine switch"
    TRANSIT = "forwarding GPU"


@dataclass(frozen=True)
class HopCost:
    """Processor time of one hop and its shaped link, per packet and per byte."""

    packet_s: float
    byte_s: float

    def cpu_s(self, packets: float, size_bytes: float) -> float:
        """Processor seconds for `packets` packets with `size_bytes` bytes in all."""
        return packets * self.packet_s + size_bytes * self.byte_s


@dataclass(frozen=True)
class MachineKey:
    """Properties of a machine for which a measurement is valid."""

    kernel: str
    cpu: str
    cores: int
    open_vswitch: str
    datapath: str


@dataclass(frozen=True)
class SwitchThreads:
    """Costs of the daemon of all rail and spine switches: one thread serves all ports.

    Each wake-up polls every port. At low load each packet causes a wake-up; at high load, packets
    that arrive during a poll wait for the next one: a busy thread is not yet overloaded.
    """

    cost: HopCost
    wake_s: float
    port_s: float

    def wakeup_share(self, packets_per_s: float, ports: float) -> float:
        """Return the share of time for wake-ups.

        A poll handles all packets that came during the last one.
        """
        looks_s = packets_per_s * (self.wake_s + ports * self.port_s)
        return looks_s / (1 + looks_s)


@dataclass(frozen=True)
class ThreadSample:
    """Load of the switches' thread: packets, bytes and processor seconds, each per second."""

    packets: float
    size_bytes: float
    busy: float


@dataclass(frozen=True)
class Machine:
    """A machine's costs. `hops` of switches do not include their daemon's thread."""

    key: MachineKey
    hops: Mapping[HopKind, HopCost]
    threads: SwitchThreads
    transfer_s: float
    timer_median_s: float
    timer_p99_s: float
    pauses: PauseProfile

    def hop_cost(self, kind: HopKind) -> HopCost:
        """Total cost of one hop at high load, including the switches' thread.

        The check sum of a packet of a queue pair takes as long as a copy.
        """
        if kind is HopKind.QUEUE_PAIR:
            return HopCost(TRANSFERS_A_PACKET * self.transfer_s, self.hops[HopKind.ENDS].byte_s)
        cost, thread = self.hops[kind], self.threads.cost
        if kind is not HopKind.SWITCH:
            return cost
        return HopCost(cost.packet_s + thread.packet_s, cost.byte_s + thread.byte_s)

    def most_packets_per_s(self, kind: HopKind, packet_bytes: float) -> float:
        """Packets per second that one kind of hop could carry with the machine to itself.

        Packets of rail and spine switches all go through one thread.
        """
        cpu_s = self.hop_cost(kind).cpu_s(1, packet_bytes)
        limits = [self.key.cores / cpu_s if cpu_s else inf]
        if kind is HopKind.SWITCH:
            thread_s = self.threads.cost.cpu_s(1, packet_bytes)
            limits.append(1 / thread_s if thread_s else inf)
        return min(limits)


def solve_cost(slow: tuple[float, float, float], fast: tuple[float, float, float]) -> HopCost:
    """Solve for the cost of a hop from two loads, each (packets, bytes, processor seconds).

    If noise would make one of the two costs negative, it is 0, and the other is the higher of
    the two loads' values.
    """
    (packets, size, cpu_s), (more_packets, more_size, more_cpu_s) = slow, fast
    determinant = packets * more_size - more_packets * size
    if determinant:
        packet_s = (cpu_s * more_size - more_cpu_s * size) / determinant
        byte_s = (packets * more_cpu_s - more_packets * cpu_s) / determinant
        if packet_s >= 0 and byte_s >= 0:
            return HopCost(packet_s, byte_s)
        if byte_s >= 0:
            return HopCost(0.0, max(cpu_s / size, more_cpu_s / more_size, 0.0))
    return HopCost(max(cpu_s / packets, more_cpu_s / more_packets, 0.0), 0.0)


def solve_threads(
    small: ThreadSample, large: ThreadSample, light: ThreadSample, ports: float
) -> SwitchThreads:
    """Estimate the costs of a thread with `ports` ports from three loads, one of them light.

    For each candidate cost of a wake-up, two loads give the costs of packets and bytes; the light
    load selects the candidate. `port_s` stays 0: `with_ports` finds it.
    """

    def candidate(wake_s: float) -> SwitchThreads:
        idle = SwitchThreads(HopCost(0.0, 0.0), wake_s, 0.0)
        loads = (
            (load.packets, load.size_bytes, load.busy - idle.wakeup_share(load.packets, ports))
            for load in (small, large)
        )
        return SwitchThreads(solve_cost(*loads), wake_s, 0.0)

    def miss(fitted: SwitchThreads) -> float:
        work = fitted.cost.cpu_s(light.packets, light.size_bytes)
        return abs(work + fitted.wakeup_share(light.packets, ports) - light.busy)

    return min((candidate(step * WAKE_STEP_S) for step in range(WAKE_STEPS)), key=miss)


def with_ports(few: SwitchThreads, ports: float, many: ThreadSample, more: float) -> SwitchThreads:
    """Split a wake-up's cost into fixed and per-port parts, by a load with `more` ports."""
    share = many.busy - few.cost.cpu_s(many.packets, many.size_bytes)
    share = min(max(share, 0.0), 0.95)
    look_s = share / (1 - share) / many.packets
    port_s = max(0.0, look_s - few.wake_s) / (more - ports)
    return SwitchThreads(few.cost, max(0.0, few.wake_s - ports * port_s), port_s)
