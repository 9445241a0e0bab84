"""The command `list`."""

from pathlib import Path

from rich.text import Text

from commands.options import Store
from commands.output import out
from model.errors import InputError
from results.store.runs import DEFAULT_STORE, read_result, read_state, require_store, stored_runs
from results.store.tables import case_folders
from scenarios.format.document import value_of
from scenarios.library_files import library


def list_all(store: Store = DEFAULT_STORE) -> None:
    """Print the scenarios of the library, and the runs of a store with their verdicts or states."""
    require_store(store)
    out.print(Text.assemble(("Scenarios", "bold"), " (./railbed run NAME)"))
    scenarios = library()
    width = max(len(path.stem) for path in scenarios)
    for path in scenarios:
        description = value_of(path.read_text()).get("description", "")
        out.print(f"  {path.stem:{width}} {description}", soft_wrap=True)
    where = f" in {store.absolute()} (./railbed show RUN)"
    out.print(Text.assemble(("\nRuns", "bold"), where), soft_wrap=True)
    lines = [f"  {run.name}  {_state(run)}" for run in stored_runs(store)] or ["  none yet"]
    out.print("\n".join(lines), soft_wrap=True)


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
