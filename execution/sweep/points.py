"""Build the points of a sweep from lists of values; all are checked before any is run."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from math import inf
from pathlib import Path
from typing import TypeVar

from execution.sweep.axes import axes
from linux.files.user_files import digest_of
from model.errors import InputError, Problem
from model.sweep import REAL, Point, Setting, Sweep
from scenarios.load import format_check, load
from scenarios.scenario import Scenario
from scenarios.standalone import with_files_in

NAMED_POINTS = 10
# From this many points on, the first wrong one ends the check: 1000 points take seconds.
REFUSED_POINTS = 100

Result = TypeVar("Result")
Check = Callable[[Scenario], None]
"""Refuses a scenario with an `InputError`, or a machine with a `NotReady`."""


def anything_elsewhere(_scenario: Scenario) -> None:
    """Refuse nothing: other machines may have another kernel than this one."""


def planned(
    path: Path,
    over: Sequence[str],
    overrides: Sequence[str],
    proxies: str,
    check: Check,
    clock: str = REAL,
) -> Sweep:
    """The sweep of a scenario file; raises `InputError` with the problems of all points."""
    combinations = product(*axes(over, overrides))
    points = [Point(number, chosen, "") for number, chosen in enumerate(combinations, 1)]

    def settings(point: Point) -> list[str]:
        return [*overrides, *map(str, point.settings)]

    def read(point: Point) -> Scenario:
        return load(path, settings(point))

    check_format = format_check(path)
    _of_all(points, lambda point: check_format(settings(point)))
    scenarios = _checked(points, read, check)
    whole = (
        replace(point, text=scenario.text, files=files_of_scenario(scenario))
        for point, scenario in zip(points, scenarios, strict=True)
    )
    return Sweep(scenarios[0].name, proxies, tuple(whole), clock)


def check_again(points: Sequence[Point], file_of: Callable[[Point], Path], check: Check) -> None:
    """Check stored points again: Railbed may have changed since the sweep began.

    So may the traces and configurations that they name: new measurements would not fit the old.
    """

    def read(point: Point) -> Scenario:
        scenario = load(file_of(point))
        if files_of_scenario(scenario) != point.files:
            what = "names a trace or a configuration that has changed since the sweep began"
            raise InputError(Problem(str(file_of(point)), what, "begin another sweep"))
        return scenario

    _checked(points, read, check)


def files_of_scenario(scenario: Scenario) -> str:
    """A digest of the traces and configurations that a scenario names."""
    return digest_of(with_files_in(Path("/"), scenario)[1])


def _checked(
    points: Sequence[Point], read: Callable[[Point], Scenario], check: Check
) -> list[Scenario]:
    """Return the scenarios of all points; raise `InputError` with the problems of all points."""

    def checked(point: Point) -> Scenario:
        scenario = read(point)
        check(scenario)
        return scenario

    return _of_all(points, checked)


def _of_all(points: Sequence[Point], of: Callable[[Point], Result]) -> list[Result]:
    """Return the results of all points; raise `InputError` with the problems of all points.

    Of many points, those behind the first wrong one are not checked.
    """
    results: dict[int, Result] = {}
    found: dict[Problem, list[Point]] = {}
    for looked_at, point in enumerate(_values_first(points), 1):
        try:
            results[point.number] = of(point)
        except InputError as error:
            for problem in error.problems:
                found.setdefault(problem, []).append(point)
        if found and looked_at >= REFUSED_POINTS:
            break
    if found:
        raise InputError(*(_named(*entry, looked_at) for entry in found.items()))
    return [results[point.number] for point in points]


def _values_first(points: Sequence[Point]) -> list[Point]:
    """Order points: first those in which a value is new, as most mistakes are single values.

    Of these, first the first values of all keys: a long list of values delays no short one.
    """
    known: defaultdict[str, set[Setting]] = defaultdict(set)
    order: dict[int, float] = {}
    for point in points:
        new = [one for one in point.settings if one not in known[one.key]]
        order[point.number] = max((len(known[one.key]) for one in new), default=inf)
        for one in new:
            known[one.key].add(one)
    return sorted(points, key=lambda point: order[point.number])


def _named(problem: Problem, having: Sequence[Point], of: int) -> Problem:
    """Add the affected points to a problem, unless all points have it."""
    if len(having) == of > 1:
        return problem
    points = sorted(having, key=lambda point: point.number)
    others = ", ".join(str(point.number) for point in points[1 : NAMED_POINTS + 1])
    more = f" and {len(points) - 1 - NAMED_POINTS} more" if len(points) > NAMED_POINTS + 1 else ""
    also = f", also {others}{more}" if others else ""
    return replace(problem, where=f"{points[0]}{also}: {problem.where}")
