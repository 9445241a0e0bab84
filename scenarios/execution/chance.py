"""Chance under the virtual clock: each execution has a seed of its own, and can be had again."""

from collections.abc import Callable

from scenarios.planning.machine_profile import is_virtual_machine
from testbed.virtual_machine import seed

BeforeExecution = Callable[[int], None]


def no_chance(_number: int) -> None:
    """Leave the machine as it is."""


def seeding(machine_seed: int, case: str) -> BeforeExecution:
    """Return what seeds the virtual clock's machine for each execution of a case.

    The seed moves the phase of everything that repeats in the machine: link probes, timers,
    samples. A real machine has chances enough.
    """

    def seed_execution(number: int) -> None:
        seed.main(f"{machine_seed}/{case}/{number}")

    return seed_execution if is_virtual_machine() else no_chance
