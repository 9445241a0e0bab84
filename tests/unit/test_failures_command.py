"""The command `failures` prints the rows that it has, whatever ends the other experiments."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from commands.failures import failures
from model.errors import EmulationError, NotReady
from results.verdicts.fault_impact import lost_experiment
from scenarios.library_files import library
from scenarios.load import load
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
    monkeypatch.setattr("commands.options.ready", Mock(side_effect=NotReady("no Docker")))
    with pytest.raises(NotReady):
        failures(proxies="process", store=tmp_path)
    paths = {path.stem: path for path in library()}
    assert executed
    assert executed == [load(paths[one.name], (), TWO_CORES) for one in executed]
