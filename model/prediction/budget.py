"""Processor time that a load needs, and how much of it a faithful emulation may take."""

from collections.abc import Mapping
from dataclasses import dataclass

from model.fabric.spec import FabricSpec
from model.prediction.load import Load
from model.prediction.machine import HopKind, Machine

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
    def cpu(self) -> float:
        """The share of all cores, including the agents' work for each transfer."""
        return self.data + self.transfers

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
    leaves = (spec.domain_size + spec.spares.rail_switches) * spec.nic.leaves
    uplinks = leaves * spec.nic.spines if spec.has_spines else 0
    return spec.domains * spec.domain_size + 2 * uplinks


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
