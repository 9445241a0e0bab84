"""The data of a complete run for a report: result, scenario, topologies, predictions, tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from model.arrays import Floats, Ints
from model.errors import InputError, Problem
from model.fabric.spec import grouped
from model.fabric.topology import Topology
from results.store import tables as raw
from results.store.records import HINT, read_json, read_record, reading
from results.store.runs import read_result

Columns = Mapping[str, np.ndarray[Any, Any]]
TOPOLOGY = TypeAdapter(Topology)
# Tables in which no value may be missing, and those of which every case has rows.
WHOLE = (raw.EXECUTIONS, raw.TRANSFERS, raw.COUNTERS, raw.LINK_SAMPLES, raw.QUEUES)
FILLED = (raw.EXECUTIONS.name, raw.TRANSFERS.name)


@dataclass(frozen=True)
class CaseData:
    """A measured case, or a measured phase of a case with faults.

    Columns are NumPy arrays. `arrival_s` has the predicted arrival of each transfer; samples of
    links are of the execution during the fault, those of switches' queues of the whole case.
    Disturbed executions count only if `disturbed_counted`.
    """

    name: str
    topology: Topology
    arrival_s: Sequence[float]
    disturbed_counted: bool
    executions: Columns
    transfers: Columns
    counters: Columns
    link_samples: Columns
    queue_pairs: Columns
    queues: Columns

    @cached_property
    def measured(self) -> Columns:
        """The transfers of all executions that count."""
        numbers = self.executions["number"][self._counted]
        return rows(self.transfers, np.isin(self.transfers["repeat"], numbers))

    @property
    def begun_ns(self) -> int:
        """The start of the first execution, of CLOCK_MONOTONIC."""
        return int(self.executions["start_ns"].min())

    @property
    def ends_ns(self) -> Ints:
        """The end of each execution, of CLOCK_MONOTONIC."""
        took_ns = np.rint(self.executions["completion_s"] * 1e9).astype(np.int64)
        return self.executions["start_ns"] + took_ns

    @property
    def completion_s(self) -> Floats:
        """The completion times of all executions that count."""
        seconds: Floats = self.executions["completion_s"][self._counted]
        return seconds

    @property
    def _counted(self) -> Any:
        """A mask of the executions that count; of all complete ones if none counts."""
        of = self.executions
        counted = of["complete"] & ~of["warmup"] & (self.disturbed_counted | ~of["disturbed"])
        return counted if counted.any() else of["complete"]

    @cached_property
    def one(self) -> Columns:
        """The transfers of the last execution, in the order of their numbers."""
        return self._execution(self.transfers["repeat"].max())

    @property
    def median(self) -> Columns:
        """As `one`, of the execution that counts with the median completion time."""
        order = np.argsort(self.completion_s, kind="stable")
        numbers = self.executions["number"][self._counted]
        return self._execution(numbers[order[(len(order) - 1) // 2]])

    def _execution(self, number: int) -> Columns:
        mine = rows(self.transfers, self.transfers["repeat"] == number)
        return rows(mine, np.argsort(mine["transfer"]))


@dataclass(frozen=True)
class RunData:
    """A complete run."""

    folder: Path
    result: Mapping[str, Any]
    scenario: str
    cases: Mapping[str, CaseData]

    @property
    def fabrics(self) -> dict[str, list[CaseData]]:
        """The cases and phases on each kind of fabric."""
        by_kind: dict[str, list[CaseData]] = {}
        for case in self.cases.values():
            by_kind.setdefault(case.topology.spec.kind.value, []).append(case)
        return by_kind


def read_run(folder: Path) -> RunData:
    """Read a run; raise `InputError` if it is not complete, or damaged."""
    result = read_result(folder)
    with reading(folder):
        for case in result["cases"]:
            _require_figures(case)
    tables = {table.name: _whole(folder, table) for table in WHOLE}
    tables[raw.QUEUE_PAIRS.name] = raw.read_table(folder, raw.QUEUE_PAIRS)
    with reading(folder):
        folders, cases = raw.case_folders(folder), {}
        # Cases and phases whose disturbed executions count.
        all_count = {case["case"] for case in result["cases"] if case["disturbed_counted"]}
        for failure in result["failures"]:
            phases = failure.get("disturbed_counted", ())
            all_count |= {f"{failure['case']}/{phase}" for phase in phases}
        for name in sorted(folders, key=raw.case_names(result).index):
            mine = {table: rows(of, of[raw.CASE] == name) for table, of in tables.items()}
            for table in FILLED:
                if not len(mine[table][raw.CASE]):
                    what = f"no rows of {name} in table {table}"
                    raise InputError(Problem(str(folder), what, HINT))
            stored = read_json(folders[name] / "topology.json")
            stored.pop("digest", None)
            stored["spec"] = grouped(stored["spec"])
            arrival_s = read_json(folders[name] / "prediction.json")["arrival_s"]
            topology = TOPOLOGY.validate_python(stored)
            cases[name] = CaseData(name, topology, arrival_s, name in all_count, **mine)
    return RunData(folder, result, read_record(folder / "scenario.yaml"), cases)


def _whole(folder: Path, table: raw.RawTable) -> Columns:
    """Return a table in which no value is missing."""
    columns = raw.read_table(folder, table)
    if missing := [name for name, column in columns.items() if np.ma.is_masked(column)]:
        what = f"table {table.name} needs values of {', '.join(missing)}"
        raise InputError(Problem(str(folder), what, HINT))
    return {name: np.asarray(column) for name, column in columns.items()}


def _require_figures(case: Mapping[str, Any]) -> None:
    """Raise `ValueError` unless measured and modeled times of a case are finite numbers."""
    measured = case["measured_s"]
    figures = [measured[key] for key in ("median", "min", "max")]
    for figure in (*figures, *measured["values"], case["modeled_s"], case["ratio"]):
        if not math.isfinite(figure):
            raise ValueError(f"{case['case']}: time must be a finite number, got {figure}")


def rows(table: Columns, chosen: Any) -> Columns:
    """Return some rows of a table, by a mask or by their indices."""
    return {name: column[chosen] for name, column in table.items()}
