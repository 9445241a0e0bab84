"""The command `failures` prints the rows that it has, whatever ends the other experiments."""

import json
from pathlib import Path
from typing import Any

import pytest

from commands.failures import failures
from model.errors import EmulationError, NotReady
from results.verdicts.fault_impact import lost_experiment
from scenarios.scenario import Scenario


def test_rows_are_printed_whatever_becomes_of_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = [None, EmulationError("no carrier"), NotReady("no Docker"), KeyboardInterrupt()]

    def run(experiment: Scenario, *_: object) -> dict[str, Any]:
        if (end := ends.pop(0)) is not None:
            raise end
        return {"failures": [lost_experiment(experiment.name, "measured")]}

    monkeypatch.setattr("execution.run.run", run)
    monkeypatch.setattr("commands.failures.require_possible", lambda _: None)
    monkeypatch.setattr("commands.failures.ready", lambda *_: "process")
    with pytest.raises(KeyboardInterrupt):
        failures(as_json=True, proxies="process", store=tmp_path)
    rows = json.loads(capsys.readouterr().out)
    assert [row["reasons"] for row in rows] == [["measured"], ["no carrier"], ["no Docker"]]
