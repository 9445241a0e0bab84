"""The heat map of the bytes between all pairs of GPUs."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.ticker import MaxNLocator

from model.training.traffic import Traffic
from results.figures.canvas import drawing

# In print, no more rows than these can be seen.
MOST_ROWS = 512
GIGA = 1e9
# Up to this number of GPUs, a dot is smaller than a pair.
SMALL = 64


def draw_heat_map(found: Traffic, title: str, path: Path) -> None:
    """Draw all GPUs, and the first GPUs with their HB domains and rails marked.

    Pairs without traffic are white. A few GPUs are drawn once, marked.
    """
    shown = min(found.gpus, max(2 * found.domain_size, 32))
    with drawing(path, panels=1 if shown == found.gpus else 2, height=3) as panels:
        if shown < found.gpus:
            _draw(panels[0], found, -(-found.gpus // MOST_ROWS), found.gpus)
            panels[0].set_title(f"{title}: all {found.gpus} GPUs")
        _draw(panels[-1], found, 1, shown)
        which = f"the first {shown};" if shown < found.gpus else f"{title}, {shown} GPUs\n"
        panels[-1].set_title(f"{which} lines: HB domains, dots: rails")
        _mark(panels[-1], found.domain_size, shown)


def _draw(axes: Axes, found: Traffic, block: int, shown: int) -> None:
    gigabytes = found.matrix(block, shown) / GIGA
    masked = np.ma.masked_equal(gigabytes, 0)
    if masked.count():
        norm = LogNorm(masked.min() * 0.99, masked.max() * 1.01)
        extent = (-0.5, shown - 0.5, shown - 0.5, -0.5)
        image = axes.imshow(masked, cmap="Greys", norm=norm, extent=extent, interpolation="nearest")
        image.set_clim(masked.min() / 10, masked.max())
        axes.figure.colorbar(image, ax=axes, label="GB of an iteration", shrink=0.7)
    axes.set_xlabel("receiving GPU")
    axes.set_ylabel("sending GPU")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=False)


def _mark(axes: Axes, domain_size: int, shown: int) -> None:
    """Draw the borders of domains, and a dot for every pair of different domains on one rail."""
    for border in range(domain_size, shown, domain_size):
        axes.axhline(border - 0.5, color="0.5", linewidth=0.5)
        axes.axvline(border - 0.5, color="0.5", linewidth=0.5)
    domain, rail = np.divmod(np.arange(shown), domain_size)
    on_rail = (rail[:, None] == rail) & (domain[:, None] != domain)
    row, column = np.nonzero(on_rail)
    axes.plot(column, row, ".", color="0.4", markersize=1 if shown <= SMALL else 0.2)
