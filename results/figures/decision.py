"""The picture of a decision: the network's price against the iteration's time."""

from pathlib import Path
from statistics import geometric_mean
from typing import Any

from results.figures.canvas import MARKERS, drawing


def draw_decision(result: dict[str, Any], path: Path) -> None:
    """Draw every design; the efficient ones are filled and named."""
    with drawing(path, height=3.6) as (axes,):
        for index, design in enumerate(result["designs"]):
            times = [model["iteration_s"] for model in design["models"]]
            axes.scatter(
                [geometric_mean(times)],
                [design["usd"] / 1e6],
                marker=MARKERS[index % len(MARKERS)],
                facecolors="black" if design["efficient"] else "none",
                edgecolors="black",
                label=design["design"] + (" (efficient)" if design["efficient"] else ""),
            )
        axes.set_xlabel("iteration time (s), geometric mean")
        axes.set_ylabel("network (million USD)")
        axes.set_ylim(bottom=0)
        axes.margins(x=0.2)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=1)
