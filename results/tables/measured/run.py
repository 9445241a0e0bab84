"""The terminal output of a run, from its JSON object."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from results.store.runs import without_fabric
from results.tables.measured.breakdown import (
    interference_table,
    latency_table,
    parts_table,
    reduction_lines,
)
from results.tables.measured.fault_impact import print_failures
from results.tables.measured.link_calibration import calibration_table
from results.tables.measured.observations import (
    EXECUTIONS_LEGEND,
    HEADROOM_LEGEND,
    executions_table,
    headroom_table,
)
from results.tables.measured.path_check import print_verify
from results.tables.style import (
    VERDICT_STYLES,
    Case,
    add_cases,
    case_grid,
    figures_table,
    human_seconds,
    number_or_dash,
    print_clock,
    styled_verdict,
)

OVERLAP_LEGEND = (
    "Chunks: parts of a collective's data, slices counted. Overlap: the part of the modeled time "
    "in which HB domains and NICs carry data at once."
)
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def print_run(result: dict[str, Any], console: Console) -> None:
    """Print a run's tables, scales, and slowdowns of rail-only against rail-optimized."""
    if result["failures"]:
        print_failures(result["failures"], console)
    if result["cases"]:
        console.print(Group(_table(result["cases"]), *_notes(result)))
    if "calibration" in result:
        console.print(Text("\nLinks, each measured alone; the worst of each class:", "bold"))
        console.print(calibration_table(result["calibration"]))
    print_clock(result, console)
    if "paths" in result:
        console.print(Text("\nThe paths that packets took:", "bold"))
        print_verify(result["paths"], console)


def _table(cases: list[dict[str, Any]]) -> Table:
    headings = ("bytes", "measured", "spread", "modeled", "ratio", "algbw", "busbw")
    table = figures_table("case", *headings)
    table.add_column("")
    add_cases(table, cases, _cells)
    return table


def _cells(case: Case) -> Iterator[RenderableType]:
    measured = case["measured_s"]
    spread = (measured["max"] - measured["min"]) / measured["median"]
    several = len(measured["values"]) > 1
    yield human_bytes(case["bytes"])
    yield f"{measured['median']:.3f} s"
    yield f"{spread:.1%}" if several else "-"
    yield f"{case['modeled_s']:.3f} s"
    yield f"{case['ratio']:.4f}"
    for key in ("algbw_gbyte_per_s", "busbw_gbyte_per_s"):
        yield number_or_dash(case[key], ".1f")
    yield styled_verdict(case["verdict"])


def human_bytes(size: float) -> str:
    """Format a size in bytes, with three significant digits."""
    for factor, unit in _UNITS:
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:g} B"


def _notes(result: dict[str, Any]) -> Iterator[RenderableType]:
    yield Text("Times are emulated; bandwidths are GB/s of the real platform.", "dim")
    crafted = [case for case in result["cases"] if case["generator"] == "scapy"]
    checked = [case for case in result["cases"] if is_checked(case) and case not in crafted]
    if checked:
        yield _data(checked)
    if crafted:
        yield _packets(crafted)
    yield ""
    yield Text("Scales, and the measured time, emulated and on the real platform:", "bold")
    yield _scales(result["cases"])
    for chosen in result.get("scales", ()):
        yield Text(f"{chosen['key']}: auto is {chosen['value']:g}: {chosen['why']}", "dim")
    if scheduled := [case for case in result["cases"] if case["overlap"] is not None]:
        yield ""
        yield Text("Chunks of the data, and the overlap of HB domains and NICs:", "bold")
        yield case_grid(("chunks", "overlap"), scheduled, _schedule_cells)
        yield Text(OVERLAP_LEGEND, "dim")
    if crossing := [case for case in result["cases"] if "rail_crossings" in case]:
        yield ""
        yield Text("Rails that are crossed, though no spine switch joins them:", "bold")
        yield from (Text(line) for case in crossing for line in rail_crossings(case))
    yield ""
    yield Text("Executions, and pauses of the machine:", "bold")
    yield executions_table(result["cases"])
    yield Text(EXECUTIONS_LEGEND, "dim")
    if any("windows" in case["fidelity"] for case in result["cases"]):
        yield ""
        yield Text("Machine headroom:", "bold")
        yield headroom_table(result["cases"])
        yield Text(HEADROOM_LEGEND, "dim")
    if iterations := [case for case in result["cases"] if "iteration" in case]:
        yield ""
        yield Text("Training iterations: compute, traffic that it does not hide, waiting:", "bold")
        yield parts_table(iterations)
        yield from (Text(line, "dim") for line in reduction_lines(iterations))
    if loads := [case for case in result["cases"] if "inference" in case]:
        yield ""
        yield Text("Requests, from arrival to the last byte of their KV cache:", "bold")
        yield latency_table(loads)
    if "interference" in result:
        yield ""
        yield Text("Jobs at once, and the interference: together over alone:", "bold")
        yield interference_table(result["interference"])
    yield from _reasons(result["cases"])
    if "generators" in result:
        yield ""
        yield Text("Completion times of other generators, against the agents':", "bold")
        for agreement in result["generators"]:
            yield f"  {agreement['case']}: {agreement['ratio']:.4f}"
    if result["slowdowns"] and not checked:
        yield ""
        yield Text("What rail-only costs, against rail-optimized:", "bold")
        for slowdown in result["slowdowns"]:
            yield slowdown_in_words(slowdown)


def is_checked(case: Mapping[str, Any]) -> bool:
    """Whether the data was checked."""
    return case["data_is_right"] is not None


def _data(checked: list[dict[str, Any]]) -> Text:
    """Say whether all results are right, and that the times mean nothing."""
    times = "The agents checked them meanwhile: the times mean nothing, and no ratio is judged."
    if wrong := [case["case"] for case in checked if not case["data_is_right"]]:
        return Text(f"data: not all results are right, in {', '.join(wrong)}. {times}", "red")
    return Text(f"data: all elements of all results are right. {times}", "green")


def _packets(crafted: list[dict[str, Any]]) -> Text:
    """Say whether all crafted packets came, on their paths, and that the times mean nothing."""
    times = "They were crafted one by one: the times mean nothing, and no ratio is judged."
    if wrong := [case["case"] for case in crafted if not case["data_is_right"]]:
        return Text(f"packets: not all came as intended, in {', '.join(wrong)}. {times}", "red")
    return Text(f"packets: all came whole, on their intended paths. {times}", "green")


def _scales(cases: list[dict[str, Any]]) -> Table:
    """Return rate scale, size scale, emulated time and real time of every case."""
    return case_grid(("", "", "", ""), cases, _scale_cells)


def _scale_cells(case: Case) -> Iterator[str]:
    yield f"rates / {case['bandwidth_scale']:g}"
    yield f"size / {case['size_scale']:g}"
    yield human_seconds(case["measured_s"]["median"])
    yield f"{human_seconds(case['real_s'])} real"


def rail_crossings(case: Mapping[str, Any]) -> Iterator[str]:
    """Say how a case crosses rails on a rail-only fabric."""
    yield from (f"  {case['case']}: {how}" for how in case.get("rail_crossings", ()))


def _schedule_cells(case: Case) -> Iterator[str]:
    yield number_or_dash(case["chunks"], "d")
    yield f"{case['overlap']:.1%}"


def _reasons(cases: list[dict[str, Any]]) -> Iterator[RenderableType]:
    for case in cases:
        for reason in case["reasons"]:
            yield Text(
                f"{case['verdict']}: {case['case']}: {reason}", VERDICT_STYLES[case["verdict"]]
            )


def slowdown_in_words(slowdown: dict[str, Any]) -> str:
    """Say how much slower rail-only is in a case, measured and modeled."""
    case, baseline = without_fabric(slowdown["case"]), without_fabric(slowdown["baseline"])
    against = "" if case == baseline else f", against {baseline.split('/')[1]}"
    measured, modeled = _slower(slowdown["measured"]), _slower(slowdown["modeled"])
    return f"  {case}{against}: {measured} (modeled: {modeled})"


def _slower(slowdown: float) -> str:
    """Return a slowdown in words; one that rounds to 0.0 % has no sign."""
    size = f"{abs(slowdown):.1%}"
    if size == "0.0%":
        return "as fast"
    return f"{size} {'slower' if slowdown > 0 else 'faster'}"
