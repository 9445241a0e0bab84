"""Measure the twins of the paper's figures; what is stored is not run again."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from model.errors import InputError
from results.store.runs import digest_of, read_result, stored_runs
from scenarios.execution.progress import Listener
from scenarios.library import LIBRARY
from scenarios.loader import load
from scenarios.spec.scenario import Scenario
from scenarios.sweep.progress import human_remaining, remaining
from scenarios.twins.points import Twin

Result = dict[str, Any]


def scenario_of(twin: Twin) -> Scenario:
    """The scenario of a twin, with its changes."""
    return load(LIBRARY / f"{twin.scenario}.yaml", twin.changes)


def measure(
    twins: Sequence[Twin], store: Path, run: Callable[[Scenario], Result], listener: Listener
) -> list[Result]:
    """Return the JSON object of each twin's run: the stored one, or that of a new run.

    A stored run counts if it is complete, and its scenario is the same to the letter.
    """
    scenarios = [scenario_of(twin) for twin in twins]
    known = dict(_stored(store))
    missing = sum(digest_of(scenario.text) not in known for scenario in scenarios)
    took_s: list[float] = []
    results = []
    for twin, scenario in zip(twins, scenarios, strict=True):
        digest, name = digest_of(scenario.text), f"{twin.figure}, {twin.place}"
        if digest in known:
            listener.step(f"{name}: stored as {known[digest]['run_id']}")
        else:
            left = human_remaining(remaining(took_s, missing - len(took_s)))
            listener.step(f"{name}: point {len(took_s) + 1} of {missing} begins; {left}")
            begun_s = time.monotonic()
            known[digest] = run(scenario)
            took_s.append(time.monotonic() - begun_s)
        results.append(known[digest])
    return results


def _stored(store: Path) -> Iterator[tuple[str, Result]]:
    """Yield the digest of the scenario and the JSON object of every complete run, oldest first."""
    for folder in stored_runs(store):
        with suppress(InputError):
            result = read_result(folder)
            if "scenario_digest" in result:
                yield result["scenario_digest"], result
