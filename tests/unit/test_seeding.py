"""Seeds of executions: each its own under the virtual clock, none on a real machine."""

from dataclasses import replace

import pytest

from execution.cases.emulation import seeding, unseeded
from model.fabric.build import build_topology
from model.fabric.link_probes import probe_interval_s
from model.fabric.spec import FabricKind
from model.fabric.topology import Topology
from model.sweep import CLOCK_VARIABLE
from testbed.virtual_machine import seed
from tests.unit.fabrics import spec

FAST = build_topology(spec(FabricKind.RAIL_ONLY, 2, 2))
SLOW = build_topology(replace(FAST.spec, bandwidth_scale=800_000))
Seeded = tuple[str, float]


def seeds(
    monkeypatch: pytest.MonkeyPatch, machine_seed: int, case: str, topology: Topology = FAST
) -> list[Seeded]:
    """The seed and the period of three executions."""
    used: list[Seeded] = []
    monkeypatch.setenv(CLOCK_VARIABLE, "virtual")
    monkeypatch.setattr(seed, "main", lambda *seeded: used.append(seeded))
    before = seeding(machine_seed, case, topology)
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


def test_phases_reach_over_the_interval_of_link_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {period_s for _, period_s in seeds(monkeypatch, 0, "a")} == {seed.PERIOD_S}
    slow = seeds(monkeypatch, 0, "a", SLOW)
    assert {period_s for _, period_s in slow} == {probe_interval_s(SLOW)}


def test_a_real_machine_is_not_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CLOCK_VARIABLE, raising=False)
    assert seeding(0, "a", FAST) is unseeded
