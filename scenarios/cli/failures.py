"""Run all failure experiments of the library, one after the other."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from model.errors import EmulationError
from results.documents.fault_impact import lost_experiment
from scenarios.execution.progress import Listener
from scenarios.execution.run import run
from scenarios.library import library
from scenarios.loader import load
from scenarios.spec.scenario import Scenario
from testbed.nodes.gpu_proxies import ProxyKind


def failure_experiments() -> list[Scenario]:
    """The scenarios of the library that have faults."""
    return [scenario for path in library() if (scenario := load(path)).has_faults]


def run_failures(
    experiments: list[Scenario], proxies: ProxyKind, store: Path, listener: Listener
) -> Iterator[dict[str, Any]]:
    """Yield one object per failure and fabric, and one for each experiment that ends early."""
    for scenario in experiments:
        try:
            yield from run(scenario, proxies, store, listener)["failures"]
        except EmulationError as error:
            yield lost_experiment(scenario.name, str(error))
