"""The heat map of the bytes between all pairs of GPUs."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.ticker import FuncFormatter, MaxNLocator

from model.arrays import Floats
from model.training.traffic import Traffic
from results.figures.kit import printed
from results.sections.section import human_bytes

# In print, no more rows than these can be seen.
MOST_ROWS = 512
# Up to this number of GPUs, a dot is smaller than a pair.
SMALL = 64


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
        ticks = np.unique([low, np.sqrt(low * high), high])
        shown = FuncFormatter(lambda size, _: human_bytes(size))
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
    gpus = traffic.gpus
    shown = min(gpus, max(2 * traffic.domain_size, 32))
    with printed(path, panels=1 if shown == gpus else 2, height=3) as panels:
        if shown < gpus:
            _draw(panels[0], traffic, -(-gpus // MOST_ROWS), gpus, 0)
            panels[0].set_title(f"{title}: all {gpus} GPUs")
        _draw(panels[-1], traffic, 1, shown, traffic.domain_size)
        which = f"the first {shown};" if shown < gpus else f"{title}, {shown} GPUs\n"
        panels[-1].set_title(f"{which} lines: HB domains, dots: rails")
        _mark_rails(panels[-1], traffic.domain_size, shown)


def _draw(axes: Axes, traffic: Traffic, block: int, shown: int, domain_size: int) -> None:
    borders = range(domain_size, shown, domain_size) if domain_size else ()
    draw_pairs(axes, traffic.matrix(block, shown), shown, borders, "Greys")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def _mark_rails(axes: Axes, domain_size: int, shown: int) -> None:
    """Draw a dot for every pair of different domains on one rail."""
    domain, rail = np.divmod(np.arange(shown), domain_size)
    on_rail = (rail[:, None] == rail) & (domain[:, None] != domain)
    row, column = np.nonzero(on_rail)
    axes.plot(column, row, ".", color="0.4", markersize=1 if shown <= SMALL else 0.2)
