"""The page of the measured figures: Markdown, with the drawings beside it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from linux.files.user_files import make_folder
from results.figures.paper import draw
from results.render.markdown import markdown
from results.sections.modeled import points_section
from results.sections.section import Section, number_or_dash
from results.store.records import write_record
from studies.paper.study import DEFAULT
from studies.twins.comparison import ALGORITHMS, PARTS
from studies.twins.drawings import DRAWINGS, HEAT_MAPS, rows_of
from studies.twins.points import ALL_TO_ALL, EXPERIMENTS, FIG8, FIG9, FIG10, GPUS, HB, IDEAL

Result = dict[str, Any]
Lines = Iterator[str]
PAGE = "measured.md"


def write_page(result: Result, folder: Path) -> Path:
    """Write the page and its drawings, other than heat maps, into a folder; return its path."""
    make_folder(folder)
    for name, panels in DRAWINGS.items():
        draw(list(panels(result)), folder / f"measured-{name}")
    write_record(folder / PAGE, "\n".join(_lines(result)))
    return folder / PAGE


def _lines(result: Result) -> Lines:
    yield from _head(result)
    for section, drawing in (
        (_trends(result), ""),
        (_figure_8(result), FIG8),
        (_figure_9(result), FIG9),
        (_figure_10(result), FIG10),
        (_slowdowns(result), ALL_TO_ALL),
        (_networks(result), ""),
        (_performance(result), ""),
        (_losses(result), ""),
        (_experiments(result), ""),
        (_heat_maps(), ""),
        (_points(result["points"]), ""),
    ):
        yield from markdown(section, f"measured-{drawing}.svg" if drawing else "")


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
        "",
    )


def _trends(result: Result) -> Section:
    return Section(
        "Trends",
        ("figure", "of", "pairs in the same order"),
        [
            (one["figure"], one["of"], f"{one['same_order']} of {one['pairs']}")
            for one in result["trends"]
        ],
        "Pairs of points in the order that they have at scale.",
    )


def _figure_8(result: Result) -> Section:
    return Section(
        "Figure 8: iteration time against the size of an HB domain",
        ("model", "K", "measured", "modeled", "at the paper's scale", "of K"),
        [
            (
                row["place"]["model"],
                f"{row['place']['K']}",
                *(f"{row[part]:.3f}" for part in PARTS),
                f"{row['stands_for'] or 'all'}",
            )
            for row in rows_of(result, FIG8)
        ],
        f"Time over that of K = {IDEAL}, the ideal network. At the paper's scale, K is the size "
        "of a domain that has as much of a tensor-parallel group, or about as many copies.",
    )


def _figure_9(result: Result) -> Section:
    return Section(
        "Figure 9: iteration time against bandwidths",
        ("K", "four times", "measured", "modeled", "at the paper's scale", "of K", "the paper"),
        [
            (
                f"{row['K']}",
                "HB bandwidth" if row["faster_by"] == HB else "NIC bandwidth",
                *(f"{row[part]:.1f} %" for part in PARTS),
                f"{row['stands_for']}",
                f"{row['paper']:g} %",
            )
            for row in result["gains"]
        ],
        "GPT-1T: by how much an iteration is faster with four times a bandwidth, the mean over "
        "the other one. The drawing has times over that of the slowest links; NICs in Gbit/s.",
    )


def _figure_10(result: Result) -> Section:
    return Section(
        "Figure 10: iteration time and performance against batch",
        ("batch", "K", "measured", "of ideal", "modeled", "at scale", "of ideal", "of K"),
        [
            (
                f"{row['place']['batch']}",
                f"{row['place']['K']}",
                f"{row['real_s']:.2f} s",
                f"{100 / row['measured']:.1f} %",
                f"{100 / row['modeled']:.1f} %",
                f"{row['at_scale_s']:.2f} s",
                f"{100 / row['at_scale']:.1f} %",
                f"{row['stands_for'] or 'all'}",
            )
            for row in rows_of(result, FIG10)
        ],
        "GPT-1T: seconds of a whole iteration on the real platform, and performance in percent of "
        "the ideal network's. A twin's seconds are its measured time over its time dilation, times "
        "the microbatches, without the pipeline's bubble.",
    )


def _slowdowns(result: Result) -> Section:
    parts = ("measured", "modeled")
    return Section(
        "Section IV-B: what an all-to-all loses on rail-only",
        ("platform", "y", "C_S/C_F", "two-step", "modeled", "pipelined", "modeled"),
        [
            (
                row["platform"],
                f"{row['y']}",
                f"{row['limit']:.1%}",
                *(f"{row[key][part]:.1%}" for key in ALGORITHMS for part in parts),
            )
            for row in result["all_to_all"]
        ],
        "Time lost against the direct all-to-all on rail-optimized. The paper's C_S/C_F holds for "
        "many domains of many GPUs; with y domains of x GPUs it is y(x-1)/(x(y-1)) of that.",
    )


def _networks(result: Result) -> Section:
    rows = result["table2"]["cost"]
    return Section(
        "Table II: what the networks cost",
        tuple(rows[0]),
        [tuple(map(str, row.values())) for row in rows],
        "Networks of rail-optimized / rail-only at the paper's scale, K = 256.",
    )


def _performance(result: Result) -> Section:
    return Section(
        "What the saving costs",
        ("workload", "measured", "modeled"),
        [
            (row["workload"], f"{row['measured']:+.1%}", f"{row['modeled']:+.1%}")
            for row in result["table2"]["performance"]
        ],
        "Completion time that rail-only loses for it, on a twin of DGX A100.",
    )


def _losses(result: Result) -> Section:
    parts = ("nic_link", "rail_switch", "nic_link_to_one", "gpu", "domain")
    return Section(
        "Fault tolerance: what is lost when a part fails",
        ("K", "NIC link", "rail switch", "either, to one NIC", "GPU", "HB domain"),
        [
            (
                f"{row['K']}",
                *("all" if row[part] is None else f"{row[part]:.2%}" for part in parts),
            )
            for row in result["failures"]["at_scale"]
        ],
        f"GPT-1T on {DEFAULT.gpus} GPUs, rail-only, modeled: the traffic of a lost NIC is spread "
        "over the K-1 others of its domain, or falls to one, whose NIC then has two transfers in "
        "each step of a ring, as in the experiments; all domains wait for that one. Without a "
        "spare, a GPU's domain leaves the job.",
    )


def _experiments(result: Result) -> Section:
    return Section(
        "Failure experiments",
        ("what fails", "fabric", "blackout", "lost", "modeled", "verdict"),
        [
            (
                EXPERIMENTS[row["experiment"]],
                row["fabric"],
                number_or_dash(row["blackout_ms"], ".0f", " ms"),
                f"{row['measured']:+.1%}",
                f"{row['modeled']:+.1%}",
                row["verdict"],
            )
            for row in result["failures"]["experiments"]
        ],
        "The AllReduce of GPT-146B on 4 domains of 4 GPUs, DGX H100.",
    )


def _heat_maps() -> Section:
    drawn = [
        f"![Figure {name.removeprefix('fig')}, {of}]({file}{name}.svg)"
        for name, twin in HEAT_MAPS.items()
        for of, file in (("modeled", ""), (f"measured: {twin.title}", "measured-"))
    ]
    return Section(
        "Figures 3 to 5: who sends to whom",
        text="Bytes between all pairs of GPUs: modeled at the paper's scale, and counted from the "
        "transfer records of an executed iteration, in bytes of the real platform. Executed "
        "collectives exchange with every peer of a domain, where rings are counted at scale; and "
        "all-to-alls take two steps, so that no pair of different rails has traffic by NICs.",
        remarks=drawn,
    )


def _points(points: Sequence[Result]) -> Section:
    """The points, each with the run that has its records."""
    section = points_section(points)
    rows = [(*row, point["run_id"]) for row, point in zip(section.rows, points, strict=True)]
    return replace(section, columns=(*section.columns, "run"), rows=rows)
