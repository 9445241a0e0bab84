"""The phases of a failure experiment in the form of cases: before, during and after the fault."""

from collections.abc import Iterator, Mapping
from typing import Any

from results.report.data.run_data import RunData
from results.store.runs import BASELINE, DEGRADED, DURING, RECOVERED


def phases_as_cases(run: RunData) -> list[dict[str, Any]]:
    """Return the phases of all failures whose time is modeled, with measured and modeled times.

    The time of an execution during the fault is modeled only if the job begins again.
    """
    return [phase for failure in run.result["failures"] for phase in _phases(run, failure)]


def _phases(run: RunData, failure: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for phase, model in (
        (BASELINE, BASELINE),
        (DURING, DURING),
        (DEGRADED, DEGRADED),
        (RECOVERED, BASELINE),
    ):
        median_s, modeled_s = failure[f"{phase}_s"], failure[f"modeled_{model}_s"]
        if median_s is not None and modeled_s is not None:
            name = f"{failure['case']}/{phase}"
            # A job that begins again is executed twice: neither execution lasts as long as both.
            values = [median_s] if phase == DURING else _values(run, name) or [median_s]
            yield {
                "case": name,
                "measured_s": {"median": median_s, "min": min(values), "max": max(values)},
                "modeled_s": modeled_s,
                "ratio": median_s / modeled_s,
                "verdict": failure["verdict"],
            }


def _values(run: RunData, name: str) -> list[float]:
    """The completion times of a phase's executions that count."""
    case = run.cases.get(name)
    return case.completion_s.tolist() if case is not None else []
