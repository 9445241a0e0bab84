"""A figure's canvas: its size, its fonts, its files."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from linux.files.user_files import give, make_folder, require_replaceable, write_bytes

# A column of a two-column paper, in inches.
COLUMN, HEIGHT = 3.5, 2.7
FORMATS = ("svg", "png")
STYLE: Any = {
    "font.size": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "axes.grid": True,
    "grid.linewidth": 0.3,
    "grid.color": "0.8",
    "axes.axisbelow": True,
    "svg.hashsalt": "railbed",
    "figure.dpi": 300,
}
# Markers, dashes and hatches that distinguish series without colour.
GREYS = ("0.0", "0.45")
FILLS = ("0.9", "0.7", "1.0", "0.8")
MARKERS = ("o", "s", "^", "D", "v")
DASHES = ("-", "--", ":", "-.", (0, (5, 1)))
HATCHES = ("", "///", "...", "xxx", "\\\\\\")


@contextmanager
def drawing(path: Path, panels: int = 1, height: float = HEIGHT) -> Iterator[list[Axes]]:
    """Yield the axes of `panels` side by side; write the figure in every format afterwards.

    `path` is the files' name without its ending.
    """
    with mpl.rc_context(STYLE):
        size = (COLUMN * panels, height)
        figure = Figure(figsize=size, layout="constrained")
        yield list(figure.subplots(1, panels, squeeze=False)[0])
        _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    make_folder(path.parent)
    for file in files(path):
        require_replaceable(file)
    _lay_out(figure)
    for kind, file in zip(FORMATS, files(path), strict=True):
        # Without a date, the same figure is the same file.
        metadata = {"Date": None} if kind == "svg" else {}
        content = BytesIO()
        figure.savefig(content, format=kind, metadata=metadata)
        write_bytes(file, content.getvalue())
        give(file)


def _lay_out(figure: Figure) -> None:
    """Lay a figure out for good: with a layout engine, it is drawn twice for each format."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
    figure.set_layout_engine(None)


def files(path: Path) -> list[Path]:
    """The files of a figure."""
    return [Path(f"{path}.{kind}") for kind in FORMATS]
