"""Articles, and the HTML page that they make: sections with pictures and tables, in a template."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from model.sweep import VIRTUAL
from results.report.data.run_data import RunData
from results.report.drawings.pictures import Picture
from results.store.runs import clock_of


@dataclass(frozen=True)
class Section:
    """A part of an article: its heading, a sentence on how to read it, its pictures, a table."""

    heading: str
    text: str
    pictures: Sequence[Picture] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()


@dataclass(frozen=True)
class Article:
    """A title, the answer in sentences, and sections; an article about a `run` has its scenario.

    `name` distinguishes it from other articles of the same title.
    """

    title: str
    name: str
    answer: str
    sections: Sequence[Section]
    run: RunData | None = None

    @property
    def pictures(self) -> list[Picture]:
        """The pictures of all sections."""
        return [picture for section in self.sections for picture in section.pictures]

    @property
    def scenario_link(self) -> str:
        """The scenario's file as an address without a host (RFC 2397)."""
        assert self.run is not None
        coded = base64.b64encode(self.run.scenario.encode()).decode()
        return f"data:application/yaml;base64,{coded}"

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        assert self.run is not None
        if clock_of(self.run.result) == VIRTUAL:
            return "./railbed run scenario.yaml --clock virtual"
        proxies = self.run.result.get("machine", {}).get("proxies", "container")
        return f"sudo ./railbed run scenario.yaml --proxies {proxies}"


def render(articles: Sequence[Article]) -> str:
    """Return the HTML page of articles."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["drawn"] = lambda picture, prefix: Markup(picture.svg(prefix))
    # A narrow table breaks names of cases between their parts.
    environment.filters["in_parts"] = lambda name: escape(name).replace("/", Markup("/<wbr>"))
    return environment.get_template("page.html").render(articles=articles, title=_title(articles))


def _title(articles: Sequence[Article]) -> str:
    """Name the runs; a comparison and a sweep name those of the articles after them."""
    named = articles if articles[0].run else articles[:1]
    return ", ".join(article.name for article in named)
