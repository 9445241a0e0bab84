"""A run folder as a run begins it, for tests of what is stored."""

from pathlib import Path
from typing import Any

from results.store.runs import RunFolder


def begun_run(store: Path, run_id: str, scenario: str, environment: Any) -> RunFolder:
    """Return the folder of a new run that has begun."""
    folder = RunFolder.planned(store, run_id)
    folder.begin(scenario, environment)
    return folder
