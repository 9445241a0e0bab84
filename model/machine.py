"""What a machine can do: what packets, bytes and transfers cost it on each kind of hop.

Costs are seconds of processor time. They are measured once on a machine (`railbed doctor`), with
small fabrics; what a load (`model/load.py`) needs of them is worked out in `model/budget.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf


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
    """The daemons of rail and spine switches. Each has one thread that serves all of its ports.

    Whenever it wakes it looks at every port, so a packet costs more the more ports there are.
    """

    cost: HopCost
    port_s: float

    def cpu_s(self, packets: float, size_bytes: float, ports: float) -> float:
        """What a daemon with so many ports spends."""
        return self.cost.cpu_s(packets, size_bytes) + packets * ports * self.port_s


@dataclass(frozen=True)
class Machine:
    """A machine's costs. `hops` of switches do not include their daemons' threads."""

    key: MachineKey
    hops: Mapping[HopKind, HopCost]
    threads: SwitchThreads
    transfer_s: float
    timer_median_s: float
    timer_p99_s: float

    def hop_cost(self, kind: HopKind, ports: float) -> HopCost:
        """All that one hop costs, where a switch's daemon has so many ports."""
        cost = self.hops[kind]
        if kind is not HopKind.SWITCH:
            return cost
        thread = self.threads
        packet_s = cost.packet_s + thread.cost.packet_s + ports * thread.port_s
        return HopCost(packet_s, cost.byte_s + thread.cost.byte_s)

    def most_packets_per_s(self, kind: HopKind, packet_bytes: float, ports: float) -> float:
        """Packets that a single kind of hop could carry if it had the machine to itself.

        A switch's packets all go through one thread, where there is one daemon.
        """
        cpu_s = self.hop_cost(kind, ports).cpu_s(1, packet_bytes)
        limits = [self.key.cores / cpu_s if cpu_s else inf]
        if kind is HopKind.SWITCH:
            thread_s = self.threads.cpu_s(1, packet_bytes, ports)
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
