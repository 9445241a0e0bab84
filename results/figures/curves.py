"""Curves and bars: series over one axis, told apart by marker, dash and hatch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.axes import Axes

from results.figures.canvas import DASHES, FILLS, GREYS, HATCHES, MARKERS, drawing

MOST_TICKS = 7


@dataclass(frozen=True)
class Curves:
    """Series of values over `x`, each with its name; axes with their units.

    `points` are values from elsewhere, drawn over the curves without a line.
    """

    title: str
    x_label: str
    y_label: str
    x: Sequence[float]
    series: Mapping[str, Sequence[float]]
    points: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Bars:
    """Groups of bars: a value of every series for each name in `groups`."""

    title: str
    y_label: str
    groups: Sequence[str]
    series: Mapping[str, Sequence[float]]


Panel = Curves | Bars


def draw(panels: Sequence[Panel], path: Path) -> None:
    """Draw panels side by side, as PATH.svg and PATH.png."""
    with drawing(path, panels=len(panels)) as all_axes:
        for axes, panel in zip(all_axes, panels, strict=True):
            _curves(axes, panel) if isinstance(panel, Curves) else _bars(axes, panel)
            axes.set_title(panel.title, fontsize=8)
            axes.set_ylabel(panel.y_label)


def _curves(axes: Axes, panel: Curves) -> None:
    for index, (name, values) in enumerate(panel.series.items()):
        axes.plot(
            panel.x,
            values,
            label=name,
            color=GREYS[index % 2],
            marker=MARKERS[index % len(MARKERS)],
            linestyle=DASHES[index % len(DASHES)],
        )
    for index, (name, points) in enumerate(panel.points.items()):
        x, y = zip(*points, strict=True)
        marker = MARKERS[index % len(MARKERS)]
        axes.scatter(x, y, label=name, marker=marker, s=40, facecolors="none", edgecolors="black")
    axes.set_xlabel(panel.x_label)
    axes.set_xscale("log", base=2)
    shown = panel.x[:: -(-len(panel.x) // MOST_TICKS)]
    axes.set_xticks(shown, [f"{value:g}" for value in shown])
    axes.minorticks_off()
    axes.margins(y=0.1)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=3)


def _bars(axes: Axes, panel: Bars) -> None:
    width = 0.8 / len(panel.series)
    for index, (name, values) in enumerate(panel.series.items()):
        places = [group + index * width for group in range(len(panel.groups))]
        fill, hatch = FILLS[index % len(FILLS)], HATCHES[index % len(HATCHES)]
        bars = axes.bar(
            places, values, width, label=name, color=fill, hatch=hatch, edgecolor="black"
        )
        axes.bar_label(bars, fmt="{:.3g}", fontsize=6)
    middle = (len(panel.series) - 1) * width / 2
    axes.set_xticks([group + middle for group in range(len(panel.groups))], panel.groups)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3)
