"""The command `compare`: two stored runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from commands.options import AsJson, RunName, Store
from commands.output import out, print_result, printed_whole
from model.errors import InputError, Problem
from results.sections.several_runs import comparison_sections
from results.store.records import read_json, read_record, reading
from results.store.runs import DEFAULT_STORE, clock_of, find_run, read_result
from results.verdicts.several_runs import StoredRun, comparison_object
from scenarios.format.document import value_of


def compare(
    first: RunName, second: RunName, as_json: AsJson = False, store: Store = DEFAULT_STORE
) -> None:
    """Print the comparison of two runs, or nothing if one of them is damaged."""
    with printed_whole(out, store):
        print_result(compared(store, first, second), as_json, comparison_sections)


def compared(store: Path, first: str, second: str) -> dict[str, Any]:
    """Compare two runs; raise `InputError` if their clocks differ, or no case is in both."""
    runs = [stored_run(find_run(store, name)) for name in (first, second)]
    names = f"{first} and {second}"
    # Times by two clocks are of two machines.
    clocks = [clock_of(run.result) for run in runs]
    if clocks[0] != clocks[1]:
        what = f"were measured by two clocks, {clocks[0]} and {clocks[1]}"
        raise InputError(Problem(names, what, "compare runs with the same --clock"))
    if runs[0].scenario != runs[1].scenario:
        runs = [_with_defaults(run) for run in runs]
    result = comparison_object(*runs)
    if not result["cases"]:
        cases = (f"{name} has {', '.join(runs[n].cases)}" for n, name in enumerate((first, second)))
        what = f"have no case in common: {'; '.join(cases)}"
        hint = "compare runs of one scenario, or of scenarios with the same collectives"
        raise InputError(Problem(names, what, hint))
    return result


def _with_defaults(run: StoredRun) -> StoredRun:
    """Return a run whose scenario has all keys; one that does not fit stays as it is."""
    # Importing the schema takes a third of a second.
    from pydantic import ValidationError

    from scenarios.format.keys import ScenarioFile

    try:
        file = ScenarioFile.model_validate(run.scenario)
    except ValidationError:
        return run
    return replace(run, scenario=file.model_dump(mode="json", by_alias=True))


def stored_run(folder: Path) -> StoredRun:
    """Read a run from its folder; raises `InputError` if it is not complete, or damaged."""
    with reading(folder):
        run = StoredRun(
            result=read_result(folder),
            machine=read_json(folder / "environment.json"),
            scenario=value_of(read_record(folder / "scenario.yaml")),
        )
        if not isinstance(run.scenario, dict):
            raise TypeError("scenario.yaml must be a mapping")
        # Read its cases now, so that an error in them names this run.
        _ = run.cases
    return run
