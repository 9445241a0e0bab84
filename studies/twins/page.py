"""The page of the measured figures: Markdown, with drawings of executions over the model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from linux.files.user_files import make_folder
from results.figures.paper import Curves, Panel, draw, draw_heat_map
from results.render.markdown import markdown
from results.render.page import filled
from results.sections.modeled import points_section
from results.store.records import write_record
from results.store.runs import find_run
from studies.paper.figures import draw_figure
from studies.paper.study import BATCHES, DEFAULT
from studies.twins.comparison import ALGORITHMS, Result
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
    write_record(folder / PAGE, page(result))
    return folder / PAGE


def page(result: Result) -> str:
    """Return the text of the page."""
    points = result["points"]
    section = points_section(points)
    rows = [(*row, point["run_id"]) for row, point in zip(section.rows, points, strict=True)]
    listed = markdown(replace(section, columns=(*section.columns, "run"), rows=rows))
    return filled(
        Path(__file__).with_name(PAGE),
        **result,
        gpus=GPUS,
        scale=DEFAULT,
        ratios=[point["ratio"] for point in points],
        rows_of=partial(rows_of, result),
        experiments=EXPERIMENTS,
        heat_maps=HEAT_MAPS,
        every_point="\n".join(listed),
    )


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
