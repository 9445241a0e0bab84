"""Two runs side by side, case by case: the schema `railbed.compare/1`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import comb
from typing import Any

from results.verdicts.case_outcome import CaseOutcome, outcomes

SCHEMA = "railbed.compare/1"
# Disjoint ranges that occur by chance more often than this show no difference.
MAX_CHANCE = 0.05
# Keys that differ between any two runs, even on the same machine.
FLEETING = ("load_average",)
FOR_PEOPLE = ("name", "description")
# More than these make one line.
MOST_DIFFERENCES = 8
OF_A_RUN = ("run_id", "scenario", "verdict", "folder")


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


def differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[str]:
    """Yield each key whose values differ, with both values."""
    one, other = dict(_leaves(first)), dict(_leaves(second))
    for key in dict.fromkeys([*one, *other]):
        values = [leaves.get(key, "not there") for leaves in (one, other)]
        if values[0] != values[1]:
            yield f"{key}: {values[0]} against {values[1]}"


def _leaves(node: object, key: str = "") -> Iterator[tuple[str, object]]:
    """Yield every leaf value with its dotted key."""
    if isinstance(node, Mapping):
        for part, value in node.items():
            yield from _leaves(value, f"{key}.{part}" if key else str(part))
    elif isinstance(node, list | tuple):
        for number, value in enumerate(node):
            yield from _leaves(value, f"{key}.{number}")
    else:
        yield key, node


def comparison_object(first: StoredRun, second: StoredRun) -> dict[str, Any]:
    """Return the comparison of the cases in both runs; pairs of values are (first, second)."""
    one, other = first.cases, second.cases
    return {
        "schema": SCHEMA,
        "runs": [{key: run.result[key] for key in OF_A_RUN} for run in (first, second)],
        "warnings": list(_warnings(first, second)),
        "cases": [_case(one[name], other[name]) for name in one if name in other],
        "only_in_first": [name for name in one if name not in other],
        "only_in_second": [name for name in other if name not in one],
    }


def _warnings(first: StoredRun, second: StoredRun) -> Iterator[str]:
    machines = (_without(run.machine, FLEETING) for run in (first, second))
    yield from _told("machines", list(differing(*machines)))
    scenarios = (_without(run.scenario, FOR_PEOPLE) for run in (first, second))
    yield from _told("scenarios", list(differing(*scenarios)))


def _told(what: str, differences: Sequence[str]) -> Iterator[str]:
    """Yield each difference, or of many one line that names the keys, at most two levels deep."""
    if len(differences) <= MOST_DIFFERENCES:
        yield from (f"the {what} differ in {difference}" for difference in differences)
        return
    keys = (difference.partition(":")[0].split(".")[:2] for difference in differences)
    named = ", ".join(dict.fromkeys(map(".".join, keys)))
    yield f"the {what} are unlike: {len(differences)} values differ, in {named}"


def _without(node: Mapping[str, Any], keys: Sequence[str]) -> Mapping[str, Any]:
    return {key: value for key, value in node.items() if key not in keys}


def _case(first: CaseOutcome, second: CaseOutcome) -> dict[str, Any]:
    both = (first, second)
    other_work = list(differing(first.work, second.work))
    one_s, other_s = first.measured_s, second.measured_s
    differ = Difference.OTHER_WORK if other_work else difference(first.values, second.values)
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
