"""The results of a sweep as a JSON object: the schema `railbed.sweep/2`."""

from collections.abc import Mapping
from typing import Any

from model.errors import InputError
from model.sweep import Point
from results.documents.case_outcome import CaseOutcome, outcomes
from results.store.records import reading
from results.store.sweeps import SweepFolder
from results.verdicts.verdict import Verdict, worst

SCHEMA = "railbed.sweep/2"
# A point without a result.
LOST: dict[str, Any] = {
    "exit_code": None,
    "took_s": None,
    "run_id": None,
    "verdict": "fail",
    "cases": [],
    "failures": [],
    "folder": None,
}


def sweep_object(folder: SweepFolder) -> dict[str, Any]:
    """Return the object that `sweep --json` prints, from the contents of the points' folders."""
    points = [_point_object(folder, point) for point in folder.sweep.points]
    return {
        "schema": SCHEMA,
        "sweep": folder.name,
        "scenario": folder.sweep.scenario,
        "proxies": folder.sweep.proxies,
        "clock": folder.sweep.clock,
        "verdict": worst(Verdict(point["verdict"]) for point in points).value,
        "folder": str(folder.path),
        "points": points,
    }


def _point_object(folder: SweepFolder, point: Point) -> dict[str, Any]:
    """Return the object of a point; a point without a result fails, with the cause."""
    facts: dict[str, Any] = {
        "point": point.number,
        "parameters": {setting.key: setting.value for setting in point.settings},
        "scenario_file": str(folder.scenario(point)),
    }
    try:
        return {**LOST, **facts, **_ended(folder, point)}
    except InputError as error:
        return {**LOST, **facts, "cause": str(error)}


def _ended(folder: SweepFolder, point: Point) -> dict[str, Any]:
    """Return how a point ended; raise `InputError` if its records are damaged."""
    outcome, result = folder.outcome(point), folder.result(point)
    if outcome is None:
        return {"cause": "it was not run"}
    run = None if outcome.run is None else str(outcome.run)
    facts = {"exit_code": outcome.exit_code, "took_s": outcome.took_s, "folder": run}
    if result is None:
        return {**facts, "cause": outcome.cause}
    with reading(folder.point_folder(point)):
        kept = {key: result[key] for key in ("run_id", "cases", "failures")}
        verdict = Verdict(result["verdict"]).value
        return {**facts, **kept, "verdict": verdict, "cause": _reasons(result)}


def _reasons(result: Mapping[str, Any]) -> str:
    """Return why a result fails, one line for each failed case; empty if it does not."""
    failed = [case for case in outcomes(result) if case.verdict == "fail"]
    lines = [reason(case) for case in failed]
    if result.get("paths", {}).get("verdict") == "fail":
        lines.append("packets do not take the intended paths (paths.json)")
    return "\n".join(lines)


def reason(case: CaseOutcome) -> str:
    """Return in one line why a case of a point did not pass."""
    return f"{case.name}: {'; '.join(case.reasons)}"
