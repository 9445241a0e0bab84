"""The table of calibrated links, each measured alone, from their JSON objects."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, JustifyMethod
from rich.table import Table
from rich.text import Text

# Headings, and widths at least: each fabric has a table of its own, below its name.
COLUMNS = (
    ("", 9),
    ("nominal", 10),
    ("rate off", 8),
    ("latency", 7),
    ("gaps off", 8),
    ("trials", 6),
    ("paused", 6),
    ("", 9),
)
# Columns for a class of links.
CALIBRATED = ("links", *(heading for heading, _ in COLUMNS[1:-1]), "outcome")
# Outcomes, the best first, with the colours of verdicts.
OUTCOME_STYLES = {"right": "green", "inconclusive": "yellow", "wrong": "red"}


def calibration_table(fabrics: Sequence[Mapping[str, Any]]) -> Group:
    """Return a row for each class of links of each fabric, with the worst value per column.

    With faults, each case has a fabric of its own, which has the case's name.
    """
    shown: list[Table | Text] = [_table(show_header=True)]
    for fabric in fabrics:
        table = _table()
        for kind in dict.fromkeys(link["kind"] for link in fabric["links"]):
            table.add_row(*_row([link for link in fabric["links"] if link["kind"] == kind]))
        shown += [Text(fabric.get("case", fabric["fabric"]), "bold"), table]
    return Group(*shown)


def _table(*, show_header: bool = False) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=show_header)
    for number, (heading, width) in enumerate(COLUMNS):
        justify: JustifyMethod = "right" if number else "left"
        table.add_column(heading, justify=justify, no_wrap=True, min_width=width)
    return table


def _row(links: Sequence[Mapping[str, Any]]) -> Iterator[str | Text]:
    kind, *figures, outcome = worst_of_class(links)
    yield f" {kind}"
    yield from figures
    yield Text(outcome, OUTCOME_STYLES[outcome])


def worst_of_class(links: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the cells of `CALIBRATED` for links of one class, each with its worst value."""
    yield str(links[0]["kind"])
    yield f"{links[0]['nominal_bps'] / 1e6:.4g} Mbit/s"
    yield f"{max((link['rate_error'] for link in links), key=abs):+.2%}"
    yield f"{max(link['latency_s'] for link in links) * 1e6:.0f} µs"
    gaps = [link["gap_error_p95"] for link in links if link["gap_error_p95"] is not None]
    yield f"{max(gaps):.1%}" if gaps else "-"
    yield f"{max(len(link['trials']) for link in links)}"
    paused_s = max(trial["paused_s"] for link in links for trial in link["trials"])
    yield f"{paused_s * 1e3:.0f} ms"
    yield max((link["outcome"] for link in links), key=list(OUTCOME_STYLES).index)
