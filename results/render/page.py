"""Pages by templates: articles, sections with their pictures, as HTML; any other in Markdown."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from results.figures.kit import Picture
from results.sections.section import Section


@dataclass(frozen=True)
class Part:
    """A section with its pictures."""

    section: Section
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True)
class Repetition:
    """What repeats a run: its scenario's text, a command; and the environment that it had."""

    scenario: str
    command: str
    environment: Mapping[str, Any]

    @property
    def link(self) -> str:
        """The scenario's file as an address without a host (RFC 2397)."""
        return f"data:application/yaml;base64,{base64.b64encode(self.scenario.encode()).decode()}"


@dataclass(frozen=True)
class Article:
    """A title, the answer in sentences, and parts; one about a run can be repeated.

    `name` distinguishes it from other articles of the same title.
    """

    title: str
    name: str
    answer: str
    parts: Sequence[Part]
    repetition: Repetition | None = None

    @property
    def pictures(self) -> list[Picture]:
        """The pictures of all parts."""
        return [picture for part in self.parts for picture in part.pictures]


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
    # A comparison and a sweep name the runs of the articles after them.
    named = articles if articles[0].repetition else articles[:1]
    title = ", ".join(article.name for article in named)
    return environment.get_template("page.html").render(articles=articles, title=title)


def filled(template: Path, **values: Any) -> str:
    """Return the text of a template in Markdown with these values."""
    environment = Environment(undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(template.read_text(encoding="utf-8")).render(values)
