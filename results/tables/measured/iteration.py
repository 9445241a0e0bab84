"""The parts of training iterations, and their reductions, from a run's JSON object."""

from collections.abc import Iterable, Iterator
from typing import Any

from rich.table import Table

from results.tables.style import Case, figures_table

# Parts that are shorter are rounding errors.
SHOWN_S = 1e-9


def parts_table(cases: Iterable[Case]) -> Table:
    """Return the parts of each iteration: compute, exposed traffic by dimension, waiting."""
    table = figures_table("of a GPU's time", "measured", "modeled")
    for case in cases:
        table.add_row(f" {case['case']}")
        for name, part in case["iteration"]["parts_s"].items():
            if max(part.values()) > SHOWN_S:
                seconds = (f"{part[key]:.3f} s" for key in ("measured", "modeled"))
                table.add_row(f"   {name}", *seconds)
    return table


def reduction_lines(cases: Iterable[Case]) -> Iterator[str]:
    """Yield a line for each configuration: the numbers that were reduced."""
    told = {case["algorithm"]: case["iteration"]["reduction"] for case in cases}
    for name, changes in told.items():
        yield f"{name}: {reduction_in_words(changes)}"


def reduction_in_words(changes: Iterable[dict[str, Any]]) -> str:
    """Name the reduced numbers; all others were kept."""
    reduced = [
        f"{change['what']} {change['full']:.4g} -> {change['reduced']:.4g}"
        for change in changes
        if change["full"] != change["reduced"]
    ]
    return f"reduced: {', '.join(reduced)}" if reduced else "nothing was reduced"
