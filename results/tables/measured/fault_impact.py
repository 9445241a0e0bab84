"""The table of failure experiments, from their JSON objects."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from results.tables.style import VERDICT_STYLES, number_or_dash, styled_verdict

LEGEND = (
    "Blackout: the longest of the affected pairs that have another path. Completion times, in "
    "emulated seconds: before the fault, of the execution in which it begins, with the fault "
    "throughout, after it. Model, ratio: of the degraded phase. Lost: probes of unaffected pairs. "
    "Replay: no prediction, but a model that is told when the paths of this execution changed."
)
COLUMNS = (
    ("blackout", 8),
    ("baseline", 8),
    ("during", 6),
    ("degraded", 8),
    ("recovered", 9),
    ("model", 5),
    ("ratio", 5),
    ("lost", 4),
)


def print_failures(rows: Sequence[dict[str, Any]], console: Console) -> None:
    """Print a row for each fabric, grouped by experiment, then the reasons.

    The heading of a group has the experiment's name, its fault and its recovery strategy.
    """
    for heading, together in groupby(rows, _heading):
        console.print(Text(heading, "bold"))
        shown = list(together)
        console.print(_table(shown))
        for row in shown:
            console.print(Text.assemble(*_replay(row)), end="")
    console.print(Text(LEGEND, "dim"))
    for row in (row for row in rows if row["verdict"] != "pass"):
        for reason in row["reasons"]:
            what = f"{row['verdict']}: {_heading(row)}: {row['fabric']}: {reason}"
            console.print(Text(what, VERDICT_STYLES[row["verdict"]]))


def _replay(row: dict[str, Any]) -> Iterator[str | Text]:
    """Yield a line for an execution that has no prediction, only a replay."""
    if row["replay_ratio"] is not None:
        yield f"{row['fabric']}: replay {row['modeled_replay_s']:.3f}, "
        yield f"during / replay {row['replay_ratio']:.3f} "
        yield styled_verdict(row["replay_verdict"])
        yield "\n"


def _heading(row: dict[str, Any]) -> str:
    """Name the experiment; then the component, its place, and the recovery strategy."""
    known = (row[key] for key in ("fault", "where", "strategy"))
    details = " · ".join(word for word in known if word)
    return ": ".join(filter(None, (row["scenario"], details)))


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True, min_width=14)
    for heading, width in COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True, min_width=width)
    table.add_column("")
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: dict[str, Any]) -> Iterator[str | Text]:
    yield row["fabric"] or ""
    yield number_or_dash(row["blackout_ms"], ".0f", " ms")
    times = ("baseline_s", "during_fault_s", "degraded_s", "recovered_s", "modeled_degraded_s")
    for key in (*times, "ratio"):
        yield number_or_dash(row[key], ".3f")
    yield number_or_dash(row["lost_probes_unaffected"], "d")
    yield styled_verdict(row["verdict"])
