"""The figures of the documentation: data files, and the page that is rendered from them."""

import json
from pathlib import Path
from typing import Any

import pytest

from studies.benchmarks import BENCHMARKS, render
from studies.benchmarks.render import (
    CHANGED,
    FOLDER,
    PAGES,
    TABLES,
    UNKNOWN,
    Figure,
    Table,
    page,
    read,
    recording,
    rendered,
)

NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


def test_the_pages_are_what_the_renderer_makes_of_the_data() -> None:
    written = "".join(path.read_text(encoding="utf-8") for path in PAGES)
    hint = "python -m studies.benchmarks.render"
    assert page(written).replace(CHANGED, "") == written.replace(CHANGED, ""), hint


def test_every_figure_is_on_a_page_and_every_benchmark_has_tables() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in PAGES)
    assert sorted(TABLES) == NAMES
    assert [text.count(f"<!--figure:{name}-->") for name in NAMES] == [1] * len(NAMES)
    assert set(BENCHMARKS) <= set(TABLES)


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_has_one_origin(name: str) -> None:
    figure = read(name)
    assert figure.command
    assert figure.commit
    assert figure.date
    assert set(figure.machine) == {"cores", "memory_gib", "kernel", "cpu", "clock", "steal"}
    assert figure.rows
    assert Figure(**json.loads(figure.text())) == figure


def test_a_recorded_benchmark_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "FOLDER", tmp_path)
    with pytest.raises(RuntimeError), recording("routing", [{"gpus": 4}], record=True):
        raise RuntimeError
    with recording("routing", [{"gpus": 4}], record=False):
        pass
    assert not list(tmp_path.iterdir())
    rows: list[dict[str, Any]] = [{"gpus": 4, "desired_state_s": 0.5}, {"gpus": 8}]
    with recording("routing", rows, record=True):
        pass
    figure = read("routing")
    assert (figure.command, figure.rows) == ("./railbed bench routing", rows)
    assert UNKNOWN not in (figure.commit, figure.date, figure.machine["kernel"])


def test_the_origin_names_a_machine_that_is_not_the_usual_one() -> None:
    """Of the usual one, measurements.md says once what it has."""
    usual = {"cores": 2, "memory_gib": 24, "kernel": "6.18.44-x", "steal": UNKNOWN}
    for changed, named in (({}, ""), ({"kernel": "6.1"}, "; 2 cores, 24 GiB, 6.1")):
        figure = Figure("./railbed bench fuzz", UNKNOWN, "2026-11-26", {**usual, **changed})
        origin = rendered("fuzz", figure).splitlines()[-1]
        assert origin.endswith(f"fuzz.json); 2026-11-26{named}*")


def test_a_leading_cell_that_repeats_the_one_above_is_empty() -> None:
    rows = [{"fabric": "a", "gpus": n, "up_s": 0.5 + n, "down_s": 1} for n in (4, 16)]
    assert list(Table("fabric gpus up_s").lines([*rows, {"fabric": "b", "gpus": 4}])) == [
        "| fabric | GPUs | up, s |",
        "|---|---|---|",
        "| a | 4 | 4.5 |",
        "|  | 16 | 16.5 |",
    ]


def test_a_query_sees_all_rows_in_their_order_with_the_keys_that_only_some_have() -> None:
    some: list[dict[str, Any]] = [{"fabric": "b", "up_s": 1 / 3}, {"fabric": "a"}]
    rows = [*some, {"fabric": "a", "up_s": 2, "x": [1]}]
    assert list(Table("fabric up_s", query="FROM figure WHERE up_s IS NOT NULL").lines(rows)) == [
        "| fabric | up, s |",
        "|---|---|",
        "| b | 0.3333 |",
        "| a | 2 |",
    ]


def test_values_across_are_columns() -> None:
    rows = [
        {"case": case, "asked": share, "ratio": 1 + share, "up_s": share}
        for case in ("a", "b")
        for share in (0.0, 0.05)
    ]
    assert list(Table("case ratio", across="asked").lines(rows)) == [
        "| case | 0 % | 5 % |",
        "|---|---|---|",
        "| a | 1.000 | 1.050 |",
        "| b | 1.000 | 1.050 |",
    ]
    assert next(Table("case up_s", across="asked").lines(rows)) == (
        "| case | 0 %: up, s | 5 %: up, s |"
    )


@pytest.mark.parametrize(
    ("in_history", "later", "marked"),
    [(True, "", False), (True, "abc1234 Change it", True), (False, "", True)],
)
def test_a_table_whose_code_has_changed_since_its_commit_is_marked(
    monkeypatch: pytest.MonkeyPatch, in_history: bool, later: str, marked: bool
) -> None:
    asked: list[tuple[str, ...]] = []

    def git(*command: str) -> str:
        asked.append(command)
        if "merge-base" in command:
            return "0123abcdef" if in_history else "fedcba3210"
        return later

    monkeypatch.setattr("studies.benchmarks.render.first_line", git)
    recorded = read("fidelity")
    old = Figure(recorded.command, UNKNOWN, recorded.date, recorded.machine, recorded.rows)
    assert CHANGED not in rendered("fidelity", old)
    assert not asked
    known = Figure(old.command, "0123abc-dirty", old.date, old.machine, old.rows)
    assert (CHANGED in rendered("fidelity", known)) == marked
    assert "0123abc" in asked[0]
    if in_history:
        assert asked[1][-3:] == ("0123abc..", "--", "studies/benchmarks/accuracy.py")
