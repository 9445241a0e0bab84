"""The kit of all figures: style, sizes, files, and SVG inside a page."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from linux.files.user_files import give, make_folder, require_replaceable, write_bytes

FORMATS = ("svg", "png", "pdf")
# A figure for a paper is written in these, a column of the paper wide, with letters of 8 points.
PRINTED = ("svg", "png")
COLUMN, HEIGHT, PRINT_POINTS = 3.5, 2.7, 8
# Inches: the width of a picture beside others, and the least width that takes a row of its own.
WIDTH, WIDE, POINTS = 4.6, 6.0, 9
# Letters of a name, at most: a longer one would leave no room for the picture; of a value below it.
MOST_LETTERS, VALUE_LETTERS = 64, 20
DPI = 300
# Labels of a logarithmic axis: matplotlib's own are formulas.
PLAIN = "{x:g}"
STYLE = mpl.rc_params_from_file(
    Path(__file__).with_name("figures.mplstyle"), use_default_template=False
)
# Colours that differ in lightness, too: for print without colour, and for red-green blindness.
MEASURED, MODELED = "#1a5f9e", "#111111"
SERIES = ("#1a5f9e", "#c75b12", "#5b3f8c", "#2f7d4f", "#8a6d00", "#9c2c54")
# As many of each as have no common divisor: the first 210 series look different, 30 without marker.
DASHES = ("-", "--", ":", "-.", (0, (5, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@dataclass(frozen=True)
class Picture:
    """A picture, its file's name, a sentence for blind readers, and its letters' size in points."""

    name: str
    sentence: str
    figure: Figure
    points: float = POINTS

    @property
    def is_wide(self) -> bool:
        """Whether it has a row of the page to itself."""
        return float(self.figure.get_figwidth()) > WIDE

    def svg(self, prefix: str) -> str:
        """Return the picture as an element of an HTML page; its names begin with `prefix`."""
        with _style(self.name, self.points), mpl.rc_context({"svg.fonttype": "none"}):
            text = io.StringIO()
            self.figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
        return _inline(text.getvalue(), prefix)

    def save(self, folder: Path, formats: Sequence[str]) -> list[Path]:
        """Write the picture in each format; return the files."""
        make_folder(folder)
        files = [folder / f"{self.name}.{form}" for form in formats]
        for file in files:
            require_replaceable(file)
        with _style(self.name, self.points):
            # Laid out for good: with a layout engine, it is drawn twice for each format. Letters
            # are hinted for these dots.
            self.figure.set_dpi(DPI)
            if engine := self.figure.get_layout_engine():
                engine.execute(self.figure)
            self.figure.set_layout_engine(None)
            for file, form in zip(files, formats, strict=True):
                # Without a date, the same picture is the same file.
                date, content = {"svg": "Date", "pdf": "CreationDate"}.get(form), io.BytesIO()
                metadata = {date: None} if date else {}
                self.figure.savefig(content, format=form, dpi=DPI, metadata=metadata)
                write_bytes(file, content.getvalue())
                give(file)
        return files


@contextmanager
def _style(name: str, points: float = POINTS) -> Iterator[None]:
    """Set the style; names of parts inside an SVG picture differ from those of other pictures.

    Settings of a user, or of a `matplotlibrc` in the current folder, do not count.
    """
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({**STYLE, "font.size": points, "svg.hashsalt": name})
        yield


@contextmanager
def drawing(height: float, width: float = WIDTH, points: float = POINTS) -> Iterator[Figure]:
    """Yield an empty figure of this size in inches, with letters of this size."""
    with _style("", points):
        yield Figure(figsize=(width, height), layout="constrained")


@contextmanager
def printed(path: Path, panels: int = 1, height: float = HEIGHT) -> Iterator[list[Axes]]:
    """Yield `panels` side by side, for a paper; write them as PATH.svg and PATH.png afterwards."""
    with drawing(height, COLUMN * panels, PRINT_POINTS) as figure:
        yield list(figure.subplots(1, panels, squeeze=False)[0])
    Picture(path.name, path.name, figure, PRINT_POINTS).save(path.parent, PRINTED)


def printed_files(path: Path) -> list[Path]:
    """The files of a figure for a paper."""
    return [Path(f"{path}.{kind}") for kind in PRINTED]


def look(index: int, **others: Any) -> dict[str, Any]:
    """Colour, dash and marker of a series by its number; `others` add to them, or replace them."""
    colour, dash = SERIES[index % len(SERIES)], DASHES[index % len(DASHES)]
    shape = {"color": colour, "linestyle": dash, "marker": MARKERS[index % len(MARKERS)]}
    return {**shape, **others}


def from_zero(axes: Axes) -> None:
    """Let the vertical axis begin at 0 and end above the largest value, whose marker is whole."""
    axes.set_ylim(0, 1.1 * axes.dataLim.ymax or None)


def shortened(name: str, most: int = MOST_LETTERS) -> str:
    """Leave out the middle of a name that has more letters than `most`, an even number."""
    half = most // 2
    return name if len(name) <= most else f"{name[:half]}…{name[1 - half :]}"


def label_values(axes: Axes, places: Mapping[str, float]) -> None:
    """Name values below the axes at their places, upright where they would cover each other."""
    names = [shortened(value, VALUE_LETTERS) for value in places]
    axes.set_xticks(list(places.values()), names)
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    boxes.sort(key=lambda box: box.x0)
    if any(box.x1 > following.x0 for box, following in pairwise(boxes)):
        axes.tick_params(axis="x", rotation=90)


def _inline(svg: str, prefix: str) -> str:
    """Return an SVG file's drawing alone: without prologue, metadata, unused names and size."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg)
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda m: m[0] if m[1] in used else "", svg)
    svg = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{prefix}", svg)
    return svg.replace("<svg", '<svg aria-hidden="true"', 1)
