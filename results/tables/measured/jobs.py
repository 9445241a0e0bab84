"""The table of several jobs: each alone and together, from a run's JSON object."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from rich.table import Table

from results.tables.style import figures_table, styled_verdict


def interference_table(found: Iterable[dict[str, Any]]) -> Table:
    """Return a row for each job: seconds alone and together, the interference, the verdict."""
    table = figures_table("job", "alone", "together", "interference", "modeled")
    table.add_column("")
    for case, jobs in groupby(found, lambda job: str(job["case"])):
        table.add_row(f" {case}")
        for job in jobs:
            seconds = (f"{job[key]['measured']:.3f} s" for key in ("alone_s", "together_s"))
            slower = job["interference"]
            ratios = (f"{slower[key]:.3f}" for key in ("measured", "modeled"))
            table.add_row(f"   {job['job']}", *seconds, *ratios, styled_verdict(job["verdict"]))
    return table
