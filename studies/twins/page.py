"""The page of the measured figures: Markdown, with drawings of executions over the model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from linux.files.user_files import make_folder
from results.figures.paper import Curves, Panel, draw, draw_heat_map
from results.render.markdown import markdown
from results.sections.modeled import points_section
from results.sections.section import Section, number_or_dash
from results.store.records import write_record
from results.store.runs import find_run
from studies.paper.figures import draw_figure
from studies.paper.study import BATCHES, DEFAULT
from studies.twins.comparison import ALGORITHMS, PARTS, Result
from studies.twins.points import (
    ALL_TO_ALL,
    DILATIONS,
    EXPERIMENTS,
    FIG8,
    FIG9,
    FIG10,
    GPUS,
    HB,
    IDEAL,
    LARGE,
    NIC,
    SLOWEST,
    SMALL,
    STANDS_FOR,
    TABLE2,
    USUAL_DOMAINS,
    VARIED_PLATFORM,
    Place,
)
from studies.twins.recorded_traffic import recorded_traffic

PAGE = "measured.md"


def write_page(result: Result, folder: Path) -> Path:
    """Write the page and its drawings, other than heat maps, into a folder; return its path."""
    make_folder(folder)
    for name, panels in DRAWINGS.items():
        draw(list(panels(result)), folder / f"measured-{name}")
    write_record(folder / PAGE, "\n".join(_lines(result)))
    return folder / PAGE


def _lines(result: Result) -> Iterator[str]:
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


def _head(result: Result) -> Iterator[str]:
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
    trends = result["trends"]
    rows = [(one["figure"], one["of"], f"{one['same_order']} of {one['pairs']}") for one in trends]
    text = "Pairs of points in the order that they have at scale."
    return Section("Trends", ("figure", "of", "pairs in the same order"), rows, text)


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


def figure_8(result: Result) -> Iterator[Panel]:
    """A panel for each model: time over that of the ideal network, against K."""
    for model in DILATIONS:
        rows = rows_of(result, FIG8, model=model)
        yield Curves(
            f"{model}: time over that of K = {IDEAL}",
            f"HB domain size K of {GPUS} GPUs",
            "relative iteration time",
            list(STANDS_FOR),
            {
                f"modeled, {GPUS} GPUs": [row["modeled"] for row in rows],
                f"modeled, {DEFAULT.gpus} GPUs": [row["at_scale"] for row in rows],
            },
            {"measured": _executions(rows, "K")},
        )


def figure_9(result: Result) -> Iterator[Panel]:
    """A panel for the small and the large domain: time over that of the slowest links."""
    for size in (SMALL, LARGE):
        rows = rows_of(result, FIG9, K=size)
        rates = dict.fromkeys(row["place"][NIC] for row in rows)
        lines = {nic: [row for row in rows if row["place"][NIC] == nic] for nic in rates}
        yield Curves(
            f"K = {size} (lines: paper's scale, K = {STANDS_FOR[size]})",
            "HB bandwidth (Tbit/s)",
            "relative iteration time",
            [row["place"][HB] for row in lines[SLOWEST[NIC]]],
            {f"NIC {nic:g}": [row["at_scale"] for row in lines[nic]] for nic in rates},
            {f"measured, NIC {nic:g}": _executions(lines[nic], HB) for nic in rates},
        )


def figure_10(result: Result) -> Iterator[Panel]:
    """Iteration time, and performance in percent of the ideal network's, against the batch."""
    times: dict[str, list[float]] = {}
    performance: dict[str, list[float]] = {}
    real_times: dict[str, list[tuple[float, float]]] = {}
    measured: dict[str, list[tuple[float, float]]] = {}
    for size in (SMALL, LARGE, IDEAL):
        rows, full, name = rows_of(result, FIG10, K=size), STANDS_FOR[size], f"measured, K = {size}"
        times[f"K = {full}" if full else "ideal"] = [row["at_scale_s"] for row in rows]
        # Of whole iterations on the real platform.
        real_times[name] = [
            (row["place"]["batch"], row["real_s"] * one / row["measured"])
            for row in rows
            for one in row["executions"]
        ]
        if full:
            performance[f"K = {full}"] = [100 / row["at_scale"] for row in rows]
            measured[name] = [(x, 100 / y) for x, y in _executions(rows, "batch")]
    title, batch = "GPT-1T (lines: paper's scale)", "global batch (sequences)"
    yield Curves(title, batch, "iteration time (s)", BATCHES, times, real_times)
    yield Curves(title, batch, "performance (% of ideal)", BATCHES, performance, measured)


def all_to_alls(result: Result) -> Iterator[Panel]:
    """Losses of all-to-alls, against C_S/C_F, and against the number of domains."""
    rows = sorted(result["all_to_all"], key=lambda row: float(row["limit"]))
    usual = [(round(100 * row["limit"], 1), row) for row in rows if row["y"] == USUAL_DOMAINS]
    yield _losses_over(f"{USUAL_DOMAINS} domains of 4 GPUs, five platforms", "C_S/C_F (%)", usual)
    varied = [(row["y"], row) for row in rows if row["platform"] == VARIED_PLATFORM]
    title = f"domains of 4 GPUs, {VARIED_PLATFORM}"
    yield _losses_over(title, "number of HB domains y", varied)


def _losses_over(title: str, label: str, rows: Sequence[tuple[float, Result]]) -> Panel:
    at = dict(rows)
    curves = {"paper (C_S/C_F)": [100 * row["limit"] for row in at.values()]}
    points: dict[str, list[tuple[float, float]]] = {}
    for key in ALGORITHMS:
        name = key.replace("_", "-")
        curves[f"{name}, modeled"] = [100 * row[key]["modeled"] for row in at.values()]
        points[f"{name}, measured"] = [
            (x, 100 * one) for x, row in rows for one in row[key]["executions"]
        ]
    return Curves(title, label, "slower than rail-optimized (%)", list(at), curves, points)


def rows_of(result: Result, figure: str, **place: object) -> list[Result]:
    """The rows of a figure at a place, given by some of its keys."""
    return [
        row
        for row in result["iterations"]
        if row["figure"] == figure and place.items() <= row["place"].items()
    ]


def _executions(rows: Sequence[Result], key: str) -> list[tuple[float, float]]:
    return [(row["place"][key], one) for row in rows for one in row["executions"]]


DRAWINGS = {FIG8: figure_8, FIG9: figure_9, FIG10: figure_10, ALL_TO_ALL: all_to_alls}


@dataclass(frozen=True)
class HeatMap:
    """Figures 3 to 5: the twin whose records are drawn, and the case of its run."""

    title: str
    figure: str
    place: Place
    case: str


HEAT_MAPS: Mapping[str, HeatMap] = {
    "fig3": HeatMap("GPT-1T, K = 4", TABLE2, {"model": "gpt-1t"}, "rail-only/iteration/gpt-1t"),
    "fig4": HeatMap(
        f"GPT-1T, K = {LARGE}",
        FIG8,
        {"model": "gpt-1t", "K": LARGE},
        "rail-only/iteration/paper-gpt-1t",
    ),
    "fig5": HeatMap(
        "MoE-1.3B, K = 4", TABLE2, {"model": "moe-1.3b"}, "rail-only/iteration/moe-1.3b"
    ),
}


def draw_heat_maps(points: Sequence[Result], store: Path, folder: Path) -> None:
    """Draw every heat map twice: modeled at the paper's scale, and from a run's records."""
    runs = {(one["figure"], *one["place"].items(), one["case"]): one["run_id"] for one in points}
    for name, twin in HEAT_MAPS.items():
        draw_figure(name, folder / name)
        run = find_run(store, runs[twin.figure, *twin.place.items(), twin.case])
        _, traffic = recorded_traffic(run, twin.case)
        draw_heat_map(traffic, twin.title, folder / f"measured-{name}")
