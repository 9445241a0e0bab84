"""Completion in the shell beside commands and options: names of scenarios, configurations, runs.

Files are completed by the shell itself if no name begins with the word.
"""

from results.store.runs import DEFAULT_STORE, stored_runs
from scenarios.file_formats.scenario.library import library


def scenario_names(incomplete: str) -> list[str]:
    """Names of the library's scenarios."""
    return _beginning([path.stem for path in library()], incomplete)


def configuration_names(incomplete: str) -> list[str]:
    """Names of the training configurations that come with Railbed."""
    from scenarios.file_formats.training.configuration import SHIPPED

    return _beginning([path.stem for path in SHIPPED.glob("*.yaml")], incomplete)


def run_names(incomplete: str) -> list[str]:
    """Names of the runs in the default store, and `latest`."""
    names = [run.name for run in stored_runs(DEFAULT_STORE)]
    return _beginning(["latest", *names], incomplete)


def _beginning(names: list[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))
