"""`auto` values and refused scenarios, with machine profiles made for the tests."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from model.errors import InputError
from model.fabric.shaping import MIN_RATE_BPS, SEGMENT_PACKETS
from model.fabric.spec import COMPARED, GBIT, FabricKind
from model.prediction.load import CPU_BUDGET, THREAD_BUDGET, Load, Need, switch_ports
from model.prediction.machine import HopCost, HopKind, Machine
from model.workload.transfers.collective import Collective
from results.render.terminal import print_sections
from results.sections.section import Section
from scenarios.format.units import round_down
from scenarios.library_files import LIBRARY, library
from scenarios.load import load
from scenarios.planning.auto import (
    FINE_PACKETS,
    MAX_LINK_BPS,
    SHORTEST_S,
    auto_bandwidth_scale,
    auto_time_dilation,
    least_dilation,
    peak,
)
from scenarios.planning.plan import (
    CasePlan,
    estimate,
    heaviest,
    machine_section,
    notes,
    plan,
    plan_section,
    rail_crossings,
    real_task,
)
from scenarios.scenario import Case
from tests.unit.fabrics import assume_accepted
from tests.unit.fabrics import spec as fabric_spec
from tests.unit.machines import TWO_CORES, slower
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS
from traffic_gen.workloads.sized_collective import SizedCollective

QUICKSTART = LIBRARY / "quickstart.yaml"
AUTO = "fabric.bandwidth_scale=auto"
ALGORITHM = st.sampled_from(sorted(ALGORITHMS))
FACTOR = st.floats(0.1, 20)


@pytest.mark.parametrize("size", [4, 64])
def test_one_domain_of_all_gpus_sends_nothing_by_nics(size: int) -> None:
    """The ideal network; small enough to be followed, and estimated."""
    shape = ["fabric.domains=1", f"fabric.domain_size={size}", "allow_overload=true"]
    for one in plan(load(QUICKSTART, shape, machine=TWO_CORES), TWO_CORES):
        assert one.exact == (size == 4)
        assert one.load.packets[HopKind.HB_SWITCH] > 0
        assert one.load.packets[HopKind.SWITCH] == 0


def test_one_gpu_is_no_fabric() -> None:
    with pytest.raises(InputError, match="must have at least 2 GPUs without spares, got 1"):
        load(QUICKSTART, ["fabric.domains=1", "fabric.domain_size=1"])


@settings(max_examples=40)
@given(ALGORITHM, st.sampled_from(COMPARED), st.integers(2, 40), FACTOR)
def test_auto_never_exceeds_the_budget(
    algorithm: tuple[Collective, str], kind: FabricKind, domains: int, factor: float
) -> None:
    assume_accepted(algorithm, domains, 4)
    job = real_task(SizedCollective(*algorithm, (domains, 4), 1e9), fabric_spec(kind, domains, 4))
    machine = slower(TWO_CORES, factor)
    chosen = auto_bandwidth_scale([job], machine)
    need = peak(job, machine, chosen.value)
    if "too fast" not in chosen.why:
        assert need.data <= CPU_BUDGET
        assert need.thread <= THREAD_BUDGET
    else:
        assert job.spec.nic.rate_bps / chosen.value < 1.2 * MIN_RATE_BPS
    rates = job.spec.hb.rate_bps, job.spec.nic.rate_bps
    assert max(rates) / chosen.value <= MAX_LINK_BPS * (1 + 1e-9)


@settings(max_examples=40)
@given(ALGORITHM, st.sampled_from(COMPARED), st.floats(1, 20))
def test_a_more_capable_machine_is_never_slower(
    algorithm: tuple[Collective, str], kind: FabricKind, factor: float
) -> None:
    assume_accepted(algorithm, 4, 4)
    job = real_task(SizedCollective(*algorithm, (4, 4), 1e9), fabric_spec(kind, 4, 4))
    lesser = slower(TWO_CORES, factor)
    fast, slow = (auto_bandwidth_scale([job], machine) for machine in (TWO_CORES, lesser))
    assert fast.value <= slow.value
    fast, slow = (auto_time_dilation(job, 20_000, machine) for machine in (TWO_CORES, lesser))
    assert fast.value <= slow.value


@settings(max_examples=40)
@given(
    algorithm=ALGORITHM,
    kind=st.sampled_from(COMPARED),
    shape=st.tuples(st.integers(2, 6), st.integers(2, 5)),
    rates=st.tuples(st.sampled_from([100, 400, 3600]), st.sampled_from([25, 100, 400])),
    oversubscription=st.sampled_from([1, 3, 8]),
    grain=st.sampled_from([FINE_PACKETS, SEGMENT_PACKETS]),
    factor=st.none() | FACTOR,
)
def test_auto_is_the_smallest_scale_that_links_and_machine_carry(
    algorithm: tuple[Collective, str],
    kind: FabricKind,
    shape: tuple[int, int],
    rates: tuple[int, int],
    oversubscription: int,
    grain: int,
    factor: float | None,
) -> None:
    """Without a measured machine, what two cores are known to carry; half of it in fine grain."""
    assume_accepted(algorithm, *shape)
    fabric = replace(fabric_spec(kind, *shape), grain_packets=grain)
    hb = replace(fabric.hb, rate_bps=rates[0] * GBIT)
    nic = replace(fabric.nic, rate_bps=rates[1] * GBIT, oversubscription=oversubscription)
    job = real_task(SizedCollective(*algorithm, shape, 1e9), replace(fabric, hb=hb, nic=nic))
    machine = None if factor is None else slower(TWO_CORES, factor)

    def is_carried(scale: float) -> bool:
        if machine is None:
            share = 0.5 if grain == FINE_PACKETS else 1.0
            nic_bps, hb_bps = (total * share / fabric.gpus for total in (320e6, 4e9))
            limits = hb.rate_bps / min(240e6, hb_bps), nic.rate_bps / min(20e6, nic_bps)
            return max(limits) <= scale * (1 + 1e-9)
        profile = estimate(job).scaled(scale, 1.0)
        window_s = 1.0 if profile.contention > 1.99 else 0.0
        need = heaviest(profile, machine, switch_ports(job.spec), window_s)[1]
        return need.data <= CPU_BUDGET and need.thread <= THREAD_BUDGET

    scale = auto_bandwidth_scale([job], machine).value
    of_links = job.spec.emulated_rates_bps.values()
    least, most = max(of_links) / MAX_LINK_BPS, min(of_links) / MIN_RATE_BPS
    assert least <= scale * (1 + 1e-9)
    assert scale <= most * (1 + 1e-9)
    assert is_carried(scale) or scale == round_down(most)
    smaller = round_down(scale * (1 - 1e-6))
    assert smaller < least or not is_carried(smaller)


@settings(max_examples=40)
@given(ALGORITHM, st.tuples(st.integers(2, 6), st.integers(2, 5)), FACTOR, st.floats(1e-6, 0.01))
def test_auto_dilates_time_for_the_scheduler_the_timers_and_the_agents_and_no_more(
    algorithm: tuple[Collective, str], shape: tuple[int, int], factor: float, late_s: float
) -> None:
    """Wake-ups take a hundredth of an execution at most, agents a tenth of the cores."""
    assume_accepted(algorithm, *shape)
    task = SizedCollective(*algorithm, shape, 1e9)
    job, sent = real_task(task, fabric_spec(FabricKind.RAIL_ONLY, *shape)), task.transfers()
    machine = replace(slower(TWO_CORES, factor), timer_p99_s=late_s)
    of_agents_s = len(sent) * machine.transfer_s / 2
    least_s = max(1.5, sent.longest_chain * late_s * 100, of_agents_s * 10)
    dilation, _ = least_dilation(job, machine)
    assert least_s <= estimate(job).completion_s * dilation * (1 + 1e-9)
    assert estimate(job).completion_s * dilation <= 1.1 * least_s
    of_all, of_less = (auto_time_dilation(job, dilation * part, machine) for part in (0.9, 1.1))
    assert (of_all.value, of_all.why) == (0.9 * dilation, "all of the data is sent")
    assert of_less.value == dilation


def test_auto_says_why_and_is_part_of_what_a_run_keeps() -> None:
    scenario = load(QUICKSTART, [AUTO], TWO_CORES)
    assert [*scenario.chosen] == ["bandwidth_scale", "bucket_depth"]
    scale, depth = scenario.chosen.values()
    assert scale.value == scenario.fabrics[0].bandwidth_scale
    assert "of at most" in scale.why or "no link above" in scale.why
    assert {spec.bucket_depth_s for spec in scenario.fabrics} == {depth.value}


@pytest.mark.parametrize(
    ("most_s", "depth_s"), [(0.0, 0.01), (0.003, 0.01), (0.0141, 0.015), (0.2, 0.02)]
)
def test_buckets_are_as_deep_as_pauses_are_long_within_bounds(
    most_s: float, depth_s: float
) -> None:
    machine = replace(TWO_CORES, pauses=replace(TWO_CORES.pauses, most_s=most_s))
    chosen = load(QUICKSTART, machine=machine).chosen["bucket_depth"]
    assert chosen.value == depth_s
    assert f"{most_s * 1e3:.3g} ms" in chosen.why
    assert "not measured" in load(QUICKSTART).chosen["bucket_depth"].why
    given = load(QUICKSTART, ["fabric.bucket_depth=0.002"], machine)
    assert given.fabrics[0].bucket_depth_s == 0.002
    assert "bucket_depth" not in given.chosen


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("0.0005", "must be at least 0.001, got 0.0005"),
        ("1", "must be at most 0.02, got 1"),
        ("deep", "must be a number or 'auto', got 'deep'"),
    ],
)
def test_a_depth_out_of_bounds_is_refused(value: str, message: str) -> None:
    assert refusal([f"fabric.bucket_depth={value}"]) == f"--set fabric.bucket_depth: {message}"


def test_a_machine_that_was_never_measured_gets_what_is_known_to_work() -> None:
    scenario = load(QUICKSTART, [AUTO])
    assert scenario.fabrics[0].bandwidth_scale == 20_000
    assert "was not measured" in scenario.chosen["bandwidth_scale"].why


def test_a_machine_that_was_never_measured_gets_links_that_can_be_shaped() -> None:
    grid = "fabric.domains=32", "fabric.domain_size=8", "fabric.oversubscription=16"
    scenario = load(QUICKSTART, [AUTO, *grid])
    for spec in scenario.fabrics:
        assert spec.bandwidth_scale == 250_000
    assert "too fast for two cores" in scenario.chosen["bandwidth_scale"].why


def test_no_fabric_has_links_above_those_that_were_measured() -> None:
    """The uplinks of the second fabric, to a single spine switch, are its fastest links."""
    grid = "fabric.domains=12", "fabric.domain_size=1", "fabric.spines=1"
    own = "fabric.platform=null", "fabric.hb_rate=400 Gbit/s", "fabric.nic_rate=800 Gbit/s"
    ring = "workloads=[{collective: all-reduce, algorithm: ring, size: 1 GB}]"
    for spec in load(QUICKSTART, [AUTO, *grid, *own, ring]).fabrics:
        assert max(spec.emulated_rates_bps.values()) <= MAX_LINK_BPS


@pytest.mark.parametrize("path", library(), ids=lambda path: path.stem)
def test_the_library_can_be_run_on_two_cores(path: Path) -> None:
    chosen = {key.split()[0] for key in load(path, machine=TWO_CORES).chosen}
    assert chosen <= {"bucket_depth", "grain", "size_scale"}


def refusal(overrides: list[str], machine: Machine = TWO_CORES) -> str:
    with pytest.raises(InputError) as caught:
        load(QUICKSTART, overrides, machine)
    assert caught.value.exit_code == 2
    return str(caught.value)


@settings(max_examples=10)
@given(st.floats(1, 300))
def test_what_is_too_fast_is_refused_and_the_hint_works(scale: float) -> None:
    said = refusal([f"fabric.bandwidth_scale={scale}"])
    assert said.startswith("--set fabric.bandwidth_scale: ")
    assert "of all cores in its busiest second" in said
    hinted = re.search(r"\(use (\d+) as `auto` does; (\d+) is the least accepted\)", said)
    assert hinted
    better, least = hinted.groups()
    for accepted in (better, least):
        scenario = load(QUICKSTART, [f"fabric.bandwidth_scale={accepted}"], TWO_CORES)
        assert scenario.fabrics[0].bandwidth_scale == float(accepted)
    assert float(better) >= float(least)
    assert "busiest second" in refusal([f"fabric.bandwidth_scale={0.9 * float(least)}"])


@pytest.mark.parametrize(
    ("scale", "reason"),
    [
        (1600, "rail-only/all-to-all/two-step would have steps of"),
        (100000, "the agents of rail-only/all-to-all/two-step would need"),
    ],
)
def test_steps_that_are_too_short_are_refused_and_the_hint_works(scale: int, reason: str) -> None:
    said = refusal([f"workloads.1.size_scale={scale}", "fabric.kinds=[rail-only]"])
    assert said.startswith(f"--set workloads.1.size_scale: {reason}")
    better = said.rpartition("(use ")[2].rstrip(")")
    load(QUICKSTART, [f"workloads.1.size_scale={better}"], TWO_CORES)


def test_steps_shorter_than_the_kernels_slack_allows_are_refused_without_a_measurement() -> None:
    tiny = ["workloads.1.size=64 kB", "workloads.1.size_scale=1600", "fabric.kinds=[rail-only]"]
    with pytest.raises(InputError, match=r"steps of .*: timers are late by 50 us"):
        load(QUICKSTART, tiny)
    for spared in ("check_data=true", "allow_overload=true"):
        assert load(QUICKSTART, [*tiny, spared])


@pytest.mark.parametrize("limit", [0.05, 0.001])
def test_thousands_of_steps_are_long_enough_by_auto_and_by_what_a_refusal_hints_at(
    limit: float, tmp_path: Path
) -> None:
    path = tmp_path / "ring.yaml"
    path.write_text(
        "fabric: {kinds: rail-only, domains: 256, domain_size: 8, platform: dgx-h100, "
        "bandwidth_scale: 200000}\n"
        "workloads: [{collective: all-reduce, algorithm: ring, size: 1 GB, time_dilation: auto}]\n"
    )
    assert (
        "4094 steps, each at least 50 us late"
        in [chosen.why for chosen in load(path).chosen.values()][-1]
    )
    strict = [f"expect.ratio_limit={limit}", "expect.ratio_within=0.001"]
    with pytest.raises(InputError, match=rf"which must be at most {limit} of a step") as refused:
        load(path, [*strict, "workloads.0.time_dilation=36"])
    better = re.search(r"\(use ([\d.]+)\)", str(refused.value))
    assert better
    assert load(path, [*strict, f"workloads.0.time_dilation={better[1]}"])


def test_steps_may_be_short_where_data_is_checked_and_no_time_judged() -> None:
    short = ["workloads.1.size_scale=1600", "fabric.kinds=[rail-only]"]
    assert "would have steps" in refusal(short)
    assert load(QUICKSTART, [*short, "check_data=true"], TWO_CORES).keys.check_data


def test_more_real_data_than_an_agent_holds_is_refused() -> None:
    whole = ["fabric.kinds=rail-only", "fabric.bandwidth_scale=20000", "check_data=true"]
    work = (
        "workloads=[{collective: all-reduce, algorithm: hierarchical, size: SIZE, size_scale: 1}]"
    )
    load(QUICKSTART, [*whole, work.replace("SIZE", "1 GB")])
    message = (
        "--set check_data: rail-only/all-reduce/hierarchical: must have at most 1073741824 bytes "
        "to check, got 2000000000 (use a larger size_scale, or leave out check_data)"
    )
    with pytest.raises(InputError, match=re.escape(message)):
        load(QUICKSTART, [*whole, work.replace("SIZE", "2 GB")])


def test_overload_can_be_asked_for() -> None:
    overrides = ["fabric.bandwidth_scale=100", "allow_overload=true"]
    assert load(QUICKSTART, overrides, TWO_CORES).fabrics[0].bandwidth_scale == 100


def test_a_machine_that_was_never_measured_refuses_nothing() -> None:
    assert load(QUICKSTART, ["fabric.bandwidth_scale=100"]).fabrics[0].bandwidth_scale == 100


DILATED = """\
fabric:
  kinds: [rail-only]
  domains: 4
  domain_size: 4
  platform: dgx-h100
  bandwidth_scale: 20000
workloads:
  - collective: all-to-all
    algorithm: two-step
    size: deepspeed-moe-1.3b-all-to-all
    time_dilation: {}
"""


def dilated(folder: Path, value: object, *overrides: str) -> float:
    """Return the time dilation of a scenario with this value of `time_dilation`."""
    place = folder / "x.yaml"
    place.write_text(DILATED.format(value))
    scenario = load(place, overrides, TWO_CORES)
    return scenario.fabrics[0].bandwidth_scale / scenario.cases[0].size_scale


@pytest.mark.parametrize("workload", ["collective", "trace"])
def test_data_that_is_too_small_is_refused_with_a_size_that_does(
    tmp_path: Path, workload: str
) -> None:
    """The whole of it is sent already: no size_scale helps."""
    path, fabric = tmp_path / "x.yaml", "domains: 2, domain_size: 2, platform: dgx-h100"
    given = {
        "collective": "collective: all-reduce, algorithm: ring, size",
        "trace": "trace: t.goal",
    }

    def write(size: int) -> None:
        said = f"{given[workload]}: {size} B" if workload == "collective" else given[workload]
        (tmp_path / "t.goal").write_text(
            f"num_ranks 2\nrank 0 {{\nsend {size}b to 1\n}}\nrank 1 {{\nrecv {size}b from 0\n}}\n"
        )
        keys = f"{fabric}, kinds: rail-only, bandwidth_scale: 20000"
        path.write_text(f"fabric: {{{keys}}}\nworkloads: [{{{said}}}]\n")

    write(1)
    with pytest.raises(InputError, match=r"even all of it, 1 B, is too little: send") as refused:
        load(path, machine=TWO_CORES)
    write(int(re.search(r"send (\d+) B or more", str(refused.value))[1]))  # type: ignore[index]
    scenario = load(path, machine=TWO_CORES)
    assert {planned.verdict for planned in plan(scenario, TWO_CORES)} == {"yes"}
    write(1)
    overloaded = load(path, ["allow_overload=true"], TWO_CORES)
    assert {planned.verdict for planned in plan(overloaded, TWO_CORES)} == {"no"}


@pytest.mark.parametrize(
    ("key", "small", "whole"), [("time_dilation", "0.1", "8000"), ("size_scale", "10000", "1")]
)
def test_data_that_suffices_is_not_called_too_little(
    tmp_path: Path, key: str, small: str, whole: str
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(
        "fabric: {domains: 4, domain_size: 4, platform: dgx-h100, bandwidth_scale: 8000}\n"
        "workloads: [{collective: all-reduce, algorithm: hierarchical, size: 12 MB}]\n"
    )
    with pytest.raises(InputError, match=f"use {whole}, which sends all of its data"):
        load(path, [f"workloads.0.{key}={small}"], TWO_CORES)
    assert load(path, [f"workloads.0.{key}={whole}"], TWO_CORES).cases


def test_data_that_suffices_for_the_agents_alone_is_too_little(tmp_path: Path) -> None:
    """The whole of it has steps that are too short for timers."""
    path = tmp_path / "x.yaml"
    path.write_text(
        "fabric: {domains: 4, domain_size: 4, platform: dgx-h100, bandwidth_scale: 8000}\n"
        "workloads: [{collective: all-reduce, algorithm: ring, size: 100 kB}]\n"
    )
    with pytest.raises(
        InputError, match=r"would need 76.44 times .* is too little: send 4900000 B"
    ):
        load(path, ["workloads.0.size_scale=100"], TWO_CORES)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("expect.ratio_limit=0.00002", "expect.ratio_limit: must be at least 0.00"),
        ("workloads.1.size_scale=1600", "must be at most 0.05 of a step (expect.ratio_limit)"),
    ],
)
def test_a_step_too_short_for_timers_names_the_key_that_decides(change: str, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)) as refused:
        load(QUICKSTART, ["expect.ratio_within=0.00001", change], TWO_CORES)
    assert "agents" not in str(refused.value)


def test_messages_without_bytes_are_refused(tmp_path: Path) -> None:
    rank = "rank {} {{\n{}\n}}\n"
    ranks = rank.format(0, "send 0b to 1") + rank.format(1, "recv 0b from 0")
    (tmp_path / "t.goal").write_text(f"num_ranks 2\n{ranks}")
    path = tmp_path / "x.yaml"
    keys = "domains: 2, domain_size: 1, platform: dgx-h100, bandwidth_scale: 20000"
    path.write_text(f"fabric: {{{keys}}}\nworkloads: [{{trace: t.goal}}]\n")
    with pytest.raises(InputError, match="all of its messages are empty: send bytes"):
        load(path, machine=TWO_CORES)


def test_time_dilation_is_instead_of_a_size_scale(tmp_path: Path) -> None:
    assert dilated(tmp_path, 5000) == pytest.approx(5000)
    with pytest.raises(InputError, match="time_dilation: cannot be combined with size_scale"):
        dilated(tmp_path, 5000, "workloads.0.size_scale=4")
    with pytest.raises(InputError, match="at most bandwidth_scale"):
        dilated(tmp_path, 40000)


def test_automatic_time_dilation_is_the_shortest_execution_allowed(tmp_path: Path) -> None:
    value = dilated(tmp_path, "auto")
    scenario = load(tmp_path / "x.yaml", machine=TWO_CORES)
    (planned,) = plan(scenario, TWO_CORES)
    assert planned.completion_s == pytest.approx(SHORTEST_S, rel=0.06)
    key = "time_dilation of rail-only/all-to-all/two-step"
    chosen = scenario.chosen[key]
    assert chosen.value == pytest.approx(value)
    late = replace(TWO_CORES, timer_p99_s=0.01)
    longer = load(tmp_path / "x.yaml", machine=late).chosen[key]
    assert longer.value > chosen.value
    assert "late" in longer.why


def test_the_value_of_an_automatic_size_scale_is_printed() -> None:
    def printed(size: str) -> list[str]:
        changes = ["workloads.1.size_scale=auto", f"workloads.1.size={size}"]
        changes.append("allow_overload=true")
        return [line for line in notes(load(QUICKSTART, changes)) if line.startswith("size_scale")]

    line = "size_scale of rail-only/all-to-all/two-step: auto is"
    assert printed("800 MB")[0].startswith(f"{line} ")
    assert printed("800 MB")[0].endswith(": about 3 s an execution")
    assert printed("8 B")[0] == f"{line} 1: all of the data is sent, in less than 3 s"


@settings(max_examples=20)
@given(
    ALGORITHM,
    st.sampled_from([1, 2, 8, 50]),
    st.sampled_from(["destination", "hash"]),
    st.sampled_from([1, 2]),
)
def test_an_automatic_size_scale_knows_the_busiest_link(
    algorithm: tuple[Collective, str], oversubscription: int, selection: str, hb_leaves: int
) -> None:
    collective, name = algorithm
    work = f"{{collective: {collective}, algorithm: {name}, size: 3 GB, size_scale: auto}}"
    fabric = f"oversubscription={oversubscription}", f"spine_selection={selection}"
    trunks = f"hb_leaves={hb_leaves}", f"hb_oversubscription={1 if hb_leaves == 1 else 20}"
    changes = [f"fabric.{key}" for key in ("kinds=rail-optimized", *fabric, *trunks)]
    (planned,) = plan(load(QUICKSTART, [*changes, f"workloads=[{work}]"]), None)
    assert 1.4 < planned.completion_s < 6


def test_the_plan_of_a_case_fits_where_auto_chose(tmp_path: Path) -> None:
    scenario = load(QUICKSTART, [AUTO], TWO_CORES)
    assert {planned.verdict for planned in plan(scenario, TWO_CORES)} == {"yes"}
    unknown = list(plan(scenario, None))
    assert {planned.verdict for planned in unknown} == {"not known"}


@given(*[st.floats(0, 2)] * 3)
def test_a_case_fits_within_the_budgets_and_barely_up_to_what_is_refused(
    data: float, thread: float, transfers: float
) -> None:
    """The agents' part has no budget of its own."""
    task = SizedCollective(Collective.ALL_REDUCE, "ring", (2, 2), 1e6)
    case = Case("", FabricKind.RAIL_ONLY, task)
    need = Need({HopKind.ENDS: data / 2, HopKind.SWITCH: data / 2}, transfers, thread)
    planned = CasePlan(case, 1.0, True, Load({}, {}, 0.0), need)
    fits = "yes" if data <= 0.5 and thread <= 0.6 else "barely"
    assert planned.verdict == ("no" if max(data, thread, transfers) > 1.5 else fits)


def test_the_tables_cut_nothing() -> None:
    text = io.StringIO()
    console = Console(file=text, width=80)
    scenario = load(QUICKSTART, [AUTO], TWO_CORES)
    sections = [machine_section(TWO_CORES), plan_section(plan(scenario, TWO_CORES), TWO_CORES)]
    print_sections(sections, console)
    assert {*rail_crossings(scenario)} <= {*notes(scenario)}
    text.write("\n".join(notes(scenario)))
    for word in ("forwarding GPU", "of all cores", "yes", "switch thread", "auto is"):
        assert word in text.getvalue()
    assert "…" not in text.getvalue()


def test_costs_of_packets_are_told_in_their_units() -> None:
    """Both cores send packets of 1500 bytes, each of which takes 8.9 us, or of 30 000: 26 us."""
    section = machine_section(TWO_CORES)
    ends = ("sender and receiver", "8.0 us", "0.60 us", "224,719", "76,923", "18")
    assert section.rows[0] == ends
    for words in ("takes 36 us and 0.25 us a port", "agents 100 us", "80 us late", "ile 120 us"):
        assert words in section.text


def test_a_busiest_second_has_its_packets_and_how_many_were_possible() -> None:
    ends, none = HopKind.ENDS, dict.fromkeys(HopKind, 0.0)
    case = Case(
        "it", FabricKind.RAIL_ONLY, SizedCollective(Collective.ALL_REDUCE, "ring", (2, 2), 1e6)
    )
    load = Load(none | {ends: 1000.0}, none | {ends: 3e7}, 0.0)
    planned = CasePlan(case, 1.0, True, load, Need(none | {ends: 0.25}, 0.1, 0.2))
    costless = replace(TWO_CORES, hops={**TWO_CORES.hops, ends: HopCost(0.0, 0.0)})
    for machine, possible in ((TWO_CORES, "76,923"), (costless, "-")):
        assert [tuple(map(str, row)) for row in plan_section([planned], machine).rows[1:]] == [
            ("data", "", "", "", "25.0%", "yes"),
            ("sender and receiver", "1,000", "30", possible, "25.0%", ""),
            ("agents, per transfer", "", "", "", "10.0%", ""),
            ("switch thread, of one core", "", "", "", "20.0%", ""),
        ]
    unmeasured = plan_section([replace(planned, need=None)], None)
    assert "this machine was not measured" in unmeasured.text


@given(st.floats(1e-3, 1e9))
def test_rates_of_a_plan_are_read_without_an_exponent(megabytes: float) -> None:
    """Three significant digits, as of packets, at the platform's own rates too."""
    task = SizedCollective(Collective.ALL_REDUCE, "ring", (2, 2), 1e6)
    sent = Load(dict.fromkeys(HopKind, 1.0), dict.fromkeys(HopKind, megabytes * 1e6), 0.0)
    planned = CasePlan(Case("it", FabricKind.RAIL_ONLY, task), 1.0, True, sent, None)
    shown = str(plan_section([planned], None).rows[2][2])
    assert "e" not in shown
    assert float(shown.replace(",", "")) == pytest.approx(megabytes, rel=0.006)


def test_headings_wrap_before_names_do() -> None:
    text, name = io.StringIO(), "rail-optimized, K = 8"
    figures = ("million dollars", "lost NIC link", "cut off", "transceivers", "efficient")
    section = Section("designs", ("design", *figures), [(name, *["0.737"] * len(figures))])
    print_sections([section], Console(file=text, width=70))
    lines = text.getvalue().splitlines()
    assert lines[-1].split() == [*name.split(), *["0.737"] * len(figures)]
    assert all(any(word in line for line in lines) for word in " ".join(figures).split())


def test_the_plan_names_chunks_and_overlap_of_each_schedule() -> None:
    """Steps that follow one another do not overlap; slices do, for at most a tenth of the time."""
    text, workload = io.StringIO(), "{collective: all-to-all, algorithm: two-step%s, size: 512 MB}"
    workloads = ", ".join(workload % pipelined for pipelined in ("", "-pipelined"))
    scenario = load(QUICKSTART, [f"workloads=[{workloads}]", "fabric.kinds=rail-only"])
    whole, sliced = plan(scenario, None)
    assert (whole.chunks, sliced.chunks) == (16 * 16, 16 * 16 * 4)
    assert whole.overlap == pytest.approx(0, abs=0.001)
    assert sliced.overlap == pytest.approx(0.08, abs=0.02)
    print_sections([plan_section([whole, sliced], None)], Console(file=text, width=80))
    assert f"s, 256 chunks, {whole.overlap:.1%} overlap)" in text.getvalue()
    assert f"s, 1024 chunks, {sliced.overlap:.1%} overlap)" in text.getvalue()
    assert "s, 1 chunk, " in str(plan_section([replace(whole, chunks=1)], None))


def test_a_plan_that_is_estimated_has_no_schedule() -> None:
    scenario = load(QUICKSTART, ["fabric.domains=16", "fabric.kinds=rail-only"])
    estimated = next(plan(scenario, None))
    assert (estimated.chunks, estimated.overlap) == (None, None)


def test_the_plan_wraps_no_name_of_a_case_and_has_one_table() -> None:
    text = io.StringIO()
    scenario = load(QUICKSTART, [AUTO], TWO_CORES)
    section = plan_section(plan(scenario, TWO_CORES), TWO_CORES)
    print_sections([section], Console(file=text, width=80))
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    for case in scenario.cases:
        assert any(line.startswith(f"{case.name} (") and line.endswith(")") for line in lines)
    ends = {line.index("%") for line in lines if line.startswith(" ") and "%" in line}
    assert len(ends) == 1
