"""Seed the virtual machine before each execution, so that it can be repeated exactly."""

from collections.abc import Callable

from model.fabric.link_probes import probe_interval_s
from model.fabric.topology import Topology
from scenarios.planning.machine_profile import in_virtual_clock
from testbed.virtual_machine import seed

BeforeExecution = Callable[[int], None]


def unseeded(_number: int) -> None:
    """Leave the machine as it is."""


def seeding(machine_seed: int, case: str, topology: Topology) -> BeforeExecution:
    """Return a callback that seeds the virtual machine before each execution of a case.

    The seed shifts the phase of all periodic work in the machine: link probes, timers, samples. On
    a real machine, the callback does nothing: phases are random there.
    """
    period_s = max(seed.PERIOD_S, probe_interval_s(topology))

    def seed_execution(number: int) -> None:
        seed.main(f"{machine_seed}/{case}/{number}", period_s)

    return seed_execution if in_virtual_clock() else unseeded
