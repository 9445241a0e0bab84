"""Figures for a paper, told apart in print: curves, bars, designs, and heat maps of traffic."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean, median
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.ticker import FuncFormatter, MaxNLocator

from model.arrays import Floats
from model.sentences import counted
from model.training.traffic import Traffic
from results.figures.kit import HEIGHT, MARKERS, from_zero, look, printed
from results.sections.section import human_bytes, range_of

# Greys and hatches that distinguish series in print.
GREYS = ("0.0", "0.45")
FILLS = ("0.9", "0.7", "1.0", "0.8")
HATCHES = ("", "///", "...", "xxx", "\\\\\\")
MOST_TICKS = 7
# Letters of a legend's line that fit a column, and the inches that it is high.
LINE, LINE_HEIGHT = 48, 0.16
# Three names of more characters are wider than a column.
LONG_NAME = 14
# In print, no more rows than these can be seen.
MOST_ROWS = 512
# Labels of the least bytes and of less than so many times as many would overlap on a colour bar.
NARROW = 2
# Up to this number of GPUs, a dot is smaller than a pair.
SMALL = 64


@dataclass(frozen=True)
class Curves:
    """Series of values over `x`, each with its name; axes with their units.

    `points` are values from elsewhere, drawn over the curves without a line: of several values at
    one `x`, the median, with a bar from the least to the largest.
    """

    title: str
    x_label: str
    y_label: str
    x: Sequence[float]
    series: Mapping[str, Sequence[float]]
    points: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)

    def draw_on(self, axes: Axes) -> None:
        """Draw the series, and the points over them."""
        for index, (name, values) in enumerate(self.series.items()):
            axes.plot(self.x, values, **look(index, color=GREYS[index % 2], label=name))
        for index, (name, points) in enumerate(self.points.items()):
            _points(axes, name, points, MARKERS[index % len(MARKERS)])
        axes.set_xlabel(self.x_label)
        axes.set_xscale("log", base=2)
        shown = self.x[:: -(-len(self.x) // MOST_TICKS)]
        axes.set_xticks(shown, [f"{value:.6g}" for value in shown])
        axes.minorticks_off()
        axes.margins(y=0.1)
        longest = max(map(len, (*self.series, *self.points)))
        columns = 2 if longest > LONG_NAME else 3
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=columns)


@dataclass(frozen=True)
class Bars:
    """Groups of bars: a value of every series for each name in `groups`."""

    title: str
    y_label: str
    groups: Sequence[str]
    series: Mapping[str, Sequence[float]]

    def draw_on(self, axes: Axes) -> None:
        """Draw the groups beside each other, each value above its bar."""
        width = 0.8 / len(self.series)
        for index, (name, values) in enumerate(self.series.items()):
            places = [group + index * width for group in range(len(self.groups))]
            fill, hatch = FILLS[index % len(FILLS)], HATCHES[index % len(HATCHES)]
            bars = axes.bar(places, values, width, label=name, color=fill, hatch=hatch, ec="black")
            axes.bar_label(bars, fmt="{:.3g}", fontsize=6)
        middle = (len(self.series) - 1) * width / 2
        axes.set_xticks([group + middle for group in range(len(self.groups))], self.groups)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3)


Panel = Curves | Bars


def draw(panels: Sequence[Panel], path: Path) -> None:
    """Draw panels side by side, as PATH.svg and PATH.png."""
    with printed(path, len(panels)) as all_axes:
        for axes, panel in zip(all_axes, panels, strict=True):
            panel.draw_on(axes)
            axes.set_title(panel.title)
            axes.set_ylabel(panel.y_label)


def _points(axes: Axes, name: str, points: Sequence[tuple[float, float]], marker: str) -> None:
    values: dict[float, list[float]] = {}
    for x, y in points:
        values.setdefault(x, []).append(y)
    medians = {x: median(several) for x, several in values.items()}
    below = [medians[x] - min(several) for x, several in values.items()]
    above = [max(several) - medians[x] for x, several in values.items()]
    look: Any = {"fmt": marker, "markersize": 6.5, "markerfacecolor": "none", "color": "black"}
    ends: Any = {"yerr": (below, above), "elinewidth": 0.8, "capsize": 2.5}
    axes.errorbar(list(medians), list(medians.values()), label=name, **look, **ends)


def draw_decision(result: dict[str, Any], path: Path) -> None:
    """Draw each design's price against the time of iterations; efficient ones are filled."""
    designs = result["designs"]
    names = [fill(row["design"] + " (efficient)" * row["efficient"], LINE) for row in designs]
    lines = sum(name.count("\n") + 1 for name in names)
    with printed(path, height=HEIGHT + LINE_HEIGHT * lines) as (axes,):
        for index, (name, design) in enumerate(zip(names, designs, strict=True)):
            shape = look(index)
            axes.scatter(
                [geometric_mean(model["iteration_s"] for model in design["models"])],
                [design["usd"] / 1e6],
                marker=shape["marker"],
                facecolors=shape["color"] if design["efficient"] else "none",
                edgecolors=shape["color"],
                label=name,
            )
        axes.set_xlabel("iteration time (s), geometric mean")
        axes.set_ylabel("network (million USD)")
        from_zero(axes)
        axes.margins(x=0.2)
        axes.figure.legend(loc="outside lower center")


def draw_pairs(
    axes: Axes, size_bytes: Floats, gpus: int, borders: Iterable[int], colours: str
) -> None:
    """Draw the bytes from GPUs (rows) to GPUs (columns), and the borders of domains.

    Shades are of the logarithm; pairs without bytes stay empty. A border is above its GPU.
    """
    masked = np.ma.masked_equal(size_bytes, 0)
    if masked.count():
        low, high = float(masked.min()), float(masked.max())
        image = axes.imshow(
            masked,
            cmap=colours,
            norm=LogNorm(low / 4, high * 1.01),
            extent=(-0.5, gpus - 0.5, gpus - 0.5, -0.5),
            interpolation="nearest",
        )
        middle, is_narrow = np.sqrt(low * high), high < NARROW * low
        ticks = [middle] if is_narrow else [low, middle, high]
        both = range_of((low, high), human_bytes).replace(" to ", "\nto ")
        shown = FuncFormatter(lambda size, _: both if is_narrow else human_bytes(size))
        bar = axes.figure.colorbar(image, ax=axes, ticks=ticks, format=shown, shrink=0.8)
        bar.minorticks_off()
    for border in borders:
        axes.axhline(border - 0.5, color="0.5", linewidth=0.4)
        axes.axvline(border - 0.5, color="0.5", linewidth=0.4)
    axes.grid(visible=False)
    axes.set_xlabel("receives")
    axes.set_ylabel("sends")


def draw_heat_map(traffic: Traffic, title: str, path: Path) -> None:
    """Draw an iteration's bytes of all GPUs, and of the first with HB domains and rails marked.

    A few GPUs are drawn once, marked.
    """
    gpus, domain_size = traffic.gpus, traffic.domain_size
    shown = min(gpus, max(2 * domain_size, 32), MOST_ROWS)
    with printed(path, panels=1 if shown == gpus else 2, height=3) as panels:
        if shown < gpus:
            draw_pairs(panels[0], traffic.matrix(-(-gpus // MOST_ROWS), gpus), gpus, (), "Greys")
            panels[0].set_title(f"{title}: all {gpus} GPUs")
        borders = range(domain_size, shown, domain_size)
        draw_pairs(panels[-1], traffic.matrix(1, shown), shown, borders, "Greys")
        for axes in panels:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        which = f"the first {shown};" if shown < gpus else f"{title}, {counted(shown, 'GPU')}\n"
        panels[-1].set_title(f"{which} lines: HB domains, dots: rails")
        # A dot for every pair of different domains on one rail.
        domain, rail = np.divmod(np.arange(shown), domain_size)
        row, column = np.nonzero((rail[:, None] == rail) & (domain[:, None] != domain))
        dot = 1 if shown <= SMALL else 0.2
        panels[-1].plot(column, row, ".", color="0.4", markersize=dot)
