"""Pictures of a report: drawn by matplotlib, inlined as SVG, or written as files."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from linux.files.user_files import give, make_folder, write_bytes

FORMATS = ("svg", "png", "pdf")
# Inches: the width of a picture beside others, and the least width that takes a row of its own.
WIDTH, WIDE = 4.6, 6.0
STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.linewidth": 0.4,
    "grid.color": "0.85",
    "axes.axisbelow": True,
    # Names of users are plain text, neither formulas nor paths.
    "text.parse_math": False,
    "svg.fonttype": "none",
}
# Colours that differ in lightness, too: for print without colour, and for red-green blindness.
MEASURED, MODELED = "#1a5f9e", "#111111"
SERIES = ("#1a5f9e", "#c75b12", "#5b3f8c", "#2f7d4f", "#8a6d00", "#9c2c54")
DASHES = ("-", "--", ":", "-.", (0, (5, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P")


@dataclass(frozen=True)
class Picture:
    """A picture with its file's name, and its content in a sentence for blind readers."""

    name: str
    sentence: str
    figure: Figure

    @property
    def is_wide(self) -> bool:
        """Whether it has a row of the page to itself."""
        return float(self.figure.get_figwidth()) > WIDE

    def svg(self, prefix: str) -> str:
        """Return the picture as an element of an HTML page; its names begin with `prefix`."""
        with _style(self.name):
            text = io.StringIO()
            self.figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
        return _inline(text.getvalue(), prefix)

    def save(self, folder: Path, formats: list[str]) -> list[Path]:
        """Write the picture in each format; return the files."""
        make_folder(folder)
        files = [folder / f"{self.name}.{form}" for form in formats]
        for file in files:
            form, content = file.suffix.removeprefix("."), io.BytesIO()
            metadata = {} if form == "png" else {_DATE[form]: None}
            with _style(self.name):
                self.figure.savefig(content, format=form, dpi=200, metadata=metadata)
            write_bytes(file, content.getvalue())
            give(file)
        return files


# Without a date, the same picture is the same file.
_DATE = {"svg": "Date", "pdf": "CreationDate"}


@contextmanager
def _style(name: str) -> Iterator[None]:
    """Set the style; names of parts inside an SVG picture differ from those of other pictures."""
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}):
        yield


@contextmanager
def drawing(height: float, width: float = WIDTH) -> Iterator[Figure]:
    """Yield an empty figure of this size in inches, in the style of reports."""
    with _style(""):
        yield Figure(figsize=(width, height), layout="constrained")


def plain(value: float, _position: float) -> str:
    """Format a label of a logarithmic axis: matplotlib's own is a formula."""
    return f"{value:g}"


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
