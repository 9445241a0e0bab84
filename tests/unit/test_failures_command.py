"""The command `failures` prints the rows that it has, whatever ends the other experiments."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from commands.failures import failures
from commands.options import ClockName
from linux.files.program_files import ROOT
from model.errors import EmulationError, InputError, NotReady
from results.verdicts.fault_impact import lost_experiment
from scenarios.library_files import library
from scenarios.load import load
from scenarios.planning.machine_profile import machine_by, virtual_machine
from scenarios.scenario import Scenario
from tests.unit.machines import TWO_CORES


def test_rows_are_printed_whatever_becomes_of_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = [None, EmulationError("no carrier"), NotReady("no Docker"), KeyboardInterrupt()]

    def run(experiment: Scenario, *_: object) -> dict[str, Any]:
        if (end := ends.pop(0)) is not None:
            raise end
        return {"failures": [lost_experiment(experiment.name, "measured")]}

    monkeypatch.setattr("execution.run.run", run)
    monkeypatch.setattr("commands.options.require_possible", lambda _: None)
    monkeypatch.setattr("commands.options.ready", lambda *_: "process")
    with pytest.raises(KeyboardInterrupt):
        failures(as_json=True, proxies="process", store=tmp_path)
    rows = json.loads(capsys.readouterr().out)
    assert [row["reasons"] for row in rows] == [["measured"], ["no carrier"], ["no Docker"]]


def test_auto_is_worked_out_for_the_measured_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed = list[Scenario]()
    monkeypatch.setattr("scenarios.planning.machine_profile.known_machine", lambda: TWO_CORES)
    monkeypatch.setattr("commands.options.require_possible", executed.append)
    monkeypatch.setattr("commands.options.ready", lambda *_: "process")
    monkeypatch.setattr("execution.run.run", Mock(side_effect=NotReady("no Docker")))
    failures(proxies="process", store=tmp_path)
    paths = {path.stem: path for path in library()}
    assert executed
    assert executed == [load(paths[one.name], (), TWO_CORES) for one in executed]


@pytest.mark.parametrize(
    ("clock", "check"), [("real", "options.ready"), ("virtual", "failures.program")]
)
def test_a_machine_that_is_not_ready_is_refused_before_the_library_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: ClockName, check: str
) -> None:
    monkeypatch.setattr("commands.failures.load", Mock(side_effect=AssertionError("loaded")))
    monkeypatch.setattr(f"commands.{check}", Mock(side_effect=NotReady("root: no")))
    with pytest.raises(NotReady, match="root: no"):
        failures(store=tmp_path, clock=clock)


def test_a_refused_experiment_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The virtual clock's machine has one processor."""
    executed = list[Scenario]()

    def run_several(experiments: list[Scenario], *_: object) -> dict[str, Any]:
        executed.extend(experiments)
        return {one.name: "its run was interrupted" for one in experiments}

    monkeypatch.setattr("commands.failures.program", lambda: None)
    monkeypatch.setattr("commands.failures.run_several", run_several)
    assert failures(as_json=True, store=tmp_path, clock="virtual")
    rows = json.loads(capsys.readouterr().out)
    assert {row["clock"]["kind"] for row in rows} == {"virtual"}
    (refused,) = [row for row in rows if row["reasons"] != ["its run was interrupted"]]
    assert refused["scenario"] == "roce-nic-down"
    assert refused["reasons"][0].startswith("not executed: ")
    assert "77000 is the least accepted" in refused["reasons"][0]
    names = [row["scenario"] for row in rows]
    assert names == sorted(names)
    assert len(executed) == len(rows) - 1


def test_a_refused_experiment_is_a_row_by_the_real_clock_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(experiment: Scenario, *_: object) -> dict[str, Any]:
        return {"failures": [lost_experiment(experiment.name, "measured")]}

    monkeypatch.setattr("scenarios.planning.machine_profile.known_machine", virtual_machine)
    monkeypatch.setattr("execution.run.run", run)
    monkeypatch.setattr("commands.options.require_possible", lambda _: None)
    monkeypatch.setattr("commands.options.ready", lambda *_: "process")
    failures(as_json=True, proxies="process", store=tmp_path)
    rows = json.loads(capsys.readouterr().out)
    refused = [row["scenario"] for row in rows if row["reasons"] != ["measured"]]
    assert refused == ["roce-nic-down"]


def test_what_the_virtual_clock_refuses_is_documented() -> None:
    refused = list[str]()
    for path in library():
        try:
            load(path, (), machine_by("virtual"))
        except InputError:
            refused.append(f"`{path.stem}`")
    guide = (ROOT / "docs" / "guides" / "virtual-clock.md").read_text()
    sentence = f"{', '.join(refused[:-1])} and {refused[-1]} are refused"
    assert sentence in " ".join(guide.split())
