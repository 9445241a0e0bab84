"""The result of a sweep: the schema `railbed.sweep/2`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.errors import InputError
from model.sweep import Point
from results.store.records import plain, reading
from results.store.sweeps import SweepFolder
from results.verdicts.case_outcome import outcomes
from results.verdicts.verdict import Verdict, worst

SCHEMA = "railbed.sweep/2"


@dataclass(frozen=True)
class PointResult:
    """A point of a sweep. One without a result fails, and has a `cause`."""

    point: int
    parameters: Mapping[str, Any]
    scenario_file: Path
    exit_code: int | None = None
    took_s: float | None = None
    verdict: Verdict = Verdict.FAIL
    cause: str = ""
    run_id: str | None = None
    folder: Path | None = None
    cases: Sequence[Mapping[str, Any]] = ()
    failures: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class SweepResult:
    """The object that `sweep --json` prints."""

    schema: str
    sweep: str
    scenario: str
    proxies: str
    clock: str
    verdict: Verdict
    folder: Path
    points: Sequence[PointResult]


def sweep_object(folder: SweepFolder) -> dict[str, Any]:
    """Return the JSON object of a sweep, from the contents of the points' folders."""
    sweep, points = folder.sweep, [_point(folder, point) for point in folder.sweep.points]
    return plain(
        SweepResult(
            schema=SCHEMA,
            sweep=folder.name,
            scenario=sweep.scenario,
            proxies=sweep.proxies,
            clock=sweep.clock,
            verdict=worst(point.verdict for point in points),
            folder=folder.path,
            points=points,
        )
    )


def _point(folder: SweepFolder, point: Point) -> PointResult:
    parameters = {setting.key: setting.value for setting in point.settings}
    try:
        ended = _ended(folder, point)
    except InputError as error:
        ended = {"cause": str(error)}
    return PointResult(point.number, parameters, folder.scenario(point), **ended)


def _ended(folder: SweepFolder, point: Point) -> dict[str, Any]:
    """Return how a point ended; raise `InputError` if its records are damaged."""
    outcome, result = folder.outcome(point), folder.result(point)
    if outcome is None:
        return {"cause": "not run"}
    facts = {"exit_code": outcome.exit_code, "took_s": outcome.took_s, "folder": outcome.run}
    if result is None:
        return {**facts, "cause": outcome.cause}
    with reading(folder.point_folder(point)):
        kept = {key: result[key] for key in ("run_id", "cases", "failures")}
        verdict = Verdict(result["verdict"])
        return {**facts, **kept, "verdict": verdict, "cause": "\n".join(_reasons(result))}


def _reasons(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a result fails, one line for each failed case; nothing if it does not."""
    yield from (case.sentence for case in outcomes(result) if case.verdict == "fail")
    if result.get("paths", {}).get("verdict") == "fail":
        yield "packets do not take the intended paths (paths.json)"
