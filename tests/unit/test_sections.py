"""Sections: what one says is in each rendering."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import escape
from rich.console import Console

from commands.output import Terminal
from model.errors import CONTROL, visible
from results.render import terminal
from results.render.markdown import markdown
from results.render.page import Article, Part, render
from results.render.terminal import print_sections, print_whole
from results.sections import run
from results.sections.run import cases_section, run_sections
from results.sections.section import Section

SAMPLE = Path(__file__).parents[1] / "samples" / "result.json"


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    """A stored run that has cases, a failure, calibrated links and checked paths."""
    stored: dict[str, Any] = json.loads(SAMPLE.read_text())
    return stored


def renderings(section: Section) -> tuple[str, str, str]:
    """A section at a terminal below another one, as a page, and as Markdown."""
    text = io.StringIO()
    print_sections([Section("Before", remarks=("-",)), section], Console(file=text, width=1000))
    page = render([Article("", "", "", [Part(section)])]).replace("<wbr>", "")
    return text.getvalue(), page, "\n".join(markdown(section))


def test_all_that_a_section_says_is_in_each_rendering(result: dict[str, Any]) -> None:
    sections = run_sections(result)
    assert len(sections) == 10
    for section in sections:
        cells = [cell for row in section.rows for cell in row]
        told = [section.title, *section.columns, *cells, section.text, *section.remarks]
        terminal, page, text = renderings(section)
        for one in map(str, told):
            assert one in terminal
            assert str(escape(one)) in page
            assert one in text


def test_a_new_column_is_in_each_rendering(
    result: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    column = ("best", lambda case: f"{min(case['measured_s']['values']):.5f}")
    monkeypatch.setattr(run, "CASES", (*run.CASES, column))
    cells = [f"{min(case['measured_s']['values']):.5f}" for case in result["cases"]]
    for rendering in renderings(cases_section(result)):
        assert all(word in rendering for word in ("best", *cells))


def test_a_long_name_is_broken_between_its_words() -> None:
    names = "all-to-all/direct/peers-all/matrix", "all-reduce/hierarchical-pipelined"
    rows = [("rail-only",), *((name, "f" * 60) for name in names)]
    text = io.StringIO()
    console = Console(file=text, width=80)
    print_sections([Section("", ("case", "figure"), rows)], console)
    first = [line[:19].strip() for line in text.getvalue().splitlines()]
    assert first[2:] == [
        "all-to-all/direct/",
        "peers-all/matrix",
        "all-reduce/",
        "hierarchical-",
        "pipelined",
    ]


def test_the_last_of_several_names_is_broken_between_its_words() -> None:
    row = ("selective-repeat", "rail-only/all-to-all/direct/matrix", "f" * 40)
    text = io.StringIO()
    section = Section("", ("recovery", "case", "figure"), [row], names=2)
    print_sections([section], Console(file=text, width=80))
    case = [line[17:39].strip() for line in text.getvalue().splitlines()]
    assert case[1:] == ["rail-only/all-to-all/", "direct/matrix"]


def test_a_long_value_leaves_room_for_the_name_behind_it() -> None:
    row = ("/root/traces/" + 60 * "a", "rail-only/all-to-all", "1.000 s")
    text = io.StringIO()
    section = Section("", ("trace", "case", "measured"), [row], names=2)
    print_sections([section], Console(file=text, width=60))
    assert "rail-only/all-to-all" in text.getvalue()


@settings(max_examples=30)
@given(st.text("a[/\x07\x1b\x9b\r\n\t"))
def test_what_is_printed_controls_no_terminal(name: str) -> None:
    """Names in runs and in files of others may try to."""
    console = Terminal()
    section = Section(name, (name, "figure"), [(name, "1")], text=name, remarks=(name,))
    with console.capture() as printed:
        console.print(name)
        print_sections([section, section], console)
    assert not CONTROL.search(printed.get())


@given(st.text("a\x07\x1b\x9b\r", min_size=1, max_size=15))
def test_a_name_made_visible_is_whole_in_a_table(name: str) -> None:
    console = Terminal()
    section = Section("", (name, "figure"), [(name, "1")])
    for shown in (print_whole, lambda one, to: print_sections([one], to)):
        with console.capture() as printed:
            shown(section, console)
        assert [line.split()[0] for line in printed.get().splitlines()] == 2 * [visible(name)]


@given(st.text("ab/-"), st.integers(1, 20))
def test_a_name_in_lines_loses_no_letter(name: str, width: int) -> None:
    assert "".join(terminal._in_lines(name, width).split()) == name


def test_scales_without_cases_have_no_words_about_a_table(result: dict[str, Any]) -> None:
    scales = [{"key": "bandwidth_scale", "value": 15000.0, "why": "data takes 49%"}]
    (section,) = (
        one
        for one in run_sections({**result, "cases": [], "scales": scales})
        if one.title.startswith("Scales")
    )
    assert section == Section("Scales", remarks=("bandwidth_scale: auto is 15000: data takes 49%",))
