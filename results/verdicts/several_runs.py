"""Several runs: the schemas `railbed.compare/1`, of two side by side, and `railbed.sweep/2`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import comb
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass as checked

from model.errors import InputError
from model.sweep import Point
from results.store.records import plain, reading
from results.store.runs import DEGRADED, DURING
from results.store.sweeps import SweepFolder
from results.verdicts.verdict import Verdict, times_count, worst

COMPARE_SCHEMA, SWEEP_SCHEMA = "railbed.compare/1", "railbed.sweep/2"
# Disjoint ranges that occur by chance more often than this show no difference.
MAX_CHANCE = 0.05
# Keys that differ between any two runs, even on the same machine.
FLEETING = ("load_average",)
FOR_PEOPLE = ("name", "description")
# More than these make one line.
MOST_DIFFERENCES = 8
# Keys of a scenario that its steps depend on, and on the files that they name.
OF_STEPS = ("fabric", "workloads")
# Characters of a value that a line shows, and values that have parts.
MOST_SHOWN = 200
PARTS = Mapping, list, tuple
OF_A_RUN = ("run_id", "scenario", "verdict", "folder")


@checked(frozen=True)
class CaseOutcome:
    """A case of a run, with a fault or without. The fields' types are checked: they are of a file.

    Times are emulated seconds; `values` has one for each repeat, if stored. With a fault, times are
    of the degraded phase, or else of the execution during the fault.
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
    schedule_digest: str | None = None
    incomplete: bool = False

    @property
    def sentence(self) -> str:
        """Why the case did not pass, on one line."""
        return f"{self.name}: {'; '.join(self.reasons)}"


WORK = ("fabric", "gpus", "bytes", "bandwidth_scale", "size_scale")


def outcomes(result: Mapping[str, Any]) -> tuple[CaseOutcome, ...]:
    """Return the outcomes of all cases in a run's JSON object."""
    cases = [
        _outcome(
            case,
            name=case["case"],
            work={key: case[key] for key in WORK},
            schedule_digest=case.get("schedule_digest"),
            measured_s=case["measured_s"]["median"],
            values=case["measured_s"]["values"],
            modeled_s=case["modeled_s"],
        )
        for case in result["cases"]
    ]
    return (*cases, *map(_with_fault, result["failures"]))


def _with_fault(failure: Mapping[str, Any]) -> CaseOutcome:
    phase = next((one for one in (DEGRADED, DURING) if failure[f"{one}_s"] is not None), None)
    work = failure["work"] or {}  # of an experiment that ended early, nothing is known
    return _outcome(
        failure,
        name=f"{failure['case']}, {failure['fault']} {failure['strategy']}",
        work={**{key: work.get(key) for key in WORK}, "where": failure["where"], "phase": phase},
        schedule_digest=work.get("schedule_digest"),
        measured_s=failure[f"{phase}_s"] if phase else None,
        values=(),
        modeled_s=failure["modeled_degraded_s"],
    )


def _outcome(judged: Mapping[str, Any], **facts: Any) -> CaseOutcome:
    told = {key: judged[key] for key in ("ratio", "data_is_right", "verdict", "reasons")}
    if_any = {key: judged.get(key, ()) for key in ("notes", "doubts")}
    if judged.get("incomplete"):  # what broke off has no time
        facts |= {"incomplete": True, "measured_s": None, "values": ()}
        told["ratio"] = None
    return CaseOutcome(**facts, **told, **if_any)


@dataclass(frozen=True)
class StoredRun:
    """A complete run: its JSON object, the machine it was measured on, its scenario's keys."""

    result: Mapping[str, Any]
    machine: Mapping[str, Any]
    scenario: Mapping[str, Any]

    @property
    def cases(self) -> dict[str, CaseOutcome]:
        """Its cases, by name."""
        return {case.name: case for case in outcomes(self.result)}


class Difference(StrEnum):
    """Whether two measurements differ by more than their repeats do among themselves."""

    LARGER = "larger than the spread"
    WITHIN = "within the spread"
    UNKNOWN = "too few repeats to tell"
    OTHER_WORK = "not the same work"
    BROKEN = "an execution broke off"
    NOT_TIMED = "data checked meanwhile"


def difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Return `LARGER` if the ranges of the repeats do not overlap, else `WITHIN`.

    The ranges of n and m repeats of equal distribution are disjoint with the probability
    2 / C(n + m, n), the extreme of the rank-sum test (Wilcoxon 1945). Disjoint ranges for
    which that is more than 5 %, or no repeats, give `UNKNOWN`.
    """
    if not first or not second:
        return Difference.UNKNOWN
    if max(first) >= min(second) and max(second) >= min(first):
        return Difference.WITHIN
    chance = 2 / comb(len(first) + len(second), len(first))
    return Difference.UNKNOWN if chance > MAX_CHANCE else Difference.LARGER


def differing(first: object, second: object, key: str = "") -> Iterator[str]:
    """Yield each dotted key whose values differ, with both values; once for a part of one alone."""
    if not (isinstance(first, PARTS) and isinstance(second, PARTS)):
        if first != second:
            yield f"{key}: {_shown(first)} against {_shown(second)}"
        return
    one, other = _parts(first), _parts(second)
    for part in one | other:
        place = f"{key}.{part}" if key else str(part)
        yield from differing(one.get(part), other.get(part), place)


def _parts(node: Mapping[Any, Any] | Sequence[Any]) -> dict[Any, Any]:
    return dict(node if isinstance(node, Mapping) else enumerate(node))


def _shown(value: object) -> str:
    """Show a value as a scenario has it, or as much of it as a line holds."""
    text = "not given" if value is None else _in_flow(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} ..."


def _in_flow(value: object) -> str:
    """Write a value in YAML's flow style, without keys that have none."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{k}: {_in_flow(v)}' for k, v in value.items() if v is not None)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_in_flow, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def comparison_object(first: StoredRun, second: StoredRun) -> dict[str, Any]:
    """Return the comparison of the cases in both runs; pairs of values are (first, second)."""
    one, other = first.cases, second.cases
    alike = all(first.scenario.get(key) == second.scenario.get(key) for key in OF_STEPS)
    return {
        "schema": COMPARE_SCHEMA,
        "runs": [{key: run.result[key] for key in OF_A_RUN} for run in (first, second)],
        "warnings": list(_warnings(first, second)),
        "cases": [_case(one[name], other[name], alike) for name in one if name in other],
        "only_in_first": [name for name in one if name not in other],
        "only_in_second": [name for name in other if name not in one],
    }


def _warnings(first: StoredRun, second: StoredRun) -> Iterator[str]:
    """Yield each difference, or of many one line that names the keys, at most two levels deep."""
    for what, left_out, *both in (
        ("machines", FLEETING, first.machine, second.machine),
        ("scenarios", FOR_PEOPLE, first.scenario, second.scenario),
    ):
        one, other = ({key: of[key] for key in of if key not in left_out} for of in both)
        differences = list(differing(one, other))
        if len(differences) <= MOST_DIFFERENCES:
            yield from (f"the {what} differ in {difference}" for difference in differences)
        else:
            keys = (difference.partition(":")[0].split(".")[:2] for difference in differences)
            named = ", ".join(dict.fromkeys(map(".".join, keys)))
            yield f"the {what} are unlike: {len(differences)} values differ, in {named}"


def _case(first: CaseOutcome, second: CaseOutcome, alike: bool) -> dict[str, Any]:
    """Compare a case of two runs; if the scenarios are `alike`, so must the steps be."""
    both = (first, second)
    other_work = list(differing(first.work, second.work))
    one, other = (case.schedule_digest for case in both)
    if alike and not other_work and one and other and one != other:  # as of an edited trace
        other_work = [f"schedule_digest: {one} against {other}"]
    one_s, other_s = first.measured_s, second.measured_s
    if other_work:
        differ = Difference.OTHER_WORK
    elif any(case.incomplete for case in both):
        differ = Difference.BROKEN
    elif not all(times_count(case.data_is_right) for case in both):
        differ = Difference.NOT_TIMED
    else:
        differ = difference(first.values, second.values)
    return {
        "case": first.name,
        "difference": differ.value,
        "ratio": other_s / one_s if one_s and other_s is not None and not other_work else None,
        "other_work": other_work,
        "measured_s": [_measured(case) for case in both],
        "modeled_s": [case.modeled_s for case in both],
        "ratio_to_model": [case.ratio for case in both],
        "verdicts": [case.verdict for case in both],
        "reasons": [list(case.reasons) for case in both],
        "notes": [list(case.notes) for case in both],
        "doubts": [list(case.doubts) for case in both],
    }


def _measured(case: CaseOutcome) -> dict[str, Any]:
    low, high = (min(case.values), max(case.values)) if case.values else (None, None)
    return {"median": case.measured_s, "min": low, "max": high, "repeats": len(case.values)}


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
    sweep, points = folder.sweep, list[PointResult]()
    for point in sweep.points:
        parameters = {setting.key: setting.value for setting in point.settings}
        try:
            ended = _ended(folder, point)
        except InputError as error:
            ended = {"cause": str(error)}
        points.append(PointResult(point.number, parameters, folder.scenario(point), **ended))
    return plain(
        SweepResult(
            schema=SWEEP_SCHEMA,
            sweep=folder.name,
            scenario=sweep.scenario,
            proxies=sweep.proxies,
            clock=sweep.clock,
            verdict=worst(point.verdict for point in points),
            folder=folder.path,
            points=points,
        )
    )


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
        causes = [case.sentence for case in outcomes(result) if case.verdict == "fail"]
        if result.get("paths", {}).get("verdict") == "fail":
            causes.append("packets do not take the intended paths (paths.json)")
        return {**facts, **kept, "verdict": verdict, "cause": "\n".join(causes)}
