"""Figures of the documentation: a data file for each benchmark, whole and of one machine.

The object of docs/reference/figures/NAME.json has the rows of one execution of the benchmark, and
when, by which commit and on which machine it was.
"""

import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from linux.files.program_files import ROOT
from linux.files.user_files import write_text
from linux.machine.processor import model_name, stolen_s
from linux.processes.lifetime import first_line

FOLDER = ROOT / "docs" / "reference" / "figures"
UNKNOWN = "unknown"
Row = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """The rows of a benchmark, with the origin of them all; `steal` is a share of all cores."""

    command: str
    commit: str
    date: str
    machine: dict[str, Any]
    rows: list[Row] = field(default_factory=list)

    def text(self) -> str:
        """The data file, with a line for each row."""
        head = json.dumps({**asdict(self), "rows": []}, indent=1, ensure_ascii=False)
        rows = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in self.rows)
        return head.removesuffix("[]\n}") + f"[\n{rows}\n ]\n}}\n"


def read(name: str) -> Figure:
    """Read the data file of a benchmark."""
    return Figure(**json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))


@contextmanager
def recording(
    name: str, rows: Sequence[Row], *, record: bool, clock: str = "real"
) -> Iterator[None]:
    """Write the data file of a benchmark when its rows are complete, unless it fails."""
    begun_s, before_s = time.monotonic(), stolen_s()
    yield
    if record:
        cores_s = (time.monotonic() - begun_s) * (os.cpu_count() or 1)
        machine = {**_machine(clock), "steal": round((stolen_s() - before_s) / cores_s, 4)}
        commit = first_line("git", "-C", str(ROOT), "describe", "--always", "--dirty")
        date = datetime.now(UTC).date().isoformat()
        figure = Figure(
            f"./railbed bench {name}", commit, date, machine, [_rounded(row) for row in rows]
        )
        FOLDER.mkdir(parents=True, exist_ok=True)
        write_text(FOLDER / f"{name}.json", figure.text())


def _rounded(row: Row) -> Row:
    """Return a row whose floats have six digits."""
    return {
        key: float(f"{value:.6g}") if isinstance(value, float) else value
        for key, value in row.items()
    }


def _machine(clock: str) -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "kernel": platform.release(),
        "cpu": model_name(),
        "clock": clock,
    }
