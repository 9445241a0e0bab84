"""The page of a report in Chromium: `docs/guides/extending.md` says how."""

from dataclasses import replace
from pathlib import Path

import pytest

from results.render.page import render
from results.report.run import run_article
from results.report.run_data import read_run
from tests.browser.chromium import WIDTHS, opened
from tests.unit.stored_runs import stored_run

OFF = 1.013
# At 360 CSS pixels and more, a letter of 8 points in a picture of 4.6 inches is read.
LEAST_LETTER_PX, MOST_LETTER_PX = 5.0, 22.0
LETTERS = """
Array.from(document.querySelectorAll('figure svg text'), letters =>
    letters.getBoundingClientRect().height)
"""
# The width of a page of 21 cm without its margins, in CSS pixels.
A4_PX = 718
CUT_OFF = """
Array.from(document.querySelectorAll('table'), table =>
    table.scrollWidth - table.closest('article').clientWidth)
"""
UPRIGHT_WORDS = """
Array.from(document.querySelectorAll('figure svg text'), words => words.getBoundingClientRect())
    .filter(box => box.width > box.height).map(box => box.height)
"""
OVERFLOW = "document.documentElement.scrollWidth - window.innerWidth"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    store = tmp_path_factory.mktemp("runs")
    intact = stored_run(store, domains=4, domain_size=4, off=OFF)
    failed = stored_run(store, domains=4, domain_size=4, scenario="broken", faults=True)
    place = store / "report.html"
    place.write_text(render([run_article(read_run(folder), {}) for folder in (intact, failed)]))
    return place.as_uri()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_whole_at_any_width(url: str, width: str, scheme: str, tmp_path: Path) -> None:
    with opened(url, width, color_scheme=scheme) as page:
        page.screenshot(path=str(tmp_path / "page.png"), full_page=True)
        assert page.evaluate(OVERFLOW) <= 0
        assert page.locator("article").count() == 2
        pictures = page.locator("figure svg")
        boxes = [pictures.nth(n).bounding_box() for n in range(pictures.count())]
        assert len(boxes) > 10
        assert all(box is not None and box["width"] > 200 and box["height"] > 60 for box in boxes)
        assert min(page.evaluate(LETTERS)) >= LEAST_LETTER_PX
        assert max(page.evaluate(UPRIGHT_WORDS)) <= MOST_LETTER_PX


@pytest.mark.parametrize("width", WIDTHS)
def test_many_cases_are_legible(width: str, tmp_path: Path) -> None:
    run = read_run(stored_run(tmp_path))
    cases = [
        {**one, "case": f"{one['case']}/{n}"} for n in range(15) for one in run.result["cases"]
    ]
    place = tmp_path / "many.html"
    place.write_text(render([run_article(replace(run, result={**run.result, "cases": cases}), {})]))
    with opened(place.as_uri(), width) as page:
        page.screenshot(path=str(tmp_path / "many.png"), full_page=True)
        assert min(page.evaluate(LETTERS)) >= LEAST_LETTER_PX


def test_pictures_show_what_the_data_says(url: str) -> None:
    with opened(url, "desktop") as page:
        completion = page.locator("figure").first
        shown = completion.locator("text").all_text_contents()
        assert shown.count("1.013 pass") == 4
        assert "rail-only/all-to-all/direct" in shown
        table = page.locator("table").first.locator("tbody tr:not(.group)")
        assert [row.count("1.0130") for row in table.all_inner_texts()] == [1] * 4


def test_a_screen_reader_hears_every_picture_and_table(url: str) -> None:
    with opened(url, "desktop") as page:
        figures, regions = page.get_by_role("group"), page.get_by_role("region")
        pictures = page.locator("figure").count()
        heard = [figures.nth(n).get_attribute("aria-label") for n in range(figures.count())]
        assert sum(bool(words) for words in heard) >= pictures
        assert regions.count() > 2
        assert page.get_by_role("heading", level=1).count() == 2
        assert page.get_by_role("main").count() == 1


def test_the_scenario_is_in_the_page(url: str) -> None:
    with opened(url, "desktop") as page:
        summary = page.get_by_text("The scenario", exact=True).first
        summary.click()
        assert page.get_by_text("fabric: {domains: 2}").first.is_visible()
        with page.expect_download() as download:
            page.get_by_role("link", name="scenario.yaml").first.click()
        assert download.value.suggested_filename == "scenario.yaml"
        assert "fabric: {domains: 2}" in Path(download.value.path()).read_text()


def test_print_has_everything(url: str, tmp_path: Path) -> None:
    with opened(url, "desktop") as page:
        page.emulate_media(media="print")
        page.set_viewport_size({"width": A4_PX, "height": 1000})
        page.pdf(path=str(tmp_path / "page.pdf"), format="A4")
        assert page.evaluate(OVERFLOW) <= 0
        assert max(page.evaluate(CUT_OFF)) <= 0
        assert page.get_by_text("fabric: {domains: 2}").first.is_visible()
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
