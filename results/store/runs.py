"""The store of runs: one folder a run, with everything that was measured.

    RUN/scenario.yaml  environment.json  state.json  result.json
    RUN/calibration-FABRIC.json  paths.json
    RUN/CASE/topology.json  prediction.json  transfers.csv  repeats.json  counters.json
        vitals.csv  waits.csv  pauses.csv

`state.json` says `running`, `complete` or `incomplete` with the cause; `result.json` exists once
the run is complete. Runs of a sweep's points are in the sweep's folder (`results/store/sweeps.py`).
"""

import csv
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from model.errors import InputError, Problem
from model.fabric.topology import Topology
from model.measurement.records import Repeat, TransferRecord
from model.prediction.fluid import Prediction

DEFAULT_STORE = Path("runs")


def new_run_id(scenario: str) -> str:
    """Return a unique run id that sorts by time and contains the scenario's name."""
    moment = time.strftime("%Y%m%d-%H%M%S")
    return f"{moment}-{scenario}-{secrets.token_hex(2)}"


def write_json(place: Path, content: Any) -> None:
    """Write a JSON file atomically, by renaming a draft."""
    place.parent.mkdir(exist_ok=True, parents=True)
    draft = place.with_suffix(".draft")
    draft.write_text(json.dumps(content, indent=1, default=str) + "\n")
    draft.rename(place)


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run that is being written."""

    path: Path

    @classmethod
    def create(cls, store: Path, run_id: str, scenario: str, environment: Any) -> "RunFolder":
        """Create the folder with scenario and environment; mark the run `running`."""
        folder = cls(store.resolve() / run_id)
        folder.path.mkdir(parents=True)
        (folder.path / "scenario.yaml").write_text(scenario)
        folder._write("environment.json", environment)
        folder._write("state.json", {"state": "running"})
        return folder

    def _write(self, name: str, content: Any) -> None:
        write_json(self.path / name, content)

    def begin_case(self, case: str, topology: Topology, prediction: Prediction) -> None:
        """Write a case's topology and prediction, and begin its table of transfers."""
        name = folder_name(case)
        self._write(f"{name}/topology.json", {**asdict(topology), "digest": topology.digest})
        self._write(f"{name}/prediction.json", asdict(prediction))
        with (self.path / name / "transfers.csv").open("w", newline="") as file:
            csv.writer(file).writerow([field.name for field in fields(TransferRecord)])

    def folder_of(self, case: str) -> Path:
        """Return the folder of a case."""
        return self.path / folder_name(case)

    def add_repeat(self, case: str, repeat: Repeat) -> None:
        """Append the raw transfer records of an execution."""
        with (self.folder_of(case) / "transfers.csv").open("a", newline="") as file:
            csv.writer(file).writerows(vars(record).values() for record in repeat.records)

    def end_case(
        self,
        case: str,
        warmups: int,
        repeats: tuple[Repeat, ...],
        disturbed: frozenset[int],
        before: Mapping[str, Any],
        after: Mapping[str, Any],
    ) -> None:
        """Write the executions, without transfer records, and the counters of all links.

        `disturbed` has the numbers of the executions that the machine disturbed.
        """
        name = folder_name(case)
        rows = [
            {
                **vars(repeat),
                "warmup": repeat.number < warmups,
                "disturbed": repeat.number in disturbed,
            }
            for repeat in repeats
        ]
        for row in rows:
            del row["records"]
        self._write(f"{name}/repeats.json", rows)
        links = {link: {"before": before[link], "after": after[link]} for link in before}
        self._write(f"{name}/counters.json", links)

    def keep(self, name: str, text: str) -> None:
        """Write a text file to the run's folder."""
        (self.path / name).write_text(text)

    def complete(self, result: Mapping[str, Any]) -> None:
        """Write the result, and mark the run `complete`."""
        self._write("result.json", result)
        self._write("state.json", {"state": "complete"})

    def incomplete(self, cause: str) -> None:
        """Mark the run `incomplete`, with the cause; files written so far stay."""
        self._write("state.json", {"state": "incomplete", "cause": cause})


def folder_name(case: str) -> str:
    """Return the name of a case's folder."""
    return case.replace("/", "_")


def stored_runs(store: Path) -> list[Path]:
    """Return the folders of all runs, including those of sweeps' points, oldest first."""
    found = [*store.glob("*/state.json"), *store.glob("sweeps/*/*/*/state.json")]
    return sorted((place.parent for place in found), key=lambda run: run.name)


def find_run(store: Path, name: str) -> Path:
    """Return the run with this id, path or unique prefix, or the `latest`; else `InputError`."""
    runs = stored_runs(store)
    matches = _matching(runs, name)
    if len(matches) != 1:
        found = "no run" if not matches else f"{len(matches)} runs"
        where = f"{store}: {found} called {name!r}"
        known = ", ".join(run.name for run in runs[-5:]) or "none"
        raise InputError(Problem(where, "name one run", f"the latest are: {known}"))
    return matches[0]


def _matching(runs: list[Path], name: str) -> list[Path]:
    """Return the runs that `name` may mean. A full id takes precedence over its use as a prefix."""
    if name == "latest":
        return runs[-1:]
    if exact := [run for run in runs if run.name == name]:
        return exact
    if (Path(name) / "state.json").is_file():
        return [Path(name)]
    return [run for run in runs if run.name.startswith(name)]


def read_state(run: Path) -> dict[str, str]:
    """Return a run's `state` and, if it is incomplete, the `cause`."""
    state: dict[str, str] = json.loads((run / "state.json").read_text())
    return state


def read_result(run: Path) -> dict[str, Any]:
    """Return the JSON object of a run; raise `InputError` if the run is not complete."""
    state = read_state(run)
    if state["state"] != "complete":
        cause = state.get("cause", "it is under way, or was killed")
        raise InputError(Problem(str(run), f"the run is {state['state']}: {cause}"))
    result: dict[str, Any] = json.loads((run / "result.json").read_text())
    return result
