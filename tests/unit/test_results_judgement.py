"""Effects of incomplete executions, lost packets, paths and scales on a result."""

import dataclasses
import io
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from model.errors import InputError
from model.fabric.build import build_topology
from model.fabric.health import Epoch
from model.fabric.spec import FabricKind, SpineSelection
from model.measurement.records import CaseExecutions, QueuePairSample, Repeat
from model.prediction.fluid import path_class, predict
from model.workload.generator import Generator
from model.workload.transfers.collective import Collective
from results.render.terminal import print_sections
from results.sections.run import CASES, cases_section, run_sections
from results.sections.section import told
from results.store.records import plain
from results.store.runs import find_run
from results.verdicts.model_comparison import CaseResult, Measured, compare, with_paper
from results.verdicts.run import RunResult, agreements, slowdowns
from results.verdicts.verdict import Judgement, Reason, Thresholds, Verdict, with_verdict
from tests.unit.fabrics import by_roce, spec, transfer_paths
from tests.unit.run_folders import begun_run
from traffic_gen.workloads.sized_collective import SizedCollective

LIMITS = Thresholds(warn=0.02, fail=0.05)
TOPOLOGY = build_topology(spec(FabricKind.RAIL_ONLY, 2, 2))
SCHEDULE = SizedCollective(Collective.ALL_TO_ALL, "two-step", (2, 2), 4_000_000).steps()
PATHS = transfer_paths(SCHEDULE.transfers, Epoch(TOPOLOGY), TOPOLOGY.job_gpus)
PREDICTION = predict(
    SCHEDULE, [Epoch(TOPOLOGY)], dict.fromkeys((path_class(hops) for hops in PATHS if hops), 0)
)

CASE_KEYS = [
    "case",
    "fabric",
    "collective",
    "algorithm",
    "gpus",
    "bytes",
    "bandwidth_scale",
    "time_dilation",
    "measured_s",
    "modeled_s",
    "ratio",
    "algbw_gbyte_per_s",
    "busbw_gbyte_per_s",
]
EXTRA_KEYS = [
    "generator",
    "variant",
    "size_scale",
    "chunks",
    "schedule_digest",
    "overlap",
    "real_s",
    "on_paper_s",
    "lower_bound_s",
    "warmup_s",
    "disturbed_s",
    "disturbed_counted",
    "retransmits",
    "data_is_right",
    "verdict",
    "reasons",
    "fidelity",
]


def repeat(ratio: float = 1.0, complete: bool = True, retransmits: int = 0) -> Repeat:
    """An execution that took `ratio` times the modeled time."""
    seconds = PREDICTION.completion_s * ratio
    return Repeat(0, complete, seconds, 0, 0, (retransmits,), (), ())


def result(*repeats: Repeat, warmups: tuple[Repeat, ...] = (), dropped: int = 0) -> CaseResult:
    measured = Measured(
        TOPOLOGY,
        SCHEDULE,
        CaseExecutions(repeats, warmups),
        dropped_packets=dropped,
    )
    return compare("rail-only/all-to-all/two-step", measured, PREDICTION, 10.0, LIMITS)


@given(st.lists(st.booleans(), min_size=1, max_size=8).filter(any))
def test_executions_that_broke_off_fail_and_are_not_counted(complete: list[bool]) -> None:
    case = result(*(repeat(1.0 if whole else 0.1, whole) for whole in complete))
    assert case.measured_s.values == (PREDICTION.completion_s,) * sum(complete)
    assert (case.verdict is Verdict.PASS) == all(complete)
    assert not any("lower bound" in reason for reason in case.reasons)


def test_without_a_complete_repeat_the_case_fails() -> None:
    case = result(repeat(0.1, complete=False))
    assert case.verdict is Verdict.FAIL
    assert case.measured_s.values == (PREDICTION.completion_s * 0.1,)


def test_times_of_executions_that_broke_off_are_held_against_nothing() -> None:
    """Also where nothing had arrived."""
    broken = [dataclasses.replace(repeat(complete=False), completion_s=s) for s in (0, 0, 0.5)]
    cases = [result(*broken[:2]), on_rail_optimized(result(broken[2]), 0.1, "two-step")]
    assert not any("the model" in reason for case in cases for reason in case.reasons)
    assert [case.busbw_gbyte_per_s for case in cases] == [None, None]
    assert not list(slowdowns(cases))
    assert with_paper(cases[1], 1e9).notes == ()
    assert sum(" - " in line for line in printed(cases, 80) if " fail" in line) == 2


@given(st.integers(0, 3), st.booleans())
def test_any_execution_below_the_bound_fails(place: int, warmup: bool) -> None:
    executions = [repeat() for _ in range(4)]
    executions[place] = repeat(0.3)
    whole = tuple(executions)
    case = result(repeat(), warmups=whole) if warmup else result(*whole)
    assert case.verdict is Verdict.FAIL
    assert any("the testbed is wrong" in reason for reason in case.reasons)


def test_warmups_are_kept_apart() -> None:
    case = result(repeat(), warmups=(repeat(1.5), repeat(complete=False)))
    assert case.warmup_s == (PREDICTION.completion_s * 1.5,)
    assert case.measured_s.max == PREDICTION.completion_s


@pytest.mark.parametrize("counted", [False, True])
def test_disturbed_executions_that_count_are_among_the_measured_ones(counted: bool) -> None:
    disturbed = repeat(1.01)
    repeats = (repeat(), disturbed) if counted else (repeat(),)
    measured = Measured(TOPOLOGY, SCHEDULE, CaseExecutions(repeats, disturbed=(disturbed,)))
    case = compare("case", measured, PREDICTION, 10.0, LIMITS)
    assert (len(case.measured_s.values), case.disturbed_counted) == (1 + counted, counted)
    assert case.disturbed_s == (disturbed.completion_s,)
    assert not result(repeat()).disturbed_counted


@pytest.mark.parametrize(
    ("retransmits", "dropped", "verdict"), [(0, 0, "pass"), (3, 0, "pass"), (3, 2, "warn")]
)
def test_losses_are_noted(retransmits: int, dropped: int, verdict: str) -> None:
    case = result(repeat(retransmits=retransmits), dropped=dropped)
    assert case.verdict.value == verdict
    assert case.reasons == ("queues dropped 2 packets",) * bool(dropped)
    assert case.notes == ("TCP retransmitted 3 segments",) * bool(retransmits)


@pytest.mark.parametrize("selection", SpineSelection)
def test_of_sprayed_packets_the_note_says_why_they_were_retransmitted(
    selection: SpineSelection,
) -> None:
    topology = by_roce(
        build_topology(spec(FabricKind.RAIL_OPTIMIZED, 2, 2, spines=2)), 1, selection
    )
    measured = Measured(topology, SCHEDULE, CaseExecutions((repeat(retransmits=3),)))
    prediction = replace(PREDICTION, topology_digest=topology.digest)
    (note,) = compare("case", measured, prediction, 10.0, LIMITS).notes
    assert ("overtake" in note) is (selection is SpineSelection.SPRAY)


@pytest.mark.parametrize(("timeout_s", "told"), [(0.25, True), (60.0, False), (None, False)])
def test_a_note_says_that_a_given_timeout_may_come_before_an_answer(
    timeout_s: float | None, told: bool
) -> None:
    topology = by_roce(TOPOLOGY, 1, SpineSelection.DESTINATION)
    roce = replace(topology.spec.roce, timeout_s=timeout_s, window=400)
    topology = replace(topology, spec=replace(topology.spec, roce=roce))
    measured = Measured(topology, SCHEDULE, CaseExecutions((repeat(retransmits=3),)))
    prediction = replace(PREDICTION, topology_digest=topology.digest)
    (note,) = compare("case", measured, prediction, 10.0, LIMITS).notes
    assert ("the timeout is 0.25 s, and an answer may take" in note) is told


@pytest.mark.parametrize(
    ("shares", "windows", "alpha", "notes"),
    [
        (
            [1.0, 0.047, 0.3],
            [32.0] * 3,
            0.9,
            ("DCQCN cut a queue pair to 4.7% of its port's rate",),
        ),
        ([1.0, 1.0], [32.0] * 2, 1.0, ()),
        ([None, None], [32.0, 32.0], None, ()),
        (
            [None, None, None],
            [32.0, 2.517, 9.0],
            None,
            ("Swift cut the window of a queue pair to 2.52 of 32 packets",),
        ),
        # A window below one packet is paced.
        (
            [None, 0.01, None],
            [32.0, 1.0, 1.0],
            None,
            ("Swift cut the window of a queue pair below 1 of 32 packets",),
        ),
    ],
)
def test_how_far_congestion_control_cut_queue_pairs_is_noted(
    shares: list[float | None], windows: list[float], alpha: float | None, notes: tuple[str, ...]
) -> None:
    port_bps = TOPOLOGY.spec.emulated_port_bps
    rates = [None if share is None else share * port_bps for share in shares]
    samples = tuple(
        QueuePairSample(0, 0, 1, 0, 0, ns, 0, 0, 0, rate, window, alpha)
        for ns, (rate, window) in enumerate(zip(rates, windows, strict=True))
    )
    case = result(replace(repeat(), queue_pairs=samples))
    assert case.notes == notes


@given(st.lists(st.tuples(st.sampled_from(Verdict), st.text())))
def test_what_neither_warns_nor_fails_is_a_note(sentences: list[Reason]) -> None:
    found = Judgement.of(sentences)
    notes = [sentence for verdict, sentence in sentences if verdict is Verdict.PASS]
    assert list(found.notes) == notes
    assert Counter((*found.reasons, *found.notes)) == Counter(one for _, one in sentences)
    assert Judgement.of(with_verdict(found)) == found


def test_times_that_mean_nothing_have_no_ratio_and_no_bandwidth() -> None:
    case = plain(result(repeat(1.0)))
    timed, checked = (
        [
            str(cell(case | {"data_is_right": is_right}))
            for name, cell in CASES
            if name in ("ratio", "algbw", "busbw")
        ]
        for is_right in (None, True)
    )
    assert "-" not in timed
    assert checked == ["-"] * 3


def test_each_reason_of_a_failed_case_begins_with_its_own_verdict() -> None:
    judged = Judgement.of([(Verdict.FAIL, "a"), (Verdict.WARN, "b"), (Verdict.PASS, "c")])
    lines = [str(line) for line in told("case", plain(judged))]
    assert lines == ["fail: case: a", "warn: case: b", "note: case: c"]


def test_a_note_of_several_cases_is_told_once() -> None:
    one, other = plain(result(repeat())), {**plain(result(repeat())), "case": "other"}
    one, other = {**one, "notes": ["a", "b"]}, {**other, "notes": ["b"]}
    remarks = list(map(str, cases_section({"cases": [one, other]}).remarks))
    assert remarks == [f"note: {one['case']}: a", "note: all 2 cases: b"]
    remarks = list(map(str, cases_section({"cases": [one, other, {**one, "notes": []}]}).remarks))
    assert remarks[-1] == f"note: {one['case']}, other: b"


@given(st.floats(0.9, 1.1))
def test_verdicts_follow_the_thresholds(ratio: float) -> None:
    case = result(repeat(ratio))
    away = abs(case.ratio - 1)
    expected = "fail" if away > LIMITS.fail else "warn" if away > LIMITS.warn else "pass"
    below = case.measured_s.min < case.lower_bound_s
    assert case.verdict.value == ("fail" if below else expected)


@pytest.mark.parametrize(
    ("part", "noted"), [(0.8, True), (0.96, True), (0.98, False), (1.1, False)]
)
def test_a_time_that_the_emulation_shortens_is_noted(part: float, noted: bool) -> None:
    of_time, of_data = result(repeat()), checked(repeat())
    case = with_paper(of_time, of_time.real_s / part)
    told = "less than on paper: emulated links have no latency but their delays"
    assert any(told in note for note in case.notes) is noted
    assert case.verdict is of_time.verdict
    assert with_paper(of_data, of_data.real_s / part).notes == of_data.notes
    assert with_paper(of_time, None) == of_time


def test_a_case_has_the_keys_of_the_contract_in_order() -> None:
    found = plain(RunResult("id", "s", Path("/f"), [result(repeat())], machine={"cores": 2}))
    (case,) = found["cases"]
    assert [key for key in case if key not in EXTRA_KEYS] == CASE_KEYS
    assert case.keys() == {*CASE_KEYS, *EXTRA_KEYS}
    assert list(found)[6:] == ["failures", "slowdowns", "machine"]
    assert "machine" not in plain(RunResult("id", "s", Path("/f"), []))


def test_a_run_is_found_by_path_and_whole_id(tmp_path: Path) -> None:
    store, other = tmp_path / "store", tmp_path / "other"
    for run_id in ("r1", "r10"):
        begun_run(store, run_id, "", {})
    moved = begun_run(other, "moved", "", {}).path
    assert find_run(store, "r1").name == "r1"
    assert find_run(store, str(moved)) == moved
    with pytest.raises(InputError, match="2 runs named 'r'"):
        find_run(store, "r")
    with pytest.raises(InputError, match="no run named"):
        find_run(store, str(tmp_path))


def checked(*repeats: Repeat) -> CaseResult:
    """Return the result of executions whose data was checked."""
    measured = Measured(TOPOLOGY, SCHEDULE, CaseExecutions(repeats), check_data=True)
    return compare("rail-only/all-to-all/two-step", measured, PREDICTION, 10.0, LIMITS)


def test_the_ratio_of_a_run_that_checks_data_is_neither_shown_nor_judged() -> None:
    case = checked(repeat(3.0))
    assert (case.verdict, case.ratio, case.data_is_right) == (Verdict.PASS, 3.0, True)
    lines = " ".join(printed([case, on_rail_optimized(case, 0.1, "two-step")], 80))
    assert "3.0000" not in lines
    assert "data: all elements of all results are right" in lines
    assert "What rail-only costs" not in lines


@given(st.lists(st.sampled_from([None, True, False]), min_size=2, max_size=2))
def test_times_are_held_against_each_other_only_if_no_data_was_checked(
    right: list[bool | None],
) -> None:
    cases = [result(repeat()), on_rail_optimized(result(repeat()), 0.1, "two-step")]
    both = [
        dataclasses.replace(case, data_is_right=known)
        for case, known in zip(cases, right, strict=True)
    ]
    assert bool(list(slowdowns(both))) == (right == [None, None])
    sent = dataclasses.replace(both[1].work, generator=Generator.IPERF3)
    by_iperf3 = dataclasses.replace(both[1], case=f"{both[0].case}/iperf3", work=sent)
    assert bool(list(agreements([both[0], by_iperf3]))) == (right == [None, None])


@pytest.mark.parametrize(
    ("changes", "compared"),
    [
        ({"collective": "all-reduce"}, False),
        ({"generator": Generator.IPERF3}, False),
        ({"variant": "skewed"}, False),
        ({"bytes": round(1.02 * SCHEDULE.size_bytes)}, False),
        # Algorithms round up to whole elements, each to its own.
        ({"bytes": round(1.005 * SCHEDULE.size_bytes), "algorithm": "direct"}, True),
    ],
)
def test_a_slowdown_is_against_equal_work(changes: dict[str, Any], compared: bool) -> None:
    case = result(repeat())
    other = on_rail_optimized(case, 0.1, "two-step")
    other = dataclasses.replace(other, work=dataclasses.replace(other.work, **changes))
    assert bool(list(slowdowns([case, other]))) == compared


@pytest.mark.parametrize(
    "changes", [{"errors": ("rank 1: chunk 2 is wrong",)}, {"complete": False}]
)
def test_wrong_data_fails_and_is_said(changes: dict[str, Any]) -> None:
    case = checked(repeat(3.0), dataclasses.replace(repeat(3.0), **changes))
    assert (case.verdict, case.data_is_right) == (Verdict.FAIL, False)
    assert "data: not all results are right, in rail-only/all-to-all/two-step" in " ".join(
        printed([case], 80)
    )


def test_what_ended_an_execution_is_told_and_is_no_wrong_result() -> None:
    broken = dataclasses.replace(repeat(3.0), complete=False, errors=("rank 1: broke", "rank 2:"))
    case = result(repeat(), broken)
    assert "execution 0 did not complete: rank 1: broke (one of 2)" in case.reasons
    assert not any("wrong result" in reason for reason in case.reasons)


def test_data_that_was_not_checked_is_not_called_right() -> None:
    assert result(repeat()).data_is_right is None
    assert not any("data:" in line for line in printed([result(repeat())], 80))


def printed(cases: list[CaseResult], width: int) -> list[str]:
    text = io.StringIO()
    print_sections(
        run_sections(plain(RunResult("id", "s", Path("/f"), cases))),
        Console(file=text, width=width),
    )
    return text.getvalue().splitlines()


def test_one_repeat_has_no_spread() -> None:
    (once,) = [line for line in printed([result(repeat())], 80) if " pass" in line]
    (twice,) = [line for line in printed([result(repeat(), repeat(1.01))], 80) if " pass" in line]
    assert once.split()[5] == "-"
    assert twice.split()[5] == "1.0%"


def on_rail_optimized(case: CaseResult, slower: float, algorithm: str) -> CaseResult:
    """Return the case on rail-optimized, with its modeled time divided by `1 + slower`."""
    fabric = dataclasses.replace(case.work.fabric, kind=FabricKind.RAIL_OPTIMIZED)
    modeled_s = case.modeled_s / (1 + slower)
    return dataclasses.replace(
        case,
        case=f"rail-optimized/all-to-all/{algorithm}",
        work=dataclasses.replace(case.work, fabric=fabric, algorithm=algorithm),
        modeled_s=modeled_s,
    )


@pytest.mark.parametrize("width", [80, 120])
def test_both_times_and_the_answer_fit_a_line(width: int) -> None:
    case = result(repeat())
    lines = printed([case, on_rail_optimized(case, 0.111, "direct")], width)
    scales = [line.split() for line in lines if " / " in line]
    assert [line[3:5] for line in scales] == [["/", "10"]] * 2
    answer = "all-to-all/two-step, against direct: as fast (modeled: 11.1% slower)"
    assert [line.rstrip() for line in lines].count(answer) == 1
    assert max(map(len, lines)) <= width


def test_a_slowdown_that_rounds_to_nothing_has_no_sign() -> None:
    case = result(repeat())
    for slower, words in ((-1e-5, "as fast"), (0.02, "2.0% slower"), (-0.02, "2.0% faster")):
        lines = printed([case, on_rail_optimized(case, slower, "two-step")], 80)
        assert any(f"(modeled: {words})" in line for line in lines)
