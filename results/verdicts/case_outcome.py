"""The outcome of each case of a stored run, with and without faults, in one form."""

from collections.abc import Mapping
from typing import Any

from pydantic.dataclasses import dataclass

from results.verdicts.verdict import Verdict


@dataclass(frozen=True)
class CaseOutcome:
    """A case of a run. Times are emulated seconds; `values` has one for each repeat, if stored.

    The fields' types are checked, as they come from a file.
    With a fault, times are of the degraded phase, or else of the execution during the fault.
    """

    name: str
    work: Mapping[str, Any]
    measured_s: float | None
    values: tuple[float, ...]
    modeled_s: float | None
    ratio: float | None
    data_is_right: bool | None
    verdict: Verdict
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    doubts: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """Why the case did not pass, on one line."""
        return f"{self.name}: {'; '.join(self.reasons)}"


def outcomes(result: Mapping[str, Any]) -> tuple[CaseOutcome, ...]:
    """Return the outcomes of all cases in a run's JSON object."""
    cases = [_without_fault(case) for case in result["cases"]]
    return (*cases, *(_with_fault(failure) for failure in result["failures"]))


WORK = ("fabric", "gpus", "bytes", "bandwidth_scale", "size_scale")


def _without_fault(case: Mapping[str, Any]) -> CaseOutcome:
    return CaseOutcome(
        name=case["case"],
        work={key: case[key] for key in WORK},
        measured_s=case["measured_s"]["median"],
        values=tuple(case["measured_s"]["values"]),
        modeled_s=case["modeled_s"],
        ratio=case["ratio"],
        data_is_right=case["data_is_right"],
        verdict=case["verdict"],
        reasons=tuple(case["reasons"]),
        notes=tuple(case.get("notes", ())),
        doubts=tuple(case.get("doubts", ())),
    )


def _with_fault(failure: Mapping[str, Any]) -> CaseOutcome:
    degraded = failure["degraded_s"] is not None
    work = failure["work"] or {}  # of an experiment that ended early, nothing is known
    return CaseOutcome(
        name=f"{failure['case']}, {failure['fault']} {failure['strategy']}",
        work={**{key: work.get(key) for key in WORK}, "where": failure["where"]},
        measured_s=failure["degraded_s"] if degraded else failure["during_fault_s"],
        values=(),
        modeled_s=failure["modeled_degraded_s"],
        ratio=failure["ratio"],
        data_is_right=failure["data_is_right"],
        verdict=failure["verdict"],
        reasons=tuple(failure["reasons"]),
        notes=tuple(failure.get("notes", ())),
        doubts=tuple(failure.get("doubts", ())),
    )
