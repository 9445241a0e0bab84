"""The drawings of the measured figures: executions over curves of the model, and heat maps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.figures.paper import Curves, Panel, draw_heat_map
from results.store.runs import find_run
from studies.paper.figures import draw_figure
from studies.paper.study import BATCHES, DEFAULT
from studies.twins.points import (
    ALL_TO_ALL,
    DILATIONS,
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

Row = dict[str, Any]
Result = dict[str, Any]


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
    rows = {size: rows_of(result, FIG10, K=size) for size in (SMALL, LARGE, IDEAL)}
    names = {size: f"K = {STANDS_FOR[size]}" if STANDS_FOR[size] else "ideal" for size in rows}
    batch = "global batch (sequences)"
    yield Curves(
        "GPT-1T (lines: paper's scale)",
        batch,
        "iteration time (s)",
        BATCHES,
        {names[size]: [row["at_scale_s"] for row in mine] for size, mine in rows.items()},
        {f"measured, K = {size}": _real_times(mine) for size, mine in rows.items()},
    )
    yield Curves(
        "GPT-1T (lines: paper's scale)",
        batch,
        "performance (% of ideal)",
        BATCHES,
        {names[size]: [100 / row["at_scale"] for row in rows[size]] for size in (SMALL, LARGE)},
        {
            f"measured, K = {size}": [(x, 100 / y) for x, y in _executions(rows[size], "batch")]
            for size in (SMALL, LARGE)
        },
    )


def all_to_alls(result: Result) -> Iterator[Panel]:
    """Losses of all-to-alls, against C_S/C_F, and against the number of domains."""
    rows = result["all_to_all"]
    usual = sorted(
        (row for row in rows if row["y"] == USUAL_DOMAINS), key=lambda row: float(row["limit"])
    )
    by_limit = [(round(100 * float(row["limit"]), 1), row) for row in usual]
    title = f"{USUAL_DOMAINS} domains of 4 GPUs, five platforms"
    yield _slowdowns(title, "C_S/C_F (%)", by_limit)
    varied = [(float(row["y"]), row) for row in rows if row["platform"] == VARIED_PLATFORM]
    yield _slowdowns(f"domains of 4 GPUs, {VARIED_PLATFORM}", "number of HB domains y", varied)


def _slowdowns(title: str, label: str, rows: Sequence[tuple[float, Row]]) -> Panel:
    ways = {"two-step": "two_step", "pipelined": "pipelined"}
    at = dict(rows)
    return Curves(
        title,
        label,
        "slower than rail-optimized (%)",
        list(at),
        {
            "paper (C_S/C_F)": [100 * row["limit"] for row in at.values()],
            **{
                f"{name}, modeled": [100 * row[key]["modeled"] for row in at.values()]
                for name, key in ways.items()
            },
        },
        {
            f"{name}, measured": [
                (x, 100 * one) for x, row in rows for one in row[key]["executions"]
            ]
            for name, key in ways.items()
        },
    )


def rows_of(result: Result, figure: str, **place: object) -> list[Row]:
    """The rows of a figure at a place, given by some of its keys."""
    return [
        row
        for row in result["iterations"]
        if row["figure"] == figure and place.items() <= row["place"].items()
    ]


def _executions(rows: Sequence[Row], key: str) -> list[tuple[float, float]]:
    return [(row["place"][key], one) for row in rows for one in row["executions"]]


def _real_times(rows: Sequence[Row]) -> list[tuple[float, float]]:
    """The times of whole iterations on the real platform, of every execution."""
    return [
        (row["place"]["batch"], row["real_s"] * one / row["measured"])
        for row in rows
        for one in row["executions"]
    ]


DRAWINGS: Mapping[str, Callable[[Result], Iterator[Panel]]] = {
    FIG8: figure_8,
    FIG9: figure_9,
    FIG10: figure_10,
    ALL_TO_ALL: all_to_alls,
}


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


def draw_heat_maps(points: Sequence[dict[str, Any]], store: Path, folder: Path) -> None:
    """Draw every heat map twice: modeled at the paper's scale, and from a run's records."""
    runs = {(one["figure"], *one["place"].items(), one["case"]): one["run_id"] for one in points}
    for name, twin in HEAT_MAPS.items():
        draw_figure(name, folder / name)
        run = find_run(store, runs[twin.figure, *twin.place.items(), twin.case])
        _, traffic = recorded_traffic(run, twin.case)
        draw_heat_map(traffic, twin.title, folder / f"measured-{name}")
