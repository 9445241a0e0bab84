"""Figures 3 to 5: heat maps of an executed iteration, beside those at the paper's scale."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.figures.heat_map import draw_heat_map
from results.store.runs import find_run
from studies.paper.figures import draw_figure
from studies.twins.points import FIG8, LARGE, TABLE2, Place
from studies.twins.recorded_traffic import recorded_traffic


@dataclass(frozen=True)
class HeatMap:
    """The twin whose records are drawn, and the case of its run."""

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
