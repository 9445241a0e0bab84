"""The page of the measured figures: Markdown, with a drawing of figure 8 beside it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from linux.files import make_folder
from results.figures.curves import Curves, draw
from results.store.records import write_record
from scenarios.twins.points import DOMAIN_SIZES, FIG8, GPUS

Result = dict[str, Any]
PAGE, DRAWING = "measured.md", "measured-fig8"
ALGORITHMS = ("two_step", "pipelined")


def write_page(found: Result, folder: Path) -> Path:
    """Write the page and its drawing into a folder; return the page's path."""
    make_folder(folder)
    draw(_panels(found), folder / DRAWING)
    write_record(folder / PAGE, "\n".join(_lines(found)) + "\n")
    return folder / PAGE


def _panels(found: Result) -> list[Curves]:
    """One panel for each configuration: the model, and every execution."""
    points = [point for point in found["points"] if point["figure"] == FIG8]
    return [
        Curves(
            f"{name}, reduced to {GPUS} GPUs",
            "HB domain size K (GPUs)",
            "iteration time (emulated s)",
            DOMAIN_SIZES,
            {"modeled": [mine[size]["modeled_s"] for size in DOMAIN_SIZES]},
            {"measured": [(k, s) for k in mine for s in mine[k]["measured_s"]["values"]]},
        )
        for name in dict.fromkeys(point["algorithm"] for point in points)
        if (mine := {int(p["place"]): p for p in points if p["algorithm"] == name})
    ]


def _lines(found: Result) -> Iterator[str]:
    yield "# The paper's figures, measured on emulated twins"
    yield ""
    machine = found["machine"]
    yield (
        f"`railbed paper --measure` wrote this page: {machine.get('cores', '?')} cores, kernel "
        f"{machine.get('kernel', '?')}. Times are emulated seconds, medians."
    )
    yield from ("", "## Every point against the model at its size", "")
    yield from _points(found["points"])
    yield from ("", "## Figure 8: iteration time against the size of an HB domain", "")
    yield from (f"![Figure 8]({DRAWING}.svg)", "")
    yield f"Times over that of the largest domain: with {GPUS} GPUs, and at the paper's scale."
    yield ""
    yield from _figure_8(found["fig8"])
    yield from ("", "## Section IV-B: what an all-to-all loses on rail-only", "")
    yield from _all_to_all(found["all_to_all"])


def _points(points: Sequence[Result]) -> Iterator[str]:
    rows = [
        (
            point["figure"],
            point["place"],
            point["case"],
            f"{point['measured_s']['median']:.3f} s",
            f"{point['modeled_s']:.3f} s",
            f"{point['ratio']:.4f}",
            point["verdict"],
            point["run_id"],
        )
        for point in points
    ]
    head = ("figure", "place", "case", "measured", "modeled", "ratio", "verdict", "run")
    return _table(head, rows)


def _figure_8(rows: Sequence[Result]) -> Iterator[str]:
    parts = ("measured", "modeled", "at_scale")
    found = [
        (row["configuration"], row["domain_size"], *(f"{row[part]:.3f}" for part in parts))
        for row in rows
    ]
    head = ("configuration", "K", "measured", "modeled", "modeled at the paper's scale")
    return _table(head, found)


def _all_to_all(rows: Sequence[Result]) -> Iterator[str]:
    found = [
        (
            row["platform"],
            f"{row['paper']:.1%}",
            *(f"{row[one][part]:.1%}" for one in ALGORITHMS for part in ("measured", "modeled")),
        )
        for row in rows
    ]
    head = ("platform", "C_S/C_F", "two-step", "modeled", "pipelined", "modeled")
    return _table(head, found)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"
