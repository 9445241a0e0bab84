"""Articles about stored runs."""

from pathlib import Path
from typing import Any

from results.render.page import Article
from results.report.run import run_article
from results.report.run_data import RunData, read_run
from results.sections.section import Section
from tests.unit.stored_runs import stored_run

LOST: dict[str, Any] = {"rail-only/all-to-all/two-step/during_fault": {"d0g0>d1g0": [0.301, 0.302]}}


def failure_run(store: Path) -> RunData:
    """Store a run with a fault, and read it."""
    return read_run(stored_run(store, scenario="broken", faults=True))


def failure_article(run: RunData) -> Article:
    """The article about a run with a fault, in which a pair loses two probes."""
    return run_article(run, LOST)


def sections_of(article: Article) -> list[Section]:
    """The sections of an article."""
    return [part.section for part in article.parts]
