"""Comparison of two runs: first whether they differ at all, then by how much."""

import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from commands.compare import compared
from model.errors import InputError
from model.fabric.spec import FabricKind
from model.workload.transfers.collective import Collective
from results.render.terminal import print_sections
from results.sections.run import cases_section
from results.sections.several_runs import comparison_sections, effect_in_words, in_words
from results.store.records import plain
from results.verdicts.run import RunResult
from results.verdicts.several_runs import (
    Difference,
    StoredRun,
    comparison_object,
    difference,
    differing,
)
from tests.unit.run_folders import begun_run
from tests.unit.test_results import both_fabrics, modeled, result
from tests.unit.test_results_failures import fault_down

MACHINE = {"kernel": "6.18", "load_average": [0.1, 0.2], "libraries": {"ryu": "4.34"}}
SCENARIO = {"name": "quick", "fabric": {"domains": 2}}
SECONDS = st.lists(st.floats(0.1, 10), min_size=1, max_size=8)


def stored(run_id: str, **changes: Any) -> StoredRun:
    found = plain(RunResult(run_id, "quick", Path("/runs") / run_id, both_fabrics()))
    return StoredRun(**{"result": found, "machine": MACHINE, "scenario": SCENARIO, **changes})


@given(SECONDS, SECONDS)
def test_which_run_is_first_does_not_matter(first: list[float], second: list[float]) -> None:
    assert difference(first, second) is difference(second, first)


@given(SECONDS)
def test_a_run_does_not_differ_from_itself(values: list[float]) -> None:
    assert difference(values, values) is Difference.WITHIN


@given(SECONDS, SECONDS, st.integers(1, 8))
def test_ranges_that_overlap_show_no_difference(
    first: list[float], second: list[float], count: int
) -> None:
    shared = [*second, first[0]]
    assert difference(first, shared * count) is Difference.WITHIN


@pytest.mark.parametrize(
    ("repeats", "found"),
    [
        ((1, 1), Difference.UNKNOWN),
        ((3, 3), Difference.UNKNOWN),
        ((3, 4), Difference.UNKNOWN),
        ((4, 4), Difference.LARGER),
        ((5, 5), Difference.LARGER),
        ((0, 5), Difference.UNKNOWN),
    ],
)
def test_a_gap_counts_when_chance_seldom_makes_one(
    repeats: tuple[int, int], found: Difference
) -> None:
    first, second = (
        [start + n / 10 for n in range(count)] for start, count in zip((1, 2), repeats, strict=True)
    )
    assert difference(first, second) is found


def test_both_of_everything_is_in_the_object() -> None:
    found = comparison_object(stored("a"), stored("b"))
    assert found["schema"] == "railbed.compare/1"
    assert [run["run_id"] for run in found["runs"]] == ["a", "b"]
    assert found["warnings"] == found["only_in_first"] == found["only_in_second"] == []
    case = found["cases"][0]
    assert case["ratio"] == 1
    assert case["verdicts"] == ["pass", "pass"]
    assert case["difference"] == "within the spread"
    assert case["other_work"] == []
    assert case["ratio_to_model"][0] == pytest.approx(1.01)
    json.dumps(found)


def test_the_ratio_is_second_over_first() -> None:
    slower = plain(RunResult("b", "quick", Path("/b"), [result(1.04)]))
    found = comparison_object(stored("a"), stored("b", result=slower))
    (case,) = found["cases"]
    assert case["ratio"] == pytest.approx(1.04 / 1.01)
    assert case["verdicts"] == ["pass", "warn"]
    assert "away from the model" in case["reasons"][1][0]
    assert found["only_in_first"] == ["rail-optimized/all-to-all/direct"]


def test_scenarios_that_differ_in_much_are_said_to_be_unlike_once() -> None:
    unlike = {"fabric": {f"key{n}": n for n in range(9)}, "repeats": 5}
    (warning,) = comparison_object(stored("a"), stored("b", scenario=unlike))["warnings"]
    assert warning.startswith("the scenarios are unlike: 11 values differ, in fabric.domains, ")


def test_of_many_differences_keys_are_named_two_levels_deep_and_once() -> None:
    first, second = ({"fabric": {"x": {f"key{n}": n + more for n in range(9)}}} for more in (0, 1))
    found = comparison_object(stored("a", scenario=first), stored("b", scenario=second))
    assert found["warnings"] == ["the scenarios are unlike: 9 values differ, in fabric.x"]


def test_a_part_that_one_scenario_lacks_is_one_difference() -> None:
    """Two transports are told by name, with the keys of the one that has some."""
    roce = {"mtu": 4096, "queue_pairs": 2, "split_data": False, "timeout": None, "window": 32}
    first, second = (
        {"fabric": {"domains": 2, **of}}
        for of in ({"transport": "tcp", "roce": None}, {"transport": "roce", "roce": roce})
    )
    assert list(differing(first, second)) == [
        "fabric.transport: tcp against roce",
        "fabric.roce: not given against {mtu: 4096, queue_pairs: 2, split_data: false, window: 32}",
    ]
    rows = {"matrix": [[1000] * 96] * 96}
    (told,) = differing({"matrix": None}, rows)
    assert len(told) < 300
    assert told.endswith(" ...")


def test_other_machines_and_scenarios_are_named() -> None:
    machine = {"kernel": "6.1", "load_average": [9], "libraries": {"ryu": "4.34"}, "cores": 4}
    other = stored("b", machine=machine, scenario={"name": "x", "fabric": {"domains": 4}})
    assert comparison_object(stored("a"), other)["warnings"] == [
        "the machines differ in kernel: 6.18 against 6.1",
        "the machines differ in cores: not given against 4",
        "the scenarios differ in fabric.domains: 2 against 4",
    ]


def test_other_work_is_named_and_not_compared() -> None:
    first, second = stored("a"), stored("b")
    changed = json.loads(json.dumps(second.result))
    changed["cases"][0]["bytes"] *= 2
    found = comparison_object(first, stored("b", result=changed))
    assert found["cases"][0]["other_work"] == ["bytes: 4000000 against 8000000"]
    assert (found["cases"][0]["difference"], found["cases"][0]["ratio"]) == (
        "not the same work",
        None,
    )
    assert found["cases"][1]["other_work"] == []


def with_digest(digest: str | None, **changes: Any) -> StoredRun:
    """A run whose first case executed the steps of this digest."""
    run = stored("a", **changes)
    case = run.result["cases"][0]
    case.pop("schedule_digest")
    if digest is not None:
        case["schedule_digest"] = digest
    return run


@pytest.mark.parametrize(
    ("digest", "changes", "told"),
    [
        ("a", {}, []),
        ("b", {}, ["schedule_digest: a against b"]),
        ("b", {"scenario": {**SCENARIO, "repeats": 9}}, ["schedule_digest: a against b"]),
        ("b", {"scenario": {"fabric": {"domains": 2, "nic_ports": 2}}}, []),
        (None, {}, []),
    ],
)
def test_other_steps_of_one_scenario_are_other_work(
    digest: str | None, changes: dict[str, Any], told: list[str]
) -> None:
    """A trace may have been edited; keys of the scenario that change steps are warnings."""
    found = comparison_object(with_digest("a"), with_digest(digest, **changes))
    case, unchanged = found["cases"]
    assert (case["other_work"], case["ratio"]) == (told, None if told else 1)
    assert unchanged["other_work"] == []


def test_a_run_knows_its_steps() -> None:
    two_step, direct = (case["schedule_digest"] for case in stored("a").result["cases"])
    assert two_step == modeled(FabricKind.RAIL_ONLY, Collective.ALL_TO_ALL, "two-step")[1].digest
    assert two_step != direct


def test_times_that_mean_nothing_show_no_difference() -> None:
    """The agents check what arrives meanwhile, which takes time."""
    first, second = stored("a"), stored("b")
    for case in second.result["cases"]:
        case["data_is_right"] = True
        case["measured_s"]["values"] = [9.0, 9.1, 9.2, 9.3, 9.4]
    case, *_ = comparison_object(first, second)["cases"]
    assert (case["difference"], in_words(case)) == ("data checked meanwhile", "checked")


def test_what_broke_off_has_no_time_to_compare() -> None:
    broken = [result(0.1, complete=False)]
    broke_off = plain(RunResult("b", "quick", Path("/b"), broken))
    first, second = stored("a"), stored("b", result=broke_off)
    case, *_ = comparison_object(first, second)["cases"]
    assert (in_words(case), case["ratio"], case["verdicts"][1]) == ("broke off", None, "fail")
    assert case["measured_s"][1] == {"median": None, "min": None, "max": None, "repeats": 0}
    assert case["ratio_to_model"][1] is None


TREES = st.recursive(
    st.integers(0, 3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner) | st.lists(inner, max_size=2),
)


@given(st.dictionaries(st.sampled_from("abc"), TREES))
def test_nothing_differs_from_itself(tree: dict[str, Any]) -> None:
    assert list(differing(tree, json.loads(json.dumps(tree)))) == []


def test_cases_with_faults_have_no_repeats_to_compare() -> None:
    faults = plain(RunResult("a", "down", Path("/a"), [], failures=[fault_down("down")]))
    (case,) = comparison_object(*[stored(name, result=faults) for name in "ab"])["cases"]
    assert (in_words(case), case["ratio"]) == ("no repeats", 1)


def test_failures_of_other_work_have_no_ratio() -> None:
    faults = plain(RunResult("a", "down", Path("/a"), [], failures=[fault_down("down")]))
    larger = json.loads(json.dumps(faults))
    (failure,) = larger["failures"]
    failure["work"]["bytes"] *= 2
    failure["work"]["fabric"]["domains"] = 4
    (case,) = comparison_object(stored("a", result=faults), stored("b", result=larger))["cases"]
    assert case["other_work"] == ["fabric.domains: 2 against 4", "bytes: 4000000 against 8000000"]
    assert (in_words(case), case["ratio"]) == ("other work", None)


def test_another_phase_of_a_failure_is_other_work() -> None:
    faults = plain(RunResult("a", "down", Path("/a"), [], failures=[fault_down("down")]))
    other = json.loads(json.dumps(faults))
    other["failures"][0].update(degraded_s=None, modeled_degraded_s=None, ratio=None)
    (case,) = comparison_object(stored("a", result=faults), stored("b", result=other))["cases"]
    assert case["other_work"] == ["phase: degraded against during_fault"]
    assert (in_words(case), case["ratio"]) == ("other work", None)


def test_effects_are_in_percent() -> None:
    case = {"difference": "larger than the spread", "ratio": 0.524}
    assert effect_in_words(case) == "47.6% faster"
    assert effect_in_words({"difference": "within the spread", "ratio": 1.01}) == "same"


def test_notes_are_no_reasons() -> None:
    noted = json.loads(json.dumps(plain(RunResult("b", "quick", Path("/b"), [result(1.0)]))))
    noted["cases"][0]["notes"] = [note] = ["TCP retransmitted 3 segments"]
    _, cases, *_ = comparison_sections(comparison_object(stored("a"), stored("b", result=noted)))
    name = noted["cases"][0]["case"]
    assert [str(remark) for remark in cases.remarks] == [f"note: B: {name}: {note}"]
    remarks = [str(remark) for remark in cases_section(noted).remarks]
    assert remarks == [f"note: {name}: {note}"]


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_has_both_runs_verdicts_and_reasons(width: int) -> None:
    slower = plain(RunResult("b-run", "quick", Path("/b"), [result(1.04)]))
    found = comparison_object(stored("a-run"), stored("b-run", result=slower))
    text = io.StringIO()
    print_sections(comparison_sections(found), Console(file=text, width=width))
    said = " ".join(text.getvalue().split())
    order = ["a-run", "b-run", "few repeats", "1.0297", "1.0100", "1.0400", "pass", "warn"]
    places = [
        said.index(word, said.index("B/model") if n > 1 else 0) for n, word in enumerate(order)
    ]
    assert all(one < other for one, other in pairwise(places))
    assert "warning: in A only: rail-optimized/all-to-all/direct" in said
    assert "warn: B: rail-only/all-to-all/two-step: 4.0% away from the model" in said
    assert "…" not in text.getvalue()


def keep(store: Path, run_id: str, cases: list[Any]) -> None:
    folder = begun_run(store, run_id, "fabric: {domains: 2}\n", MACHINE)
    folder.complete(plain(RunResult(run_id, "quick", folder.path, cases)))


def test_stored_runs_are_compared(tmp_path: Path) -> None:
    keep(tmp_path, "one", both_fabrics())
    keep(tmp_path, "two", both_fabrics())
    found = compared(tmp_path, "one", "latest")
    assert [run["run_id"] for run in found["runs"]] == ["one", "two"]


def test_runs_with_nothing_in_common_are_refused(tmp_path: Path) -> None:
    first, second = both_fabrics()
    keep(tmp_path, "one", [first])
    keep(tmp_path, "two", [second])
    with pytest.raises(InputError, match=r"no case in common: one has rail-only.*; two has rail-o"):
        compared(tmp_path, "one", "two")


def test_runs_that_are_not_complete_are_refused(tmp_path: Path) -> None:
    keep(tmp_path, "one", both_fabrics())
    begun_run(tmp_path, "two", "", {}).incomplete("the controller died")
    with pytest.raises(InputError, match="the controller died"):
        compared(tmp_path, "one", "two")


def test_times_of_two_clocks_are_not_compared(tmp_path: Path) -> None:
    keep(tmp_path, "20260101-000000-a-0000", both_fabrics())
    keep(tmp_path, "20260101-000001-b-0000", both_fabrics())
    virtual = tmp_path / "20260101-000001-b-0000" / "result.json"
    found = json.loads(virtual.read_text())
    virtual.write_text(json.dumps({**found, "clock": {"kind": "virtual"}}))
    with pytest.raises(InputError, match="two clocks, real and virtual"):
        compared(tmp_path, "20260101-000000-a-0000", "latest")
