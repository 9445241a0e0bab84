"""The terminal's table of a run, from its JSON object."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

_STYLES = {"pass": "green", "warn": "yellow", "fail": "red"}
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def print_run(result: dict[str, Any], console: Console) -> None:
    """Print the table, the scales, and the answer to the paper's question."""
    console.print(Group(_table(result["cases"]), *_notes(result)))


def _table(cases: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("case", overflow="fold")
    for heading in ("bytes", "measured", "spread", "modeled", "ratio", "algbw", "busbw"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for case in cases:
        table.add_row(*_row(case))
    return table


def _row(case: dict[str, Any]) -> Iterator[RenderableType]:
    measured = case["measured_s"]
    spread = (measured["max"] - measured["min"]) / measured["median"]
    yield case["case"]
    yield human_bytes(case["bytes"])
    yield f"{measured['median']:.3f} s"
    yield f"{spread:.1%}"
    yield f"{case['modeled_s']:.3f} s"
    yield f"{case['ratio']:.4f}"
    yield f"{case['algbw_gbyte_per_s']:.1f}"
    yield f"{case['busbw_gbyte_per_s']:.1f}"
    yield Text(case["verdict"], style=_STYLES[case["verdict"]])


def human_bytes(size: float) -> str:
    """A size with three digits."""
    for factor, unit in _UNITS:
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:g} B"


def _notes(result: dict[str, Any]) -> Iterator[RenderableType]:
    yield Text("Times are emulated seconds; bandwidths are GB/s of the real platform.", "dim")
    yield ""
    for case in result["cases"]:
        yield Text(_scales(case), "dim")
    yield from _reasons(result["cases"])
    if result["slowdowns"]:
        yield ""
        yield Text("What rail-only costs, against rail-optimized:", "bold")
        for slowdown in result["slowdowns"]:
            yield _slowdown(slowdown)


def _scales(case: dict[str, Any]) -> str:
    """Both scales and both times of a case."""
    return (
        f"{case['case']}: rates 1/{case['bandwidth_scale']:g}, size 1/{case['size_scale']:g}, "
        f"{case['time_dilation']:g} emulated s a real s; "
        f"{case['measured_s']['median']:.3f} s emulated are {human_seconds(case['real_s'])} real"
    )


def human_seconds(seconds: float) -> str:
    """Seconds in a unit that fits."""
    for factor, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _reasons(cases: list[dict[str, Any]]) -> Iterator[RenderableType]:
    for case in cases:
        for reason in case["reasons"]:
            yield Text(f"{case['verdict']}: {case['case']}: {reason}", _STYLES[case["verdict"]])


def _slowdown(slowdown: dict[str, Any]) -> str:
    algorithm = slowdown["case"].split("/", 1)[1]
    baseline = slowdown["baseline"].split("/", 1)[1]
    against = "" if algorithm == baseline else f" (against {baseline})"
    return (
        f"  {algorithm}{against}: {slowdown['measured']:+.1%} measured, "
        f"{slowdown['modeled']:+.1%} modeled"
    )
