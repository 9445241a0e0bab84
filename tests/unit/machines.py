"""Machine profiles for tests: rounded costs of a virtual machine with two cores."""

from dataclasses import replace

from model.measurement.pauses import PauseProfile
from model.prediction.machine import HopCost, HopKind, Machine, MachineKey, SwitchThreads

TWO_CORES = Machine(
    key=MachineKey("6.18", "some processor", 2, "ovs-vswitchd 3.1.0", "user-space"),
    hops={
        HopKind.ENDS: HopCost(8e-6, 0.6e-9),
        HopKind.HB_SWITCH: HopCost(4e-6, 0.3e-9),
        HopKind.SWITCH: HopCost(2e-6, 0.2e-9),
        HopKind.TRANSIT: HopCost(5e-6, 0.3e-9),
    },
    threads=SwitchThreads(HopCost(12e-6, 0.4e-9), 36e-6, 0.25e-6),
    transfer_s=100e-6,
    timer_median_s=80e-6,
    timer_p99_s=120e-6,
    pauses=PauseProfile(lost=0.001, per_s=0.5, half_s=0.002, most_s=0.003, longest_s=0.004),
)


def slower(machine: Machine, factor: float) -> Machine:
    """Return a machine on which everything costs `factor` times as much."""

    def dearer(cost: HopCost) -> HopCost:
        return HopCost(cost.packet_s * factor, cost.byte_s * factor)

    threads = machine.threads
    return replace(
        machine,
        hops={kind: dearer(cost) for kind, cost in machine.hops.items()},
        threads=SwitchThreads(
            dearer(threads.cost), threads.wake_s * factor, threads.port_s * factor
        ),
        transfer_s=machine.transfer_s * factor,
        timer_median_s=machine.timer_median_s * factor,
        timer_p99_s=machine.timer_p99_s * factor,
    )
