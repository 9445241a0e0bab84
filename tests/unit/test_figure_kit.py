"""Figures: one layout for all files of a figure."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import matplotlib as mpl
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from results.figures.kit import MOST_LETTERS, PRINTED, look, printed, printed_files, shortened


def test_a_figure_is_laid_out_once_and_drawn_once_for_each_format(tmp_path: Path) -> None:
    lay_out, draw = ConstrainedLayoutEngine.execute, Figure.draw
    with (
        patch.object(
            ConstrainedLayoutEngine, "execute", autospec=True, side_effect=lay_out
        ) as laid,
        patch.object(Figure, "draw", autospec=True, side_effect=draw) as drawn,
        printed(tmp_path / "x", panels=2) as panels,
    ):
        panels[0].plot([0, 1], [0, 1])
    assert (laid.call_count, drawn.call_count) == (1, len(PRINTED))
    assert all(file.stat().st_size for file in printed_files(tmp_path / "x"))


def test_settings_of_a_user_change_no_figure(tmp_path: Path) -> None:
    """TeX, for one, may be missing, and would read names of users as commands."""
    others: Any = {"text.usetex": True, "axes.facecolor": "red", "lines.linewidth": 9.0}
    for name in ("own", "others"):
        with mpl.rc_context(others if name == "others" else {}):
            with printed(tmp_path / name / "x") as (axes,):
                axes.set_title("$a_b")
            assert mpl.rcParams["text.usetex"] == (name == "others")
    for file in printed_files(Path("x")):
        assert (tmp_path / "own" / file).read_bytes() == (tmp_path / "others" / file).read_bytes()


def test_thirty_series_look_different_without_markers() -> None:
    looks = [look(number) for number in range(210)]
    shapes = [(one["color"], one["linestyle"], one["marker"]) for one in looks]
    assert len(set(shapes)) == 210
    assert len({shape[:2] for shape in shapes[:30]}) == 30


@given(st.text(st.characters(exclude_characters="…"), max_size=3 * MOST_LETTERS))
def test_a_long_name_keeps_its_ends(name: str) -> None:
    begin, _, end = shortened(name).partition("…")
    assert len(shortened(name)) == min(len(name), MOST_LETTERS)
    assert name == shortened(name) or (name.startswith(begin) and name.endswith(end))
