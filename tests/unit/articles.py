"""Articles about stored runs."""

from pathlib import Path
from typing import Any

from results.report.article import Article
from results.report.data.run_data import read_run
from results.report.run_article import run_article
from tests.unit.stored_runs import stored_run

LOST: dict[str, Any] = {"rail-only/all-to-all/two-step/during_fault": {"d0g0>d1g0": [0.301, 0.302]}}


def failure_article(store: Path) -> Article:
    """Store a run with a fault, in which a pair loses two probes; return its article."""
    return run_article(read_run(stored_run(store, scenario="broken", faults=True)), LOST)
