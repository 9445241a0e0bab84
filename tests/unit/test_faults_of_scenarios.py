"""Faults in scenario files: refused entries with reasons, and the results of valid ones."""

from pathlib import Path

import pytest

from model.errors import InputError
from model.fabric.spec import FabricKind
from model.faults import Component, Fault, FaultMode
from model.job.recovery import RecoveryStrategy
from scenarios.library import library
from scenarios.loader import load
from scenarios.spec.scenario import Scenario

FABRIC = """\
fabric:
  domains: 4
  domain_size: 4
  platform: dgx-h100
  bandwidth_scale: 20000
  {extra}
workloads:
  - {{collective: all-to-all, algorithm: direct, size: 4 MB}}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path x.yaml in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return Path("x.yaml")


def loaded(file: Path, faults: str, job: str = "", extra: str = "") -> Scenario:
    jobs = f"job: {job}\n" if job else ""
    file.write_text(FABRIC.format(extra=extra) + f"faults: {faults}\n" + jobs)
    return load(file)


def refused(file: Path, faults: str, job: str = "", extra: str = "") -> list[str]:
    with pytest.raises(InputError) as caught:
        loaded(file, faults, job, extra)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ("[{what: nic-link, how: kill}]", "faults.0.how: is no fault mode of a nic-link"),
        ("[{what: nic-link, how: melt}]", "faults.0.how: must be 'down', 'blackhole'"),
        ("[{what: nic}]", "faults.0.what: must be 'nic-link', 'rail-switch'"),
        ("[{what: nic-link, how: degrade}]", "faults.0.rate: is required to degrade a link"),
        ("[{what: nic-link, rate: 50 Gbit/s}]", "faults.0.rate: is required to degrade a link"),
        ("[{what: nic-link, at: 1, at_step: 2}]", "faults.0.at_step: goes without seconds"),
        ("[{what: nic-link, at: -1}]", "faults.0.at: must be at least 0, got -1"),
        ("[{what: nic-link, for: 0}]", "faults.0.for: must be more than 0, got 0"),
        (
            "[{what: nic-link, where: d0g0--rail0, random: 1}]",
            "faults.0.random: goes without names",
        ),
        (
            "[{what: nic-link, where: d0g0--rail1}]",
            "faults.0.where: the rail-only fabric has no nic-link 'd0g0--rail1'; did you mean",
        ),
        ("[{what: nic-link, random: 17}]", "faults.0.random: the rail-only fabric has only 16"),
        ("[{what: spine-switch}]", "faults.0.what: a rail-only fabric of this shape has none"),
        ("[{what: nic-link, fro: 1}]", "faults.0.fro: unknown key 'fro' (did you mean 'for'?)"),
        (
            "[{what: gpu}]",
            "faults.0.what: nobody would do the work of a gpu",
        ),
        (
            "[{what: nic-link}, {what: hb-link}]",
            "faults: on the rail-only fabric d0g0 has no path to d0g1",
        ),
        ("[{what: nic-link, how: flap, for: 1}]", "faults.0.for: is not for a link that flaps"),
    ],
)
def test_what_is_refused(file: Path, faults: str, words: str) -> None:
    found = refused(file, faults)
    assert any(words in problem for problem in found), found


@pytest.mark.parametrize(
    ("faults", "job", "extra", "words"),
    [
        ("[{what: gpu}]", "{strategy: spare-gpu}", "", "fabric.spare_gpus: must be at least 1"),
        (
            "[{what: gpu}]",
            "{strategy: spare-rail-switch}",
            "spare_rail_switches: 1",
            "job.strategy: is for a rail-switch, got gpu",
        ),
        (
            "[{what: gpu}, {what: nic-link}]",
            "{strategy: spare-gpu}",
            "spare_gpus: 1",
            "job.strategy: is about one fault, got 2",
        ),
        (
            "[{what: nic-link, for: 1}]",
            "{strategy: abort-and-restart}",
            "",
            "faults.0.for: goes with reroute alone",
        ),
        (
            "[{what: gpu}]",
            "{strategy: swap-group, group_size: 3}",
            "spare_gpus: 2",
            "job.group_size: must divide domain_size, 4, got 3",
        ),
    ],
)
def test_what_a_recovery_strategy_needs(
    file: Path, faults: str, job: str, extra: str, words: str
) -> None:
    found = refused(file, faults, job, extra)
    assert any(words in problem for problem in found), found


def test_an_entry_becomes_a_fault_on_each_fabric(file: Path) -> None:
    scenario = loaded(file, "[{what: nic-link, how: degrade, rate: 50 Gbit/s, at: 1, for: 2}]")
    expected = Fault(
        component=Component.NIC_LINK,
        mode=FaultMode.DEGRADE,
        target="d0g0--rail0",
        at_s=1,
        for_s=2,
        rate_bps=2_500_000,
        period_s=0.5,
        count=4,
    )
    assert scenario.faults == dict.fromkeys(FabricKind, (expected,))


def test_chance_is_the_same_for_the_same_seed(file: Path) -> None:
    def targets(seed: int) -> list[str]:
        scenario = loaded(file, f"[{{what: nic-link, random: 5}}]\nseed: {seed}")
        return [fault.target for fault in scenario.faults[FabricKind.RAIL_ONLY]]

    assert targets(1) == targets(1)
    assert len(set(targets(1))) == 5
    assert {tuple(targets(seed)) for seed in range(5)} != {tuple(targets(0))}


def test_a_flapping_link_lasts_for_all_its_periods(file: Path) -> None:
    scenario = loaded(file, "[{what: nic-link, how: flap, period: 0.4, count: 5}]")
    (fault,) = scenario.faults[FabricKind.RAIL_ONLY]
    assert fault.for_s == pytest.approx(2.0)


def test_spares_are_besides_the_job(file: Path) -> None:
    extra = "spare_domains: 1\n  spare_gpus: 2\n  spare_rail_switches: 3"
    spec = loaded(file, "[{what: nic-link}]", extra=extra).fabrics[0]
    assert (spec.domains, spec.domain_size, spec.spare_rail_switches) == (5, 6, 3)
    assert (spec.job_domains, spec.job_size, spec.gpus) == (4, 4, 16)


def test_the_library_has_an_experiment_for_every_component_mode_and_strategy() -> None:
    experiments = [scenario for path in library() if (scenario := load(path)).has_faults]
    faults = {
        (kind, fault.component, fault.mode)
        for scenario in experiments
        for kind, on_fabric in scenario.faults.items()
        for fault in on_fabric
    }
    assert {component for _, component, _ in faults} == set(Component)
    assert {mode for _, _, mode in faults} == set(FaultMode)
    assert {scenario.job.strategy for scenario in experiments} == set(RecoveryStrategy)
    both = set(Component) - {Component.SPINE_SWITCH, Component.UPLINK}
    assert {component for kind, component, _ in faults if kind is FabricKind.RAIL_ONLY} >= both
    assert {component for kind, component, _ in faults if kind is FabricKind.RAIL_OPTIMIZED} == set(
        Component
    )
