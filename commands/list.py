"""The command `list`."""

from collections.abc import Iterator
from pathlib import Path

from commands.options import AsJson, Store
from commands.output import print_result
from model.errors import InputError
from results.sections.section import Result, Section
from results.store.runs import DEFAULT_STORE, read_result, read_state, require_store, stored_runs
from results.store.tables import case_folders
from scenarios.format.document import value_of
from scenarios.library_files import library


def list_all(store: Store = DEFAULT_STORE, as_json: AsJson = False) -> None:
    """Print the scenarios of the library, and the runs of a store with their verdicts or states."""
    require_store(store)
    scenarios = {path.stem: value_of(path.read_text()).get("description", "") for path in library()}
    runs = {run.name: _state(run) for run in stored_runs(store)}
    result = {"schema": "railbed.list/1", "scenarios": scenarios, "runs": runs}
    print_result({**result, "store": store.absolute()}, as_json, _sections)


def _sections(result: Result) -> Iterator[Section]:
    scenarios, runs = result["scenarios"], result["runs"]
    width = max(map(len, scenarios))
    lines = [f"  {name:{width}} {description}" for name, description in scenarios.items()]
    yield Section("Scenarios", remarks=("Scenarios (./railbed run NAME):", *lines))
    lines = [f"  {name}  {state}" for name, state in runs.items()] or ["  none yet"]
    yield Section(f"Runs in {result['store']} (./railbed show RUN)", remarks=lines)


def _state(run: Path) -> str:
    """Return the verdict of a complete run, the state of another, or why it cannot be read."""
    try:
        state = read_state(run)["state"]
        if state != "complete":
            return state
        case_folders(run)
        return str(read_result(run)["verdict"])
    except InputError as error:
        return f"damaged: {error}"
