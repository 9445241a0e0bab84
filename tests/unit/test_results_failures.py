"""Impact of a fault on a job: verdicts, the JSON object and the table."""

import io
import json
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from rich.console import Console

from model.measurement.records import Repeat
from results.render.terminal import print_sections
from results.sections.run import failures_section, told_apart
from results.store.records import plain
from results.verdicts.fault_impact import (
    DuringFault,
    FaultImpact,
    FaultResult,
    FaultTimes,
    Probes,
    Restart,
    fault_result,
    lost_experiment,
)
from results.verdicts.fidelity import Fidelity
from results.verdicts.several_runs import outcomes
from results.verdicts.verdict import Verdict
from tests.unit.test_results import LIMITS, repeat, result

TIMES = FaultTimes("d0g0--rail0 down", 0.3, None, 1.2, 5.0, 5.1, 9.8)
DURING = DuringFault((repeat(0, 1.5),), Fidelity.of(()), (TIMES,), LIMITS)
# Aborted after 0.4 s, back 0.5 s later, for an execution that the model expects to take 2 s.
ABORTED = repeat(0, 0.3, complete=False, start_ns=10**9, errors=("rank 3: aborted",))
RESTART = Restart(0.4, 0.9, 0.5, 2.0)
PROBES = Probes(6, 144, 9000, 0, (0.0, 0.002), 14.2, 60.0, 15.0)
IMPACT = FaultImpact(result(), DURING, result(1.01), result(), PROBES)
NAMES = {
    "case": "rail-only/all-to-all/two-step",
    "fabric": "rail-only",
    "fault": "nic-link down",
    "where": "d0g0--rail0",
    "strategy": "reroute",
}


RIGHT = replace(result(), data_is_right=True)
CHECKED = {
    **dict.fromkeys(("baseline", "degraded", "recovered"), RIGHT),
    "during": replace(DURING, check_data=True),
}


def fault_down(scenario: str, impact: FaultImpact = IMPACT, **others: str) -> FaultResult:
    """The result of an experiment with a fault of a NIC link, or with `others` of its names."""
    return fault_result(impact, scenario=scenario, **NAMES | others)


def failed(scenario: str, impact: FaultImpact, **others: str) -> dict[str, Any]:
    return plain(fault_down(scenario, impact, **others))


def probes(**changes: Any) -> dict[str, Any]:
    return {"probes": replace(PROBES, **changes)}


def during(*executions: Repeat, **changes: Any) -> dict[str, Any]:
    return {"during": replace(DURING, executions=executions, **changes)}


def restarted(
    seconds: float,
    late_s: float = 0.0,
    check_data: bool = False,
    aborts: bool = False,
    **facts: Any,
) -> dict[str, Any]:
    back_s = RESTART.back_s + late_s
    again = repeat(1, seconds, start_ns=ABORTED.start_ns + round(back_s * 1e9), **facts)
    restart = replace(RESTART, back_s=back_s)
    return during(ABORTED, again, restart=restart, check_data=check_data, aborts=aborts)


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({}, Verdict.PASS, None),
        (probes(blackout_ms=None), Verdict.PASS, None),
        (probes(blackout_ms=61.0), Verdict.FAIL, "a blackout of 61 ms, more than 60 ms"),
        (probes(blackout_ms=inf), Verdict.FAIL, "was not reached again"),
        (probes(lost_unaffected=3), Verdict.FAIL, "3 of 9000 probes of unaffected"),
        (probes(skipped=(0.0, 0.02)), Verdict.WARN, "skipped 2.0% of its probes"),
        (
            probes(possible_ms=61.0),
            Verdict.WARN,
            "a blackout of up to 61.0 ms is possible, more",
        ),
        (probes(blackout_limit_ms=None, possible_ms=61.0), Verdict.PASS, None),
        (
            {"during": replace(DURING, fidelity=Fidelity.of([(Verdict.WARN, "pauses took 9%")]))},
            Verdict.WARN,
            "during fault: pauses took 9%",
        ),
        (during(repeat(0, 1.5, complete=False)), Verdict.FAIL, "happened did not complete"),
        (during(repeat(0, 1.5, errors=("rank 3: chunk 0",))), Verdict.FAIL, "0: rank 3: chunk 0"),
        (during(repeat(0, 1.5), aborts=True), Verdict.FAIL, "never aborted: its execution ended"),
        (
            during(repeat(0, 1.5), aborts=True, times=(FaultTimes("a link", 0.3, None),)),
            Verdict.FAIL,
            "never aborted: the controller did not detect the fault",
        ),
        (
            during(repeat(0, 1.5), times=(TIMES, replace(TIMES, fault="rail0 down", begun_s=1.6))),
            Verdict.WARN,
            "during fault: rail0 down began at 1.600 s, after the execution ended; start it",
        ),
        (during(repeat(0, 1.5), times=(TIMES, replace(TIMES, begun_s=1.6))), Verdict.PASS, None),
        (restarted(2.0, aborts=True), Verdict.PASS, None),
        (restarted(2.0), Verdict.PASS, None),
        (restarted(1.9), Verdict.WARN, "during fault: 3.4% away from the model"),
        (restarted(2.2), Verdict.FAIL, "during fault: 6.9% away from the model"),
        (restarted(2.2, check_data=True), Verdict.PASS, None),
        (restarted(2.0, complete=False), Verdict.FAIL, "after the restart did not complete"),
        (restarted(2.0, errors=("rank 3: chunk 0",)), Verdict.FAIL, "1: rank 3: chunk 0"),
        (restarted(1.95, late_s=0.05), Verdict.WARN, "resumed 0.550 s after the abort, not 0.5 s"),
        ({"baseline": result(1.06)}, Verdict.FAIL, "baseline: 6.0% away from the model"),
        ({"degraded": result(1.03)}, Verdict.WARN, "degraded: 3.0% away from the model"),
        ({"recovered": result(1.06)}, Verdict.FAIL, "recovered: 6.0% away from the model"),
        ({"degraded": None, "recovered": None}, Verdict.PASS, None),
        ({"degraded": None, "replay": result(1.06)}, Verdict.FAIL, "replay: 6.0% away from"),
    ],
)
def test_verdicts(changes: dict[str, Any], verdict: Verdict, words: str | None) -> None:
    judgement = replace(IMPACT, **changes).judgement
    assert judgement.verdict is verdict
    reasons = judgement.reasons
    assert any(words in reason for reason in reasons) if words else not reasons


def test_a_replay_that_is_off_names_the_blackout_that_it_does_not_know() -> None:
    replays = (result(1.06), result(1.0))
    notes = [replace(IMPACT, degraded=None, replay=one).judgement.notes for one in replays]
    assert notes == [("replay: knows no losses, as of the blackout of 14 ms",), ()]


def test_the_object_is_json() -> None:
    row = failed("nic-link-down", IMPACT)
    assert json.loads(json.dumps(row)) == row
    assert failed("x", replace(IMPACT, **probes(blackout_ms=inf)))["blackout_ms"] is None
    assert row["ratio"] == pytest.approx(1.01)
    assert row["times"][0]["confirmed_ms"] == 9.8


def test_phases_whose_disturbed_executions_count_are_named() -> None:
    assert "disturbed_counted" not in failed("x", IMPACT)
    counted = replace(IMPACT.baseline, disturbed_counted=True)
    row = failed("x", replace(IMPACT, baseline=counted, recovered=counted))
    assert row["disturbed_counted"] == ["baseline", "recovered"]


def test_the_time_and_ratio_of_what_broke_off_are_dashes() -> None:
    whole = failed("x", IMPACT)
    degraded = f"{whole['degraded_s']:.3f}"
    for changes, cells in (
        ({}, [degraded, "1.010"]),
        ({"incomplete": True}, ["-", "-"]),
        ({"data_is_right": True}, [degraded, "-"]),
    ):
        section = failures_section([{**whole, **changes}])
        row = dict(zip(section.columns, section.rows[-1], strict=True))
        assert [row["degraded"], row["ratio"]] == cells


def test_the_clock_of_a_restarted_job_runs_from_its_first_start() -> None:
    row = failed("abort-and-restart", replace(IMPACT, **restarted(2.0)))
    assert row["during_fault_s"] == pytest.approx(2.9)
    assert row["modeled_during_fault_s"] == pytest.approx(2.9)
    assert (row["aborted_s"], row["back_s"]) == (0.4, 0.9)


def test_an_experiment_that_ended_early_is_a_failed_row() -> None:
    row = lost_experiment("nic-link-down", "the controller died")
    assert list(row) == list(failed("nic-link-down", IMPACT))
    assert (row["verdict"], row["reasons"]) == ("fail", ["the controller died"])
    (outcome,) = outcomes({"cases": [], "failures": [row]})
    assert set(outcome.work.values()) == {None}


@pytest.mark.parametrize(
    ("changes", "right"),
    [
        ({}, True),
        (during(repeat(0, 1.5, errors=("rank 3: chunk 0",)), check_data=True), False),
        (during(repeat(0, 1.5, complete=False), check_data=True), False),
        # An aborted execution has no result.
        (restarted(2.0, check_data=True), True),
        (restarted(2.0, check_data=True, complete=False), False),
        ({"degraded": replace(result(), data_is_right=False)}, False),
    ],
)
def test_the_data_of_all_phases_is_right_or_not(changes: dict[str, Any], right: bool) -> None:
    assert failed("down", IMPACT)["data_is_right"] is None
    checked = {**CHECKED, **changes}
    row = failed("down", replace(IMPACT, **checked))
    assert row["data_is_right"] is right
    remarks = " ".join(map(str, failures_section([row]).remarks))
    assert ("data: all elements" if right else "data: not all results") in remarks
    assert "the times mean nothing" in remarks


def test_a_failure_has_the_work_of_a_case() -> None:
    case, row = plain(IMPACT.baseline), failed("down", IMPACT)
    assert row["work"] == {key: case[key] for key in row["work"]}
    assert {"fabric", "gpus", "bytes", "bandwidth_scale", "size_scale"} <= set(row["work"])


def test_a_replay_is_not_shown_as_a_prediction() -> None:
    row = failed("nic-link-flaps", replace(IMPACT, degraded=None, replay=result(1.03)))
    assert (row["ratio"], row["modeled_degraded_s"]) == (None, None)
    assert (row["replay_ratio"], row["replay_verdict"]) == (pytest.approx(1.03), "warn")
    text = io.StringIO()
    print_sections([failures_section([row])], Console(file=text, width=80))
    line = next(line for line in text.getvalue().splitlines() if "during / replay" in line)
    assert line.startswith("rail-only: replay ")
    assert line.endswith("during / replay 1.030 warn")


def test_words_about_restarts_and_replays_are_for_those_alone() -> None:
    plain_row = failed("down", IMPACT)
    restart = failed("abort-and-restart", replace(IMPACT, **restarted(2.0)))
    replay = failed("flaps", replace(IMPACT, degraded=None, replay=result(1.03)))
    texts = [failures_section([row]).text for row in (plain_row, restart, replay)]
    assert ["the restart time included" in text for text in texts] == [False, True, False]
    assert ["Replay: " in text for text in texts] == [False, False, True]


def test_the_answers_to_begin_and_end_of_a_fault_are_shown() -> None:
    row = failed("dual-tor-port-down", IMPACT)
    row["times"][0] |= {"detected_ms": 1.5, "confirmed_ms": 14.2, "returned_ms": None}
    assert not any("new paths" in str(line) for line in failures_section([row]).remarks)
    row["times"][0] |= {"begun_s": 0.5561, "usable_ms": 246.6}
    for returned_ms, told in ((361.8, "362 ms"), (None, "-")):
        row["times"][0]["returned_ms"] = returned_ms
        (line,) = (str(one) for one in failures_section([row]).remarks if "new paths" in str(one))
        assert "at 0.556 s: detected after 2 ms, new paths after 14 ms" in line
        assert line.endswith(f"usable after 247 ms, used by all after {told}")


def test_the_table_fits_a_terminal_and_shows_what_is_missing() -> None:
    other = replace(IMPACT, recovered=None)
    rows = [
        failed("nic-link-down", IMPACT),
        failed("nic-link-down", other, fabric="rail-optimized"),
        lost_experiment("hb-link-down", "no rules today"),
    ]
    text = io.StringIO()
    print_sections([failures_section(rows)], Console(file=text, width=80))
    lines = text.getvalue().splitlines()
    assert lines[1] == "nic-link-down: nic-link down · d0g0--rail0 · reroute"
    assert sum("blackout" in line for line in lines) == 1
    assert any(line.startswith(" rail-only") and "14 ms" in line for line in lines)
    assert any("fail: hb-link-down" in line and "no rules today" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_the_names_of_fabrics_are_whole_in_a_terminal() -> None:
    row = failed("nic-link-down", IMPACT, fabric="rail-optimized")
    row |= dict.fromkeys((f"{phase}_s" for phase in ("baseline", "during_fault")), 12.345)
    row |= dict.fromkeys(("degraded_s", "recovered_s", "modeled_degraded_s"), 12.345)
    text = io.StringIO()
    print_sections([failures_section([row])], Console(file=text, width=80))
    assert any(line.startswith(" rail-optimized ") for line in text.getvalue().splitlines())


def test_several_cases_of_a_fabric_have_their_names() -> None:
    other = "rail-only/all-to-all/direct"
    rows = [failed("down", IMPACT), failed("down", IMPACT, case=other), failed("up", IMPACT)]
    section = failures_section(rows)
    names = [row[0] for row in section.rows if len(row) > 1]
    assert names == [NAMES["case"], other, NAMES["fabric"]]
    assert [one["fabric"] for one in told_apart(told_apart(rows))] == names
