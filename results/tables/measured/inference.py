"""Latencies of request loads, from a run's JSON object."""

from collections.abc import Iterable

from rich.table import Table

from results.tables.style import Case, figures_table, human_seconds


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
