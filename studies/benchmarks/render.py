"""Figures of the documentation: their data files, and the tables rendered from them.

    python -m studies.benchmarks.render

Writes each table of the pages anew, between its markers. A table whose benchmark has changed since
its commit says so. The object of docs/reference/figures/NAME.json has the rows of one execution of
the benchmark, and when, by which commit and on which machine it was.
"""

import json
import os
import platform
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from linux.files.program_files import ROOT, rows_of
from linux.files.user_files import write_text
from linux.machine.processor import model_name, stolen_s
from linux.processes.lifetime import first_line
from model.sentences import counted
from results.render.markdown import table
from results.store.tables import in_memory
from studies.benchmarks import BENCHMARKS, code_of
from studies.benchmarks.rows import Row

DOCS = ROOT / "docs"
FOLDER = DOCS / "reference" / "figures"
# Which rows tables have, if not all.
QUERIES = Path(__file__).with_name("queries")
UNKNOWN = "unknown"
# The pages with figures.
PAGES = (
    DOCS / "reference" / "measurements.md",
    DOCS / "reference" / "training.md",
    DOCS / "explanation" / "model.md",
    DOCS / "explanation" / "roce.md",
)
MARKER = re.compile(r"(<!--figure:([\w-]+)-->)\n.*?<!--end-->\n", re.DOTALL)
# A line of code that imports nothing: modules that move change no figure.
CODE = "^([^fi]|f[^r]|i[^m])"
CHANGED = "; **code changed since**"
# A share of the processor's time that a figure names.
MUCH_STEAL = 0.01


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
    name: str, rows: Sequence[Row], *, record: bool, clock: str = "real", command: str = ""
) -> Iterator[None]:
    """Write the data file of a benchmark when its rows are complete, unless it fails.

    `command` is the one that measures what is no benchmark.
    """
    begun_s, before_s = time.monotonic(), stolen_s()
    yield
    if record:
        memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        cores_s = (time.monotonic() - begun_s) * (os.cpu_count() or 1)
        machine = {
            "cores": os.cpu_count(),
            "memory_gib": round(memory_bytes / 2**30),
            "kernel": platform.release(),
            "cpu": model_name(),
            "clock": clock,
            "steal": round((stolen_s() - before_s) / cores_s, 4),
        }
        figure = Figure(
            command=command or f"./railbed bench {name}",
            commit=first_line("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
            date=datetime.now(UTC).date().isoformat(),
            machine=machine,
            rows=[{key: _rounded(value) for key, value in row.items()} for row in rows],
        )
        FOLDER.mkdir(parents=True, exist_ok=True)
        write_text(FOLDER / f"{name}.json", figure.text())


def _rounded(value: Any) -> Any:
    """Return a float with six digits; any other value as it is."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


@dataclass(frozen=True)
class Table:
    """The columns of a table by key, for all rows, or those of `query`, that have the last one.

    With `across`, each combination of those keys' values is a column, whose cells have the values
    of the last key.
    """

    columns: str
    across: str = ""
    query: str = ""

    def lines(self, rows: Sequence[Row]) -> Iterator[str]:
        """Yield the lines in Markdown; a leading cell that repeats the one above is empty."""
        keys = self.columns.split()
        chosen = _answered(self.query, rows) if self.query else rows
        mine = [row for row in chosen if keys[-1] in row]
        if self.across:
            keys, mine = _pivoted(keys, self.across.split(), mine)
        cells = ([_cell(key, row.get(key)) for key in keys] for row in mine)
        yield from table([_title(key) for key in keys], _without_repetition(cells))


def _without_repetition(rows: Iterable[list[str]]) -> Iterator[list[str]]:
    """Leave the leading cells empty that repeat those of the row above."""
    above: list[str] = []
    for row in rows:
        same = 0
        while above and same < len(row) - 1 and row[same] == above[same]:
            same += 1
        yield [""] * same + row[same:]
        above = row


def _pivoted(
    keys: Sequence[str], across: Sequence[str], rows: Sequence[Row]
) -> tuple[list[str], list[Row]]:
    """Return the keys and rows of a table in which the values of `across` are columns."""
    *places, value = keys
    columns: dict[str, None] = {}
    merged: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        if {*keys, *across} <= row.keys():
            column = f"{value}@{', '.join(_cell(key, row[key]) for key in across)}"
            columns[column] = None
            place = {key: row[key] for key in places}
            merged.setdefault(tuple(place.values()), place)[column] = row[value]
    return [*places, *columns], list(merged.values())


# Titles that the key does not say, and keys whose values are shares.
TITLES = {row["key"]: row["title"] for row in rows_of(Path(__file__).with_name("titles.csv"))}
SHARES = re.compile(
    r"(asked|spread|error\w*|measured|modeled|steal|server_share_of_a_core|headers|bursts|last_segment|"
    r"acknowledgements|probes|latency|paper|at_scale)"
)
RATIOS = re.compile(r"(\w*ratio\w*|\w+_over_\w+|\w*interference|uneven\w*)")
SIGNED = "deviation"
UNITS = {"s": "s", "ms": "ms", "us": "us", "mib": "MiB", "gib": "GiB"}


def _title(key: str) -> str:
    """The column's title: the key in words, with its unit; of a pivoted key, the value across."""
    name, _, value = key.partition("@")
    if value:
        return value if name == "ratio" else f"{value}: {_title(name)}"
    if name in TITLES:
        return TITLES[name]
    words, _, unit = name.rpartition("_")
    return f"{words}, {UNITS[unit]}".replace("_", " ") if unit in UNITS else name.replace("_", " ")


def _cell(key: str, value: object) -> str:
    name = key.partition("@")[0]
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    if name == SIGNED:
        return f"{100 * round(value, 6) + 0.0:+.2f} %"  # no negative zero
    if RATIOS.fullmatch(name):
        return f"{value:.3f}"
    if SHARES.fullmatch(name):
        return f"{round(float(f'{100 * value:.3g}'), 2) + 0.0:g} %"  # no negative zero
    return f"{value:.4g}"


def _answered(query: str, rows: Sequence[Row]) -> list[Row]:
    """Answer a query in SQL, which sees the rows as the table `figure`; keys of a few are NULL."""
    content = json.dumps(rows)
    with in_memory() as memory:
        structure = memory.execute("SELECT json_structure(?)", [content]).fetchall()[0][0]
        made = "CREATE TABLE figure AS SELECT unnest(from_json(?, ?), recursive := true)"
        memory.execute(made, [content, structure])
        answer = memory.execute(query)
        names = [column[0] for column in answer.description or ()]
        return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def _tables() -> dict[str, list[Table]]:
    """Read the tables of each figure, in their order."""
    tables = defaultdict[str, list[Table]](list)
    for row in rows_of(Path(__file__).with_name("tables.csv")):
        query = row["rows"] and (QUERIES / f"{row['rows']}.sql").read_text(encoding="utf-8")
        tables[row["figure"]].append(Table(row["columns"], row["across"], query))
    return dict(tables)


TABLES = _tables()


def rendered(name: str, figure: Figure) -> str:
    """The tables of a figure, and their origin."""
    tables = ["\n".join(table.lines(figure.rows)) for table in TABLES[name]]
    changed = CHANGED if _has_changed(name, figure.commit) else ""
    return "\n\n".join([*tables, f"*{_origin(name, figure)}{changed}*"])


def _origin(name: str, figure: Figure) -> str:
    """What is known about the origin: commit, date; the machine, unless measurements.md has it."""
    machine = figure.machine
    size = machine["cores"], machine["memory_gib"]
    parts = [f"`{figure.command}`", f"[data](../reference/figures/{name}.json)"]
    if figure.commit != UNKNOWN:
        parts.append(f"commit {figure.commit}")
    if figure.date[:1].isdigit():
        parts.append(figure.date)
    if size != (2, 24) or not machine["kernel"].startswith("6.18"):
        cores = counted(machine["cores"], "core")
        parts.append(f"{cores}, {machine['memory_gib']} GiB, {machine['kernel']}")
    if isinstance(machine["steal"], float) and machine["steal"] >= MUCH_STEAL:
        parts.append(f"steal {_cell('steal', machine['steal'])}")
    return "; ".join(parts)


def _has_changed(name: str, commit: str) -> bool:
    """Whether code of the benchmark's module, or its scenario, is another than at a commit."""
    if commit == UNKNOWN or name not in BENCHMARKS:
        return False
    git, since = ("git", "-C", str(ROOT)), commit.removesuffix("-dirty")
    changes = ("diff", "--name-only", "-G", CODE, f"{since}..", "--", *code_of(name))
    # A commit that did not become a part of the history measured other code.
    is_past = first_line(*git, "merge-base", since, "HEAD").startswith(since)
    return not is_past or bool(first_line(*git, *changes))


def page(text: str) -> str:
    """The text of a page with all its tables rendered anew."""
    return MARKER.sub(
        lambda found: f"{found[1]}\n{rendered(found[2], read(found[2]))}\n<!--end-->\n", text
    )


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
