"""Faults in scenario files: refused entries with reasons, and the results of valid ones."""

from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from model.errors import InputError
from model.fabric.build import build_topology
from model.fabric.spec import COMPARED, GBIT, FabricKind
from model.fabric.topology import Topology
from model.faults import Component, Fault, FaultMode, loses_links
from model.job.placement import RecoveryStrategy
from model.workload.transfers.collective import Collective
from scenarios.library_files import LIBRARY, library
from scenarios.load import load
from scenarios.planning.admission import estimated_end_s, latest_end_s
from scenarios.planning.plan import predicted_profile
from scenarios.scenario import Case, Scenario
from tests.unit.fabrics import assume_accepted, spec, topologies
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS
from traffic_gen.workloads.sized_collective import SizedCollective
from traffic_gen.workloads.task import EXACT_UP_TO_GPUS

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
        (
            "[{what: nic-link, how: kill}]",
            "faults.0.how: kill is not a fault mode of nic-link; known: down, blackhole, "
            "blackhole-one-way, degrade, flap",
        ),
        ("[{what: nic-link, how: melt}]", "faults.0.how: must be 'down', 'blackhole'"),
        ("[{what: nic}]", "faults.0.what: must be 'nic-link', 'rail-switch'"),
        ("[{what: nic-link, how: degrade}]", "faults.0.rate: is required for degrade"),
        ("[{what: nic-link, rate: 50 Gbit/s}]", "faults.0.rate: needs how: degrade, got down"),
        (
            "[{what: nic-link, how: degrade, rate: 400 Gbit/s}]",
            "faults.0.rate: must be less than the link's 400 Gbit/s on the rail-only fabric",
        ),
        (
            "[{what: hb-link, how: degrade, rate: 5000 Gbit/s, random: 3}]",
            "faults.0.rate: must be less than the link's 3600 Gbit/s on the rail-only fabric",
        ),
        ("[{what: nic-link, at: 1, at_step: 2}]", "faults.0.at_step: cannot be combined with at"),
        ("[{what: nic-link, at: -1}]", "faults.0.at: must be at least 0, got -1"),
        ("[{what: nic-link, for: 0}]", "faults.0.for: must be more than 0, got 0"),
        (
            "[{what: nic-link, where: d0g0--rail0, random: 1}]",
            "faults.0.random: cannot be combined with where",
        ),
        (
            "[{what: nic-link, where: d0g0--rail1}]",
            "faults.0.where: the rail-only fabric has no nic-link 'd0g0--rail1'; did you mean",
        ),
        ("[{what: nic-link, random: 17}]", "faults.0.random: the rail-only fabric has only 16"),
        (
            "[{what: spine-switch}]",
            "faults.0.what: a rail-only fabric of this shape has none (it has nic-link, "
            "rail-switch, hb-link, hb-switch, gpu, domain, controller)",
        ),
        ("[{what: nic-link, fro: 1}]", "faults.0.fro: unknown key 'fro' (did you mean 'for'?)"),
        (
            "[{what: gpu}]",
            "faults.0.what: loss of a gpu needs a replacement",
        ),
        ("[{what: domain}]", "job.strategy is reroute (use spare-domain)"),
        (
            "[{what: nic-link}, {what: hb-link}]",
            "faults: on the rail-only fabric with all faults at once, as when degraded, d0g0 has "
            "no path to d0g1: no execution would complete",
        ),
        ("[{what: nic-link, how: flap, for: 1}]", "faults.0.for: cannot be combined with flap"),
        (
            "[{what: nic-link, where: [d9g9--rail0, d8g8--rail0]}]",
            "has no nic-link 'd9g9--rail0' and 1 other; did you mean",
        ),
        (
            "[{what: nic-link, how: degrade, rate: 1 kbit/s}]",
            "leaves 0.05 bit/s, below the 10000 that can be shaped",
        ),
        ("[{what: nic-link, count: 3}]", "faults.0.count: needs how: flap, got down"),
        ("[{what: nic-link, how: blackhole, period: 1}]", "faults.0.period: needs how: flap, got"),
        (
            "[{what: nic-link, where: [d0g0--rail0, d0g0--rail0]}]",
            "faults.0.where: names d0g0--rail0 twice",
        ),
        (
            "[{what: controller, how: kill, for: 2}, {what: spine-switch, how: upgrade, at: 1}]",
            "faults.1.how: upgrade needs the controller to drain the switch, and",
        ),
        (
            "[{what: controller, how: kill, for: 0.1, at: 0}, "
            "{what: rail-switch, how: upgrade, at_step: 2}]",
            "faults.1.how: upgrade needs the controller to drain the switch, and",
        ),
        (
            "[{what: controller, how: kill}, {what: nic-link, at: 0.5}]",
            "faults.1.what: needs the controller, which another fault kills for good",
        ),
        (
            "[{what: nic-link, for: 0.1}, {what: controller, how: kill, at: 2}]",
            "faults.0.what: needs the controller",
        ),
        (
            "[{what: nic-link, at: 0.5}, {what: controller, how: kill, at_step: 3}]",
            "faults.0.what: needs the controller",
        ),
    ],
)
def test_what_is_refused(file: Path, faults: str, words: str) -> None:
    found = refused(file, faults)
    assert any(words in problem for problem in found), found
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("faults", "job", "told"),
    [
        ("[{what: nic-link}]", "", ()),
        ("[]", "", ()),
        (
            "[{what: nic-link}]",
            "{restart_time: 1, group_size: 3}",
            (
                "job.restart_time: job.strategy reroute does not use it",
                "job.group_size: job.strategy reroute does not use it",
            ),
        ),
        ("[{what: nic-link}]", "{strategy: abort-and-restart, restart_time: 1}", ()),
        (
            "[{what: nic-link}]",
            "{strategy: abort-and-restart}\nexpect: {replay_within: 0.1, blackout_ms: 9}",
            ("expect.replay_within: by job.strategy abort-and-restart, nothing is replayed",),
        ),
        (
            "[{what: nic-link}]",
            "{}\ncheck_data: true\nexpect: {ratio_within: 0.01, replay_within: 0.1}",
            ("expect.ratio_within, expect.replay_within: by check_data, no times are judged",),
        ),
        (
            "[]",
            "{}\ncheck_data: true\nexpect: {ratio_within: 0.01}",
            ("expect.ratio_within: by check_data, no times are judged",),
        ),
        (
            "[]",
            "{restart_time: 1}\nprobed_pairs: 9\nexpect: {blackout_ms: 9}",
            ("job.restart_time, expect.blackout_ms, probed_pairs: there are no faults",),
        ),
    ],
)
def test_keys_of_recovery_and_of_verdicts_without_effect_are_told(
    file: Path, faults: str, job: str, told: tuple[str, ...]
) -> None:
    assert loaded(file, faults, job).left_out == told


@pytest.mark.parametrize("scale", ["20000", "auto"])
def test_wrong_names_and_algorithms_are_refused_together(scale: str) -> None:
    changes = [
        f"fabric.bandwidth_scale={scale}",
        "fabric.domains=3",
        "fabric.domain_size=3",
        "workloads.0={collective: all-reduce, algorithm: halving-doubling, size: 8 MB}",
        "faults=[{what: nic-link, where: [d9g9--rail0]}]",
    ]
    with pytest.raises(InputError) as caught:
        load(LIBRARY / "quickstart.yaml", changes)
    assert "no nic-link 'd9g9--rail0'" in str(caught.value)
    assert "number of GPUs must be a power of two, got 9" in str(caught.value)


@pytest.mark.parametrize(
    ("faults", "job", "extra", "words"),
    [
        ("[{what: gpu}]", "{strategy: spare-gpu}", "", "fabric.spare_gpus: must be at least 1"),
        (
            "[{what: gpu}]",
            "{strategy: spare-rail-switch}",
            "spare_rail_switches: 1",
            "job.strategy: needs a fault of a rail-switch, got gpu "
            "(use spare-domain, spare-gpu, remote-gpu, swap-group)",
        ),
        (
            "[{what: nic-link}]",
            "{strategy: spare-gpu}",
            "spare_gpus: 1",
            "got nic-link (use reroute, abort-and-restart)",
        ),
        (
            "[{what: nic-link, random: 2}]",
            "{strategy: abort-and-restart}",
            "",
            "needs exactly one broken component, got 2 (break one, or use reroute)",
        ),
        (
            "[{what: gpu}, {what: nic-link}]",
            "{strategy: spare-gpu}",
            "spare_gpus: 1",
            "job.strategy: needs exactly one broken component, got 2",
        ),
        (
            "[{what: gpu, how: kill, where: [d0g0, d1g0]}]",
            "{strategy: spare-gpu}",
            "spare_gpus: 1",
            "job.strategy: needs exactly one broken component, got 2",
        ),
        (
            "[{what: gpu, random: 3}]",
            "{strategy: spare-domain}",
            "spare_domains: 1",
            "job.strategy: needs exactly one broken component, got 3 (break one)",
        ),
        (
            "[{what: nic-link, for: 1}]",
            "{strategy: abort-and-restart}",
            "",
            "faults.0.for: needs job.strategy reroute",
        ),
        (
            "[{what: gpu}]",
            "{strategy: swap-group, group_size: 3}",
            "spare_gpus: 2",
            "job.group_size: must divide domain_size, 4, got 3",
        ),
        (
            "[{what: controller, how: kill}]",
            "{strategy: abort-and-restart}",
            "",
            "abort-and-restart needs a failure of the fabric: a killed controller stops no job "
            "(use reroute)",
        ),
        (
            "[{what: rail-switch, where: [rail4]}]",
            "{strategy: spare-rail-switch}",
            "spare_rail_switches: 1",
            "has no rail-switch 'rail4'",
        ),
        (
            "[{what: gpu, where: [d0g0]}]",
            "{strategy: remote-gpu}",
            "nics_per_domain: 1\n  spare_domains: 1",
            "has no path to d0g1: no execution would complete",
        ),
        (
            "[{what: spine-switch}]",
            "{}",
            "kinds: rail-optimized\n  nic_ports: 2\n  transport: roce\n  spine_selection: spray",
            "spine-switch cannot be modeled: a flow may end on both ports of a NIC",
        ),
    ],
)
def test_what_a_recovery_strategy_needs(
    file: Path, faults: str, job: str, extra: str, words: str
) -> None:
    found = refused(file, faults, job, extra)
    assert any(words in problem for problem in found), found
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    "faults",
    [
        "[{what: nic-link, at: 0.2}, {what: controller, how: kill, at: 0.5}]",
        "[{what: controller, how: kill, for: 0.1}, {what: nic-link, at: 0.5, for: 0.1}]",
        "[{what: controller, how: kill}]",
        "[{what: controller, how: kill, for: 0.1, at: 0}, {what: rail-switch, how: upgrade}]",
        "[{what: rail-switch, how: upgrade}, {what: controller, how: kill, at: 0.5, for: 0.1}]",
    ],
)
def test_a_controller_may_die_once_it_has_rerouted_or_return(file: Path, faults: str) -> None:
    loaded(file, faults)


# Latencies of 10 ms, the longest, included; most of each passes while a last segment is paid for.
@pytest.mark.parametrize(
    ("faults", "message"),
    [
        (
            "[{what: nic-link, at: 50}]",
            "x.yaml:9 faults.0.at: must be before the end of rail-only/all-to-all/direct, 1.35 s, "
            "got 50 (start it earlier, or send more in workloads.0)",
        ),
        (
            "[{what: nic-link}, {what: nic-link, at_step: 12}]",
            "x.yaml:9 faults.1.at_step: must be less than 12, the steps of "
            "rail-only/all-to-all/direct, got 12 "
            "(use at most 11)",
        ),
    ],
)
def test_a_fault_after_the_end_is_refused(file: Path, faults: str, message: str) -> None:
    assert refused(file, faults) == [message]


@pytest.mark.parametrize("when", ["at: 1.24", "at_step: 11"])
def test_a_fault_before_the_end_is_accepted(file: Path, when: str) -> None:
    assert loaded(file, f"[{{what: nic-link, {when}}}]").has_faults


def test_a_fault_must_begin_in_the_shortest_case(file: Path) -> None:
    loaded(file, "[{what: nic-link}]")
    short = "{collective: all-reduce, algorithm: hierarchical, size: 400 kB, kinds: rail-optimized}"
    more = FABRIC.format(extra="") + f"  - {short}\nfaults: [{{what: nic-link}}]\n"
    file.write_text(more)
    with pytest.raises(InputError) as caught:
        load(file)
    (problem,) = map(str, caught.value.problems)
    assert problem.startswith(
        "x.yaml:10 faults.0.at: must be before the end of rail-optimized/all-reduce"
    )
    assert problem.endswith("got 0.3 (the default) (start it earlier, or send more in workloads.1)")


def test_large_fabrics_are_estimated_with_a_margin(file: Path) -> None:
    large = FABRIC.format(extra="").replace("domains: 4", "domains: 12")
    for at_s, wanted in ((3, True), (50, False)):
        file.write_text(large + f"faults: [{{what: nic-link, at: {at_s}}}]\n")
        if wanted:
            assert load(file).fabrics[0].gpus > EXACT_UP_TO_GPUS
        else:
            with pytest.raises(InputError, match=r"faults.0.at: must be before .*, got 50"):
                load(file)


@given(
    st.sampled_from(sorted(ALGORITHMS)),
    topologies(5, 4),
    st.sampled_from([1.0, 4.0]),
    st.sampled_from([100, 400, 3600]),
    st.sampled_from([1e5, 1e8]),
)
@example(
    (Collective.ALL_TO_ALL, "direct"),
    build_topology(spec(FabricKind.RAIL_ONLY, 4, 1, spines=2, rail_leaves=2)),
    4.0,
    100,
    1e8,
)
def test_nothing_that_could_run_is_refused(
    named: tuple[Collective, str],
    topology: Topology,
    oversubscription: float,
    hb_gbit: int,
    size: float,
) -> None:
    """Any fault before the end that a run may predict, by its latencies, is before both limits."""
    hb = replace(topology.spec.hb, rate_bps=hb_gbit * GBIT)
    nic = replace(topology.spec.nic, oversubscription=oversubscription)
    fabric = replace(topology.spec, hb=hb, nic=nic)
    assume_accepted(named, *fabric.job_shape)
    case = Case("", fabric.kind, SizedCollective(*named, fabric.job_shape, size), 2.0)
    slow_s = predicted_profile(case, fabric, path_s=0.005).completion_s
    assert slow_s <= latest_end_s(case, fabric)
    assert slow_s <= estimated_end_s(case, fabric)


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
    assert scenario.faults == dict.fromkeys(COMPARED, (expected,))


@pytest.mark.parametrize(
    ("first", "second"), [("at: 0.1", "at: 0.2"), ("at_step: 1", "at_step: 2")]
)
def test_faults_are_in_the_order_in_which_they_begin(file: Path, first: str, second: str) -> None:
    """A pair is affected that a fault leads to a link which a later one breaks."""
    scenario = loaded(file, f"[{{what: nic-link, {second}}}, {{what: rail-switch, {first}}}]")
    targets = [fault.target for fault in scenario.faults[FabricKind.RAIL_ONLY]]
    assert targets == ["rail0", "d0g0--rail0"]


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
    assert (spec.domains, spec.domain_size, spec.spares.rail_switches) == (5, 6, 3)
    assert (spec.job_domains, spec.job_size, spec.gpus) == (4, 4, 16)


def experiments_of_the_library() -> list[Scenario]:
    return [scenario for path in library() if (scenario := load(path)).has_faults]


def test_every_fault_of_the_library_loses_links_or_leaves_them_a_rate() -> None:
    for scenario in experiments_of_the_library():
        for fault in chain.from_iterable(scenario.faults.values()):
            assert (fault.rate_bps is None) is loses_links(fault.mode), fault.name


def test_the_library_has_an_experiment_for_every_component_mode_and_strategy() -> None:
    experiments = experiments_of_the_library()
    faults = {
        (kind, fault.component, fault.mode)
        for scenario in experiments
        for kind, on_fabric in scenario.faults.items()
        for fault in on_fabric
    }
    assert {component for _, component, _ in faults} == set(Component)
    assert {mode for _, _, mode in faults} == set(FaultMode)
    assert {scenario.keys.job.strategy for scenario in experiments} == set(RecoveryStrategy)
    both = set(Component) - {Component.SPINE_SWITCH, Component.UPLINK}
    assert {component for kind, component, _ in faults if kind is FabricKind.RAIL_ONLY} >= both
    assert {component for kind, component, _ in faults if kind is FabricKind.RAIL_OPTIMIZED} == set(
        Component
    )
