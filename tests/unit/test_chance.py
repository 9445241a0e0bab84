"""Seeds of executions: each its own under the virtual clock, none on a real machine."""

import pytest

from scenarios.execution.cases.chance import no_chance, seeding
from testbed.virtual_machine import seed
from testbed.virtual_machine.job import CLOCK_VARIABLE


def seeds(monkeypatch: pytest.MonkeyPatch, machine_seed: int, case: str) -> list[str]:
    used: list[str] = []
    monkeypatch.setenv(CLOCK_VARIABLE, "virtual")
    monkeypatch.setattr(seed, "main", used.append)
    before = seeding(machine_seed, case)
    for number in range(3):
        before(number)
    return used


def test_executions_have_seeds_of_their_own_that_can_be_had_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [
        seeds(monkeypatch, machine_seed, case) for machine_seed in (0, 1) for case in ("a", "b")
    ]
    assert len({one for several in found for one in several}) == 12
    assert seeds(monkeypatch, 1, "b") == found[-1]


def test_a_real_machine_is_not_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CLOCK_VARIABLE, raising=False)
    assert seeding(0, "a") is no_chance
