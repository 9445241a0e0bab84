"""What a machine can do: what packets, bytes and transfers cost it on each kind of hop.

Costs are seconds of processor time. They are measured once on a machine (`railbed doctor`), with
small fabrics; what a load (`load.py`) needs of them is worked out in `budget.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from model.measurement.pauses import PauseProfile

# How finely the cost of a wake-up is looked for, and how far.
WAKE_STEP_S, WAKE_STEPS = 1e-6, 200


class HopKind(StrEnum):
    """What handles packets: a flow has one pair of ends, and a path any number of the others."""

    ENDS = "sender and receiver"
    HB_SWITCH = "HB switch"
    SWITCH = "rail or spine switch"
    FORWARDING = "forwarding GPU"


@dataclass(frozen=True)
class HopCost:
    """Processor time of one hop, with the shaped link behind it."""

    packet_s: float
    byte_s: float

    def cpu_s(self, packets: float, size_bytes: float) -> float:
        """What so many packets with so many bytes in all cost."""
        return packets * self.packet_s + size_bytes * self.byte_s


@dataclass(frozen=True)
class MachineKey:
    """What a measurement is valid for."""

    kernel: str
    cpu: str
    cores: int
    open_vswitch: str
    datapath: str


@dataclass(frozen=True)
class SwitchThreads:
    """The daemon of all rail and spine switches: one thread serves all ports.

    Whenever it wakes it looks at every port. At low load each packet wakes it; at high load what
    has come meanwhile waits for the next look: being busy is not being overloaded.
    """

    cost: HopCost
    wake_s: float
    port_s: float

    def waking(self, packets_per_s: float, ports: float) -> float:
        """The part of a second for waking up; a look takes in what came during the one before."""
        looks_s = packets_per_s * (self.wake_s + ports * self.port_s)
        return looks_s / (1 + looks_s)


@dataclass(frozen=True)
class ThreadSample:
    """A load of a switch's thread: per second packets, bytes and processor seconds."""

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
        """All that one hop costs at high load, in a switch's thread too."""
        cost, thread = self.hops[kind], self.threads.cost
        if kind is not HopKind.SWITCH:
            return cost
        return HopCost(cost.packet_s + thread.packet_s, cost.byte_s + thread.byte_s)

    def most_packets_per_s(self, kind: HopKind, packet_bytes: float) -> float:
        """Packets that a single kind of hop could carry if it had the machine to itself.

        Packets of rail and spine switches all go through one thread.
        """
        cpu_s = self.hop_cost(kind).cpu_s(1, packet_bytes)
        limits = [self.key.cores / cpu_s if cpu_s else inf]
        if kind is HopKind.SWITCH:
            thread_s = self.threads.cost.cpu_s(1, packet_bytes)
            limits.append(1 / thread_s if thread_s else inf)
        return min(limits)


def solve_cost(slow: tuple[float, float, float], fast: tuple[float, float, float]) -> HopCost:
    """The cost of a hop from two loads, each packets, bytes and processor seconds.

    Where noise would make one of the two costs negative, it is nothing, and the other one is
    as high as the dearer of the loads asks for.
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
    """What a thread with so many ports costs, from three loads, one of them light.

    For every cost of a wake-up, two loads give those of packets and bytes; the light load tells
    which is right. How the wake-up depends on ports is not known yet.
    """

    def candidate(wake_s: float) -> SwitchThreads:
        waking = SwitchThreads(HopCost(0.0, 0.0), wake_s, 0.0)
        loads = (
            (load.packets, load.size_bytes, load.busy - waking.waking(load.packets, ports))
            for load in (small, large)
        )
        return SwitchThreads(solve_cost(*loads), wake_s, 0.0)

    def miss(found: SwitchThreads) -> float:
        work = found.cost.cpu_s(light.packets, light.size_bytes)
        return abs(work + found.waking(light.packets, ports) - light.busy)

    return min((candidate(step * WAKE_STEP_S) for step in range(WAKE_STEPS)), key=miss)


def with_ports(few: SwitchThreads, ports: float, many: ThreadSample, more: float) -> SwitchThreads:
    """Divide the cost of a wake-up with `ports` ports by the load of a thread with `more`."""
    waking = many.busy - few.cost.cpu_s(many.packets, many.size_bytes)
    waking = min(max(waking, 0.0), 0.95)
    look_s = waking / (1 - waking) / many.packets
    port_s = max(0.0, look_s - few.wake_s) / (more - ports)
    return SwitchThreads(few.cost, max(0.0, few.wake_s - ports * port_s), port_s)
