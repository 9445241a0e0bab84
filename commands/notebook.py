"""Railbed from Python, for notebooks and scripts.

    from commands.notebook import load, open_run

    quickstart = load("quickstart", {"fabric.domains": 2})
    run = quickstart.run(proxies="process")
    run.table("cases")["ratio"]

Tables are NumPy arrays by column, which `pandas.DataFrame` and `polars.DataFrame` accept as they
are. Wrong input raises `InputError` with all problems, as the commands print them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from commands.options import ClockName, ready, require_possible, require_processes
from commands.plugins import enter_plugins
from execution.cases.progress import SILENT, Lines
from model.errors import InputError, Problem
from model.sweep import VIRTUAL
from results.store.runs import DEFAULT_STORE, find_run, read_result
from results.store.tables import JUDGED_TABLES, RAW_TABLES, TEXT, judged_rows, read_table
from scenarios.library_files import scenario_file
from scenarios.load import load as load_scenario
from scenarios.planning.machine_profile import machine_by
from scenarios.scenario import Scenario

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Columns = dict[str, NDArray[Any]]
"""A table: an array for each column, all of one length."""
_RAW = {table.name: table for table in RAW_TABLES}
TABLES = (*JUDGED_TABLES, *_RAW)


@dataclass(frozen=True)
class StoredRun:
    """A complete run in its folder."""

    folder: Path

    @cached_property
    def result(self) -> dict[str, Any]:
        """The run's JSON object (docs/reference/commands.md)."""
        return read_result(self.folder)

    @property
    def verdict(self) -> str:
        """`pass`, `warn` or `fail`."""
        return str(self.result["verdict"])

    def table(self, name: str) -> Columns:
        """A table of the run, of `TABLES`; raises `InputError` for another name.

        Missing values are masked in raw tables, and `None` or NaN in `cases` and `failures`.
        """
        if name in JUDGED_TABLES:
            rows = judged_rows(self.result)[name]
            columns = JUDGED_TABLES[name].items()
            return {key: _column([row[key] for row in rows], kind) for key, kind in columns}
        if name not in _RAW:
            raise InputError(Problem(f"table {name!r}", f"must be one of {', '.join(TABLES)}"))
        return read_table(self.folder, _RAW[name])

    def plot(self) -> "Figure":
        """Completion times of all cases, measured beside modeled; a notebook shows the figure."""
        from results.report.charts import completion

        return completion(self.result["cases"]).figure


def _column(values: Sequence[Any], kind: str) -> NDArray[Any]:
    """An array of values of a kind in SQL: of texts and lists, of objects, else of numbers."""
    if kind.startswith(TEXT) or kind.endswith("[]"):
        column = np.empty(len(values), dtype=object)
        column[:] = values
        return column
    return np.array([np.nan if value is None else value for value in values])


def _in_yaml(key: str, value: object) -> str:
    """Write the value of a key; raises `InputError` for what a scenario cannot have."""
    try:
        # YAML has no escapes in two halves, as JSON has of some characters.
        return json.dumps(value, ensure_ascii=False, default=_plain)
    except (TypeError, ValueError) as error:
        raise InputError(Problem(key, f"cannot be a value of a scenario: {error}")) from None


def _plain(value: object) -> object:
    """Numbers and arrays of NumPy as Python's; raises `TypeError` for anything else."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"got {type(value).__name__}")


@dataclass(frozen=True)
class Setup:
    """A scenario with changes of its keys, for one of the clocks."""

    path: Path
    changes: Mapping[str, object]
    clock: ClockName

    def __post_init__(self) -> None:
        """Raise `InputError` for an unknown clock, or with all problems of the scenario."""
        if self.clock not in get_args(ClockName):
            what = f"must be {' or '.join(get_args(ClockName))}, got {self.clock!r}"
            raise InputError(Problem("clock", what))
        _ = self.scenario

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario with every default and `auto` filled in."""
        overrides = [f"{key}={_in_yaml(key, value)}" for key, value in self.changes.items()]
        return load_scenario(self.path, overrides, machine_by(self.clock))

    def changed(self, changes: Mapping[str, object]) -> "Setup":
        """The same with further changes, which are checked at once."""
        return replace(self, changes={**self.changes, **changes})

    def run(
        self, *, proxies: str | None = None, store: Path = DEFAULT_STORE, progress: bool = False
    ) -> StoredRun:
        """Run the scenario; needs root, unless the clock is virtual.

        `proxies` are containers by default, processes by the virtual clock. `progress` prints a
        line for each step. Raises `NotReady` or `EmulationError` as the command `run` would end
        with; a failed expectation is a verdict.
        """
        require_processes(self.clock, proxies)
        if self.clock == VIRTUAL:
            from execution.virtual_clock.command import run_virtually

            done = run_virtually(self.scenario, store, fresh=False, progress=progress)
            return StoredRun(Path(done["folder"]))
        kind = ready(proxies)
        require_possible(self.scenario)
        from execution.run import run

        listener = Lines(Console()) if progress else SILENT
        return StoredRun(Path(run(self.scenario, kind, store, listener)["folder"]))


def load(
    scenario: str | Path, changes: Mapping[str, object] | None = None, clock: ClockName = "real"
) -> Setup:
    """Load a scenario, a file or a name of the library, with changes such as `fabric.domains`.

    It may have the algorithms of installed packages; raises `InputError` for wrong ones.
    """
    enter_plugins([])
    return Setup(scenario_file(Path(scenario)), changes or {}, clock)


def open_run(name: str = "latest", store: Path = DEFAULT_STORE) -> StoredRun:
    """Open a stored run by its id, the beginning of it, its folder, or `latest`."""
    return StoredRun(find_run(store, name).resolve())
