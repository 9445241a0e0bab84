"""Sweeps: which points are run, which are not run again, and reports of failed points."""

import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from commands.sweep import _check_here, sweep
from execution.cases.progress import Listener
from execution.sweep.executor import Ended, Order
from execution.sweep.points import Check, SweepRequest
from execution.sweep.runner import (
    Sweeping,
    SweepLines,
    human_remaining,
    remaining,
    run_several,
    sweep_listener,
)
from model.errors import InputError, NotReady
from model.prediction.machine import Machine
from model.sweep import Point, Setting, Sweep
from results.render.terminal import print_sections
from results.sections.several_runs import short_name, sweep_section
from results.store.runs import SCHEMA, find_run
from results.store.sweeps import (
    Outcome,
    SweepFolder,
    begin_sweep,
    find_sweep,
    open_sweep,
)
from results.verdicts.several_runs import sweep_object
from scenarios.library_files import scenario_file
from scenarios.load import load
from scenarios.scenario import Scenario
from tests.unit.machines import TWO_CORES
from tests.unit.run_folders import begun_run
from tests.unit.test_scenarios import GOOD

CASE = {
    "case": "rail-only/all-to-all/two-step",
    "fabric": {"kind": "rail-only", "domains": 2},
    "gpus": 4,
    "bytes": 10,
    "bandwidth_scale": 1.0,
    "size_scale": 1.0,
    "measured_s": {"median": 2.0, "values": [2.0]},
    "modeled_s": 1.6,
    "ratio": 1.25,
    "data_is_right": None,
    "reasons": ["25.0% away from the model"],
}


def text_of(number: int, text: str = "scenario") -> str:
    return f"{GOOD}# {text} {number}\n"


def a_sweep(values: int = 3, text: str = "scenario") -> Sweep:
    settings = [Setting("workloads.0.size", f"{n} MB", f"{n} MB") for n in range(1, values + 1)]
    points = [Point(n, (s,), text_of(n, text)) for n, s in enumerate(settings, 1)]
    return Sweep("quick", "process", tuple(points))


@dataclass
class Fake:
    """A fake executor: exit codes by point, and an interruption at point `interrupted_at`."""

    exit_codes: dict[int, int] = field(default_factory=dict)
    interrupted_at: int = 0
    executed: list[int] = field(default_factory=list)
    at_once: int = 1

    def execute(self, orders: Iterator[Order]) -> Ended:
        under_way = [*islice(orders, self.at_once)]
        while under_way:
            order = under_way.pop()
            yield order, self._outcome(order)
            under_way += islice(orders, 1)

    def _outcome(self, order: Order) -> Outcome:
        number = int(order.folder.name)
        self.executed.append(number)
        assert order.scenario.read_text() == text_of(number)
        if number == self.interrupted_at:
            raise KeyboardInterrupt
        exit_code = self.exit_codes.get(number, 0)
        if exit_code == 3:
            return Outcome(3, None, 0.5, "tool ovs-vswitchd: not found")
        return self._run(order, exit_code)

    def _run(self, order: Order, exit_code: int) -> Outcome:
        earlier = len(list(order.folder.glob("run-*")))
        run_id = f"run-{order.folder.name}-{earlier}"
        folder = begun_run(order.folder, run_id, "text", {})
        if exit_code == 4:
            folder.incomplete("the controller died; its log ends with:\nTraceback")
            return Outcome(
                4, folder.path, 1.5, "the controller died; its log ends with:\nTraceback"
            )
        verdict = "fail" if exit_code else "pass"
        cases = [{**CASE, "verdict": verdict}]
        result = {"schema": SCHEMA, "run_id": run_id, "verdict": verdict, "cases": cases}
        folder.complete({**result, "failures": []})
        return Outcome(exit_code, folder.path, 10.0)


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    return begin_sweep(tmp_path, "night", a_sweep())


def run(folder: SweepFolder, executor: Fake) -> str:
    """Run the unfinished points; return the printed progress."""
    text = io.StringIO()
    with sweep_listener(Console(file=text), folder) as listener:
        Sweeping(folder, executor, listener).run()
    return text.getvalue()


def again(folder: SweepFolder) -> SweepFolder:
    """Open the folder again, as another process does."""
    return open_sweep(folder.path)


def test_all_points_are_run_in_order(folder: SweepFolder) -> None:
    executor = Fake()
    run(folder, executor)
    assert executor.executed == [1, 2, 3]
    assert sweep_object(again(folder))["verdict"] == "pass"


def test_finished_points_are_not_run_again(folder: SweepFolder) -> None:
    run(folder, Fake())
    executor = Fake()
    run(again(folder), executor)
    assert executor.executed == []


def test_a_run_with_a_damaged_result_is_stored_too(tmp_path: Path) -> None:
    class Damaging(Fake):
        def _outcome(self, order: Order) -> Outcome:
            outcome = self._run(order, 0)
            assert outcome.run is not None
            (outcome.run / "result.json").write_text("{")
            return outcome

    stored = tmp_path / "store" / "run-quickstart-0"
    with pytest.raises(InputError, match=re.escape(f"{stored}/result.json")):
        run_several(
            [load(scenario_file(Path("quickstart")))], (), stored.parent, Damaging(), Listener()
        )
    assert stored.is_dir()


@settings(max_examples=30)
@given(data=st.data())
def test_what_was_interrupted_goes_on_there(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, 6))
    at = data.draw(st.integers(1, count))
    store = tmp_path_factory.mktemp("store")
    folder = begin_sweep(store, "night", a_sweep(count))
    with pytest.raises(KeyboardInterrupt):
        run(folder, Fake(interrupted_at=at))
    executor = Fake()
    run(begin_sweep(store, "night", a_sweep(count)), executor)
    assert executor.executed == [*range(at, count + 1)]


@settings(max_examples=30)
@given(codes=st.dictionaries(st.integers(1, 3), st.sampled_from([0, 1, 3, 4])))
def test_failed_points_stop_nothing_and_those_without_result_are_tried_again(
    tmp_path_factory: pytest.TempPathFactory, codes: dict[int, int]
) -> None:
    folder = begin_sweep(tmp_path_factory.mktemp("store"), "night", a_sweep())
    executor = Fake(codes)
    run(folder, executor)
    assert executor.executed == [1, 2, 3]
    found = {point["point"]: point for point in sweep_object(folder)["points"]}
    for number, point in found.items():
        assert (point["verdict"] == "fail") == (codes.get(number, 0) != 0)
        assert bool(point["cause"]) == (codes.get(number, 0) != 0)
    second = Fake()
    run(again(folder), second)
    assert second.executed == [number for number in (1, 2, 3) if codes.get(number, 0) > 1]


@dataclass
class Disturbed(Fake):
    """A fake executor under which something changes when the first run has ended."""

    change: Callable[[], object] = lambda: None

    def _outcome(self, order: Order) -> Outcome:
        if not self.executed:
            self.change()
        return super()._outcome(order)


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_program_that_changes_meanwhile_disturbs_no_point_under_way(
    folder: SweepFolder, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    def change() -> None:
        monkeypatch.setattr("results.store.sweeps.program_version", lambda: "ffffffffffff")

    executor = Disturbed(at_once=at_once, change=change)
    said = run(folder, executor)
    assert sorted(executor.executed) == [*range(1, at_once + 1)]
    assert "point 3 of 3 (workloads.0.size=3 MB): failed after 0.0 s: sweep night: must be" in said
    points = sweep_object(folder)["points"]
    assert [bool(point["cases"]) for point in points] == [n <= at_once for n in (1, 2, 3)]
    assert [point["exit_code"] for point in points] == [0] * at_once + [2] * (3 - at_once)
    monkeypatch.undo()
    run(again(folder), second := Fake())
    assert second.executed == [*range(at_once + 1, 4)]


@pytest.mark.parametrize("change", [Path.unlink, lambda file: file.write_text(GOOD)])
def test_a_file_that_changes_meanwhile_fails_its_point_alone(
    folder: SweepFolder, change: Callable[[Path], object]
) -> None:
    file = folder.scenario(folder.sweep.points[1])
    executor = Disturbed(change=lambda: change(file))
    run(folder, executor)
    assert executor.executed == [1, 3]
    points = sweep_object(folder)["points"]
    assert [point["exit_code"] for point in points] == [0, 2, 0]
    assert points[1]["cause"].startswith(f"{file}: ")


def test_an_order_knows_the_runs_of_earlier_attempts(folder: SweepFolder) -> None:
    run(folder, Fake({1: 4}))
    orders = list[Order]()

    class Noting(Fake):
        def _outcome(self, order: Order) -> Outcome:
            orders.append(order)
            return super()._outcome(order)

    run(again(folder), Noting())
    assert [run.name for order in orders for run in order.earlier] == ["run-001-0"]


def test_a_result_that_was_deleted_is_measured_again(folder: SweepFolder) -> None:
    run(folder, Fake())
    (folder.point_folder(folder.sweep.points[1]) / "run-002-0" / "result.json").unlink()
    assert [point.number for point in again(folder).unfinished] == [2]


def test_a_damaged_verdict_is_named_and_keeps_nothing_from_the_rest(folder: SweepFolder) -> None:
    run(folder, Fake())
    place = folder.point_folder(folder.sweep.points[1]) / "run-002-0" / "result.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "verdict": None}))
    points = sweep_object(folder)["points"]
    assert [point["verdict"] for point in points] == ["pass", "fail", "pass"]
    assert str(place.parents[1]) in points[1]["cause"]


def test_a_store_can_be_moved(tmp_path: Path) -> None:
    run(begin_sweep(tmp_path / "here", "night", a_sweep()), Fake())
    (tmp_path / "here").rename(tmp_path / "there")
    assert find_sweep(tmp_path / "there", "latest").unfinished == ()


def test_the_report_names_failed_points_with_their_cause(folder: SweepFolder) -> None:
    run(folder, Fake({1: 1, 2: 4}))
    result = sweep_object(folder)
    assert (result["schema"], result["verdict"]) == ("railbed.sweep/2", "fail")
    assert [point["exit_code"] for point in result["points"]] == [1, 4, 0]
    assert result["points"][0]["parameters"] == {"workloads.0.size": "1 MB"}
    json.dumps(result)
    text = io.StringIO()
    print_sections([sweep_section(result)], Console(file=text, width=80))
    said = " ".join(text.getvalue().split())
    assert "1 1 MB rail-only/all-to-all/two-step 2.000 s 1.600 s 1.2500 fail" in said
    assert "2 2 MB no result - - - fail" in said
    assert "fail: point 1 (workloads.0.size=1 MB): rail-only/all-to-all/two-step: 25.0%" in said
    assert "fail: point 2 (workloads.0.size=2 MB): the controller died" in said
    assert "1 of 3 points did not fail" in said


def test_the_report_says_what_is_doubtful(folder: SweepFolder) -> None:
    run(folder, Fake())
    result = sweep_object(folder)
    result["points"][1]["cases"][0]["verdict"] = "warn"
    text = io.StringIO()
    print_sections([sweep_section(result)], Console(file=text))
    point = "warn: point 2 (workloads.0.size=2 MB): rail-only/all-to-all/two-step: 25.0% away"
    assert point in text.getvalue()
    assert "3 of 3 points did not fail" in text.getvalue()


def test_ratios_that_are_not_judged_are_in_brackets(folder: SweepFolder) -> None:
    run(folder, Fake())
    result = sweep_object(folder)
    assert "brackets" not in sweep_section(result).text
    result["points"][1]["cases"][0]["data_is_right"] = True
    section = sweep_section(result)
    assert [row[-2] for row in section.rows] == ["1.2500", "(1.2500)", "1.2500"]
    assert "Ratios in brackets are not judged" in section.text


@pytest.mark.parametrize(
    ("kinds", "case"),
    [
        ("rail-only", "all-to-all/two-step"),
        (["rail-only", "rail-optimized"], "rail-only/all-to-all/two-step"),
    ],
)
def test_a_row_names_the_fabric_once(folder: SweepFolder, kinds: object, case: str) -> None:
    run(folder, Fake())
    result = sweep_object(folder)
    for point in result["points"]:
        point["parameters"] = {"fabric.kinds": kinds}
    assert {row[2] for row in sweep_section(result).rows} == {case}


def test_every_point_has_the_same_keys(folder: SweepFolder) -> None:
    run(folder, Fake({2: 4, 3: 3}))
    begun = sweep_object(folder)["points"]
    (folder.path / "001" / "point.json").unlink()
    keys = [set(point) for point in [*begun, *sweep_object(folder)["points"]]]
    assert all(found == keys[0] for found in keys)


def test_what_was_not_run_is_in_the_report(folder: SweepFolder) -> None:
    assert {point["cause"] for point in sweep_object(folder)["points"]} == {"not run"}


def test_runs_of_points_are_found_by_their_ids(tmp_path: Path, folder: SweepFolder) -> None:
    run(folder, Fake())
    assert find_run(tmp_path, "run-002") == folder.path / "002" / "run-002-0"


def test_progress_says_which_point_and_how_long_still(folder: SweepFolder) -> None:
    lines = run(folder, Fake({2: 4})).splitlines()
    said = [line.partition(" s  ")[2] for line in lines]
    assert said == [
        "point 1 of 3 (workloads.0.size=1 MB); remaining time not known yet",
        "point 1 of 3 (workloads.0.size=1 MB): done after 10.0 s",
        "point 2 of 3 (workloads.0.size=2 MB); about 20 s left",
        "point 2 of 3 (workloads.0.size=2 MB): failed after 1.5 s: the controller died; its log "
        "ends with:",
        "point 3 of 3 (workloads.0.size=3 MB); about 10 s left",
        "point 3 of 3 (workloads.0.size=3 MB): done after 10.0 s",
    ]


def test_a_terminal_gets_a_bar(folder: SweepFolder) -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=120, highlight=False)
    with sweep_listener(console, folder) as listener:
        assert not isinstance(listener, SweepLines)
        Sweeping(folder, Fake(), listener).run()
    assert "point 3 (workloads.0.size=3 MB): done" in text.getvalue()


@given(st.lists(st.floats(0, 1e6), min_size=1), st.integers(0, 1000))
def test_the_estimate_is_between_the_extremes(took_s: list[float], points: int) -> None:
    found = remaining(took_s, points)
    assert found is not None
    assert min(took_s) * points * 0.999 <= found <= max(took_s) * points * 1.001


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "remaining time not known yet"),
        (14.6, "about 15 s left"),
        (121, "about 2 min left"),
        (5400, "about 1 h 30 min left"),
    ],
)
def test_remaining_time_in_words(seconds: float | None, words: str) -> None:
    assert human_remaining(seconds) == words


def test_changed_content_never_mixes_with_old_points(tmp_path: Path, folder: SweepFolder) -> None:
    with pytest.raises(InputError, match="sweep night: already exists with another scenario"):
        begin_sweep(tmp_path, "night", a_sweep(text="another"))
    folder.scenario(folder.sweep.points[1]).write_text("edited\n")
    with pytest.raises(InputError, match=r"a point's scenario.yaml has changed"):
        find_sweep(tmp_path, "night")


def test_a_sweep_that_was_killed_while_it_was_made_is_made_again(
    tmp_path: Path, folder: SweepFolder
) -> None:
    (folder.path / "sweep.json").unlink()
    folder.scenario(folder.sweep.points[2]).unlink()
    assert begin_sweep(tmp_path, "night", a_sweep()).unfinished == a_sweep().points
    assert again(folder).sweep == a_sweep()


class Chatty(Fake):
    """A fake executor that prints, as Ray does when a machine is lost."""

    def _outcome(self, order: Order) -> Outcome:
        print("(raylet) Raylet is terminated.")
        return super()._outcome(order)


def test_what_ray_prints_is_not_in_the_result(
    folder: SweepFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("commands.sweep._on_ray", lambda *_: Chatty())
    monkeypatch.setattr(SweepRequest, "folder", lambda *_: folder)
    sweep(resume="night", store=tmp_path, as_json=True, executor="ray")
    said = capsys.readouterr()
    assert len(json.loads(said.out)["points"]) == 3
    assert said.err.count("Raylet is terminated") == 3


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "./railbed sweep --resume night"),
        (
            {"executor": "ray", "address": "head:6379", "at_once": 3, "fresh": True},
            "./railbed sweep --resume night --executor=ray --address=head:6379 --at-once=3 --fresh",
        ),
        (
            {"plugins": ["/a b/mine.py", "/c.py"]},
            "./railbed --plugin '/a b/mine.py' --plugin /c.py sweep --resume night",
        ),
    ],
)
def test_an_interrupted_sweep_says_how_it_is_resumed_as_it_was_begun(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    asked: dict[str, Any],
    said: str,
) -> None:
    plugins: Sequence[str] = asked.pop("plugins", ())
    monkeypatch.setenv("RAILBED_PLUGIN", ":".join(plugins))
    folder = begin_sweep(tmp_path, "night", replace(a_sweep(), clock="virtual"))
    monkeypatch.setattr("commands.sweep._on_ray", lambda *_: Fake(interrupted_at=1))
    monkeypatch.setattr("commands.sweep._local", lambda *_: Fake(interrupted_at=1))
    monkeypatch.setattr(SweepRequest, "folder", lambda *_: folder)
    monkeypatch.chdir(tmp_path)
    for store, where in (("runs", ""), ("my runs", "'--store=my runs'")):
        with pytest.raises(KeyboardInterrupt):
            sweep(resume="night", store=Path(store), **asked)
        whole = said.replace("night", f"night {where}") if where else said
        assert f"Resume the sweep with `{whole}`." in capsys.readouterr().err


@pytest.mark.parametrize("executor", ["local", "ray"])
def test_points_never_compete_by_the_real_clock(
    folder: SweepFolder, monkeypatch: pytest.MonkeyPatch, executor: Any
) -> None:
    monkeypatch.setattr(SweepRequest, "folder", lambda *_: folder)
    with pytest.raises(InputError, match="--at-once: must be 1 with the real clock, got 7"):
        sweep(resume="night", at_once=7, executor=executor)


def test_only_one_process_runs_a_sweep(folder: SweepFolder) -> None:
    with (
        folder.locked(),
        pytest.raises(InputError, match="another process runs this sweep"),
        again(folder).locked(),
    ):
        pass
    with folder.locked():
        pass


def test_a_sweep_that_is_done_is_shown_without_its_lock(
    folder: SweepFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(folder, Fake())
    monkeypatch.setattr(SweepRequest, "folder", lambda *_: folder)
    with folder.locked():
        assert not sweep(resume="night")
    assert "3 of 3 points did not fail" in capsys.readouterr().out


def test_sweeps_are_found_by_name_only(tmp_path: Path, folder: SweepFolder) -> None:
    with pytest.raises(InputError, match=r"sweep 'day' not found.*known: night"):
        find_sweep(tmp_path, "day")
    with pytest.raises(InputError, match=r"has no sweeps.*railbed sweep"):
        find_sweep(tmp_path / "empty", "latest")


def accept(_: Scenario) -> None:
    """Accept every scenario."""


def by_any_clock(_: str) -> Check:
    return accept


REQUEST: dict[str, Any] = {
    "scenario": None, "over": (), "overrides": (), "proxies": None, "name": None, "resume": None,
    "clock": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "sweep: needs a scenario, or --resume NAME"),
        (
            {"resume": "x", "scenario": Path("y"), "over": ("k=1",)},
            "combined with SCENARIO, --over",
        ),
        ({"resume": "x", "proxies": "process"}, "--resume: cannot be combined with --proxies"),
        ({"scenario": Path("y"), "name": "latest"}, "--name: must be up to 80 letters"),
        ({"scenario": Path("y"), "name": "../y"}, "--name: must be up to 80 letters"),
    ],
)
def test_requests_that_are_none(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        SweepRequest(**{**REQUEST, **changes}).folder(tmp_path, by_any_clock)
    assert message in str(caught.value)


def test_the_same_request_finds_the_same_sweep(tmp_path: Path) -> None:
    scenario = tmp_path / "x.yaml"
    scenario.write_text(GOOD)
    asked = SweepRequest(**{**REQUEST, "scenario": scenario, "over": ("repeats=1,2",)})
    folder = asked.folder(tmp_path, by_any_clock)
    assert asked.folder(tmp_path, by_any_clock) == folder
    going_on = SweepRequest(**{**REQUEST, "resume": "latest"})
    assert going_on.folder(tmp_path, by_any_clock) == folder
    scenario.write_text(GOOD.replace("12 MB", "13 MB"))
    assert asked.folder(tmp_path, by_any_clock) != folder


@pytest.mark.parametrize(
    ("requirement", "asked"),
    [
        ("execution.sweep.ray_executor.connected", {"executor": "ray"}),
        ("commands.options.ready", {}),
        ("commands.sweep.program", {"clock": "virtual"}),
    ],
)
def test_a_sweep_that_no_machine_can_run_has_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requirement: str, asked: dict[str, Any]
) -> None:
    def lacking(*_: object) -> None:
        raise NotReady("a part is missing")

    monkeypatch.setattr(requirement, lacking)
    (tmp_path / "x.yaml").write_text(GOOD)
    with pytest.raises(NotReady):
        sweep(tmp_path / "x.yaml", ["repeats=1,2"], store=tmp_path, **asked)
    with pytest.raises(InputError, match="has no sweeps"):
        find_sweep(tmp_path, "latest")
    assert [place.name for place in tmp_path.iterdir()] == ["x.yaml"]


@pytest.mark.parametrize(("clock", "asked_points"), [("real", 4), ("virtual", 0)])
def test_this_kernel_is_asked_for_points_of_the_real_clock_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: str, asked_points: int
) -> None:
    scenario, checked = tmp_path / "x.yaml", list[Scenario]()
    scenario.write_text(GOOD)
    monkeypatch.setattr("commands.options.require_possible", checked.append)
    changes = {"scenario": scenario, "over": ("repeats=1,2",), "clock": clock}
    SweepRequest(**{**REQUEST, **changes}).folder(tmp_path, _check_here)
    SweepRequest(**{**REQUEST, "resume": "latest"}).folder(tmp_path, _check_here)
    assert len(checked) == asked_points


def test_points_that_the_measured_machine_cannot_carry_are_refused_also_later(
    tmp_path: Path,
) -> None:
    scenario = tmp_path / "x.yaml"
    scenario.write_text(GOOD)
    over = ("fabric.bandwidth_scale=20000,100",)
    asked = SweepRequest(**{**REQUEST, "scenario": scenario, "over": over})
    again = SweepRequest(**{**REQUEST, "resume": "latest"})

    def here(clock: str) -> Machine:
        assert clock == "real"
        return TWO_CORES

    asked.folder(tmp_path, by_any_clock)
    for request in (asked, again):
        with pytest.raises(InputError, match=r"point 2 .* of all cores"):
            request.folder(tmp_path, by_any_clock, lambda: None, here)


def test_parameters_have_short_names_where_these_are_clear() -> None:
    keys = ["fabric.domains", "workloads.0.size", "workloads.1.size", "repeats"]
    assert [short_name(key, keys) for key in keys] == ["domains", "0.size", "1.size", "repeats"]
