"""Tables of special work: parts of iterations, latencies of requests, interference of jobs."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from rich.table import Table

from model.training.reduction import reduction_in_words
from results.tables.style import Case, figures_table, human_seconds, styled_verdict

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


def latency_table(cases: Iterable[Case]) -> Table:
    """Return the percentiles of each request load's latencies, measured and modeled."""
    table = figures_table("of requests' latencies", "measured", "modeled", "ratio", "real")
    for case in cases:
        found = case["inference"]
        load = f"{found['count']} requests, {found['offered_load']:.0%} of the NICs' rate"
        table.add_row(f" {case['case']}: {load}")
        for name, value in found["latency_s"].items():
            seconds = (f"{value[key]:.4f} s" for key in ("measured", "modeled"))
            ratio = f"{value['measured'] / value['modeled']:.3f}"
            real = human_seconds(value["measured"] / case["time_dilation"])
            table.add_row(f"   {name}", *seconds, ratio, real)
    return table


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
