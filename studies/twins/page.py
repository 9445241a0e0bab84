"""The page of the measured figures: Markdown, with the drawings beside it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from linux.files.user_files import make_folder
from results.figures.curves import draw
from results.store.records import write_record
from studies.paper.study import DEFAULT
from studies.twins.drawings import DRAWINGS
from studies.twins.heat_maps import HEAT_MAPS
from studies.twins.iterations import PARTS
from studies.twins.points import (
    ALL_TO_ALL,
    EXPERIMENTS,
    FIG8,
    FIG9,
    FIG10,
    GPUS,
    HB,
    IDEAL,
)
from studies.twins.rail_only_losses import ALGORITHMS

Result = dict[str, Any]
Row = dict[str, Any]
Lines = Iterator[str]
PAGE = "measured.md"


def write_page(result: Result, folder: Path) -> Path:
    """Write the page and its drawings, other than heat maps, into a folder; return its path."""
    make_folder(folder)
    for name, panels in DRAWINGS.items():
        draw(list(panels(result)), folder / f"measured-{name}")
    write_record(folder / PAGE, "\n".join(_lines(result)) + "\n")
    return folder / PAGE


def _lines(result: Result) -> Lines:
    for section in (_head, _figure_8, _figure_9, _figure_10, _slowdowns, _table_2, _losses):
        yield from section(result)
    yield from (*_heat_maps(), *_points(result))


def _head(result: Result) -> Lines:
    machine, points = result["machine"], result["points"]
    ratios = [point["ratio"] for point in points]
    yield from (
        "# The rail-only paper's figures, measured on emulated twins",
        "",
        f"`railbed paper --measure` wrote this page: {machine.get('cores', '?')} cores, kernel "
        f"{machine.get('kernel', '?')}. Verdict: {result['verdict']}. Measured / modeled at the "
        f"twin's size: {min(ratios):.3f} to {max(ratios):.3f} in {len(points)} points.",
        "",
        f"A twin has {GPUS} GPUs, and executes one microbatch with its share of the gradients. Its "
        "groups of 2 tensor-parallel ranks stand for groups of 8, its 8 copies for many. The "
        f"paper's scale is {DEFAULT.gpus} GPUs of {DEFAULT.platform} with the best strategy for "
        "each point, while all points of a twin have one strategy: trends are to agree, not "
        "values. Circles and other empty marks are medians of executions, bars go from the least "
        "to the largest.",
    )
    yield from _section("Trends", "Pairs of points in the order that they have at scale.")
    yield from _table(
        ("figure", "of", "pairs in the same order"),
        [
            (one["figure"], one["of"], f"{one['same_order']} of {one['pairs']}")
            for one in result["trends"]
        ],
    )


def _section(title: str, text: str, drawing: str = "") -> Lines:
    yield from ("", f"## {title}", "")
    if drawing:
        yield from (f"![{title}](measured-{drawing}.svg)", "")
    yield from (text, "")


def _figure_8(result: Result) -> Lines:
    text = (
        f"Time over that of K = {IDEAL}, the ideal network. At the paper's scale, K is the size "
        "of a domain that has as much of a tensor-parallel group, or about as many copies."
    )
    yield from _section("Figure 8: iteration time against the size of an HB domain", text, FIG8)
    rows = [row for row in result["iterations"] if row["figure"] == FIG8]
    head = ("model", "K", "measured", "modeled", "at the paper's scale", "of K")
    yield from _table(
        head,
        [
            (row["place"]["model"], row["place"]["K"], *_relative(row), row["stands_for"] or "all")
            for row in rows
        ],
    )


def _relative(row: Row) -> tuple[str, ...]:
    return tuple(f"{row[part]:.3f}" for part in PARTS)


def _figure_9(result: Result) -> Lines:
    text = (
        "GPT-1T: by how much an iteration is faster with four times a bandwidth, the mean over "
        "the other one. The drawing has times over that of the slowest links; NICs in Gbit/s."
    )
    yield from _section("Figure 9: iteration time against bandwidths", text, FIG9)
    head = ("K", "four times", "measured", "modeled", "at the paper's scale", "of K", "the paper")
    yield from _table(
        head,
        [
            (
                row["K"],
                "HB bandwidth" if row["faster_by"] == HB else "NIC bandwidth",
                *(f"{row[part]:.1f} %" for part in PARTS),
                row["stands_for"],
                f"{row['paper']:g} %",
            )
            for row in result["gains"]
        ],
    )


def _figure_10(result: Result) -> Lines:
    text = (
        "GPT-1T: seconds of a whole iteration on the real platform, and performance in percent of "
        "the ideal network's. A twin's seconds are its measured time over its time dilation, times "
        "the microbatches, without the pipeline's bubble."
    )
    yield from _section("Figure 10: iteration time and performance against batch", text, FIG10)
    head = ("batch", "K", "measured", "of ideal", "modeled", "at scale", "of ideal", "of K")
    rows = [row for row in result["iterations"] if row["figure"] == FIG10]
    yield from _table(
        head,
        [
            (
                row["place"]["batch"],
                row["place"]["K"],
                f"{row['real_s']:.2f} s",
                f"{100 / row['measured']:.1f} %",
                f"{100 / row['modeled']:.1f} %",
                f"{row['at_scale_s']:.2f} s",
                f"{100 / row['at_scale']:.1f} %",
                row["stands_for"] or "all",
            )
            for row in rows
        ],
    )


def _slowdowns(result: Result) -> Lines:
    text = (
        "Time lost against the direct all-to-all on rail-optimized. The paper's C_S/C_F holds for "
        "many domains of many GPUs; with y domains of x GPUs it is y(x-1)/(x(y-1)) of that."
    )
    yield from _section("Section IV-B: what an all-to-all loses on rail-only", text, ALL_TO_ALL)
    parts = ("measured", "modeled")
    yield from _table(
        ("platform", "y", "C_S/C_F", "two-step", "modeled", "pipelined", "modeled"),
        [
            (
                row["platform"],
                row["y"],
                f"{row['limit']:.1%}",
                *(f"{row[key][part]:.1%}" for key in ALGORITHMS for part in parts),
            )
            for row in result["all_to_all"]
        ],
    )


def _table_2(result: Result) -> Lines:
    text = "Networks of rail-optimized / rail-only at the paper's scale, K = 256:"
    yield from _section("Table II: what the networks cost, and what the saving costs", text)
    rows = result["table2"]["cost"]
    yield from _table(tuple(rows[0]), [tuple(row.values()) for row in rows])
    yield from ("", "Completion time that rail-only loses for it, on a twin of DGX A100:", "")
    yield from _table(
        ("workload", "measured", "modeled"),
        [
            (row["workload"], f"{row['measured']:+.1%}", f"{row['modeled']:+.1%}")
            for row in result["table2"]["performance"]
        ],
    )


def _losses(result: Result) -> Lines:
    text = (
        f"GPT-1T on {DEFAULT.gpus} GPUs, rail-only, modeled: the traffic of a lost NIC is spread "
        "over the K-1 others of its domain, or falls to one, whose NIC then has two transfers in "
        "each step of a ring, as in the experiments; all domains wait for that one. Without a "
        "spare, a GPU's domain leaves the job."
    )
    yield from _section("Fault tolerance: what is lost when a part fails", text)
    scale = result["failures"]["at_scale"]
    parts = ("nic_link", "nic_link_to_one", "rail_switch", "gpu", "domain")
    yield from _table(
        ("K", "NIC link", "NIC link, to one NIC", "rail switch", "GPU", "HB domain"),
        [(row["K"], *(_share(row[part]) for part in parts)) for row in scale],
    )
    yield from (
        "",
        "Failure experiments, the AllReduce of GPT-146B on 4 domains of 4 GPUs, DGX H100:",
        "",
    )
    yield from _table(
        ("what fails", "fabric", "blackout", "lost", "modeled", "verdict"),
        [
            (
                EXPERIMENTS[row["experiment"]],
                row["fabric"],
                "" if row["blackout_ms"] is None else f"{row['blackout_ms']:.0f} ms",
                f"{row['measured']:+.1%}",
                f"{row['modeled']:+.1%}",
                row["verdict"],
            )
            for row in result["failures"]["experiments"]
        ],
    )


def _share(loss: float | None) -> str:
    return "all" if loss is None else f"{loss:.2%}"


def _heat_maps() -> Lines:
    text = (
        "Bytes between all pairs of GPUs: modeled at the paper's scale, and counted from the "
        "transfer records of an executed iteration, in bytes of the real platform. Executed "
        "collectives exchange with every peer of a domain, where rings are counted at scale; and "
        "all-to-alls take two steps, so that no pair of different rails has traffic by NICs."
    )
    yield from _section("Figures 3 to 5: who sends to whom", text)
    for name, twin in HEAT_MAPS.items():
        title = f"Figure {name.removeprefix('fig')}"
        yield from (f"![{title}, modeled]({name}.svg)", "")
        yield from (f"![{title}, measured: {twin.title}](measured-{name}.svg)", "")


def _points(result: Result) -> Lines:
    yield from _section("Every point against the model at its size", "Medians, emulated seconds.")
    yield from _table(
        ("figure", "place", "case", "measured", "spread", "modeled", "ratio", "verdict", "run"),
        [
            (
                point["figure"],
                ", ".join(f"{key} {value}" for key, value in point["place"].items()),
                point["case"],
                f"{point['measured_s']['median']:.3f} s",
                f"{_spread(point['measured_s']):.1%}",
                f"{point['modeled_s']:.3f} s",
                f"{point['ratio']:.4f}",
                point["verdict"],
                point["run_id"],
            )
            for point in result["points"]
        ],
    )


def _spread(measured: Row) -> float:
    """The distance of the least and the largest execution over the median."""
    values = measured["values"]
    return float((max(values) - min(values)) / measured["median"])


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Lines:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"
