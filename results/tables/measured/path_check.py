"""The table of checked paths, from their JSON object."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from results.tables.style import VERDICT_STYLES, print_clock, styled_verdict
from results.verdicts.verdict import Verdict

SHOWN_MISMATCHES = 20


def print_verify(result: dict[str, Any], console: Console) -> None:
    """Print the table, each fabric's first `SHOWN_MISMATCHES` pairs, and failed rail isolation."""
    console.print(_table(result["fabrics"]))
    for fabric in result["fabrics"]:
        for line in (*_astray(fabric["mismatches"]), *_crossing(fabric["rail_isolation"])):
            what = f"fail: {fabric['kind']}: {line}"
            console.print(Text(what, VERDICT_STYLES["fail"]), soft_wrap=True)
    print_clock(result, console)


def _table(fabrics: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in (
        "fabric",
        "pairs",
        "as intended",
        "rail isolation",
        "bytes across rails",
        "verdict",
    ):
        table.add_column(heading)
    for fabric in fabrics:
        isolation = fabric["rail_isolation"]
        table.add_row(
            fabric["kind"],
            str(fabric["pairs"]),
            str(fabric["as_intended"]),
            styled_verdict(isolation["verdict"]),
            "" if isolation["foreign_bytes"] is None else str(isolation["foreign_bytes"]),
            styled_verdict(fabric["verdict"]),
        )
    return table


def _astray(mismatches: Sequence[dict[str, Any]]) -> Iterator[str]:
    for entry in mismatches[:SHOWN_MISMATCHES]:
        pair = f"{entry['source']} to {entry['destination']}"
        intended, found = (" ".join(entry[key]) or "nothing" for key in ("intended", "found"))
        stray = f"{entry['stray']} of {entry['probes']} probes astray, {entry['arrived']} arrived"
        yield f"{pair}: intended {intended}; found {found}; {stray}"
    if len(mismatches) > SHOWN_MISMATCHES:
        yield f"and {len(mismatches) - SHOWN_MISMATCHES} more pairs"


def _crossing(isolation: dict[str, Any]) -> Iterator[str]:
    if isolation["verdict"] == Verdict.FAIL:
        if isolation["foreign_bytes"]:
            yield f"rails are not isolated: {isolation['foreign_bytes']} bytes crossed"
        else:
            yield "no switch forwarded anything on its own rail: isolation is not shown"
