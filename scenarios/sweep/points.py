"""Build the points of a sweep from lists of values; all are checked before any is run."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from linux.files import digest_of
from model.errors import InputError, Problem
from model.sweep import REAL, Point, Sweep
from scenarios.loader import load, with_files_in
from scenarios.spec.scenario import Scenario
from scenarios.sweep.axes import axes

NAMED_POINTS = 10
# After this many wrong points, the others are not checked: 1000 take seconds.
REFUSED_POINTS = 100

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

    def read(point: Point) -> Scenario:
        return load(path, [*overrides, *map(str, point.settings)])

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
    """Return the scenarios of all points; raise `InputError` with the problems of all points.

    If many points are wrong, only the first ones are reported.
    """
    scenarios: list[Scenario] = []
    found: dict[Problem, list[Point]] = {}
    refused: list[Point] = []
    for point in points:
        try:
            scenario = read(point)
            check(scenario)
            scenarios.append(scenario)
        except InputError as error:
            refused.append(point)
            for problem in error.problems:
                found.setdefault(problem, []).append(point)
        if len(refused) == REFUSED_POINTS:
            break
    if found:
        checked = len(scenarios) + len(refused)
        raise InputError(*(_named(*entry, checked) for entry in found.items()))
    return scenarios


def _named(problem: Problem, points: Sequence[Point], of: int) -> Problem:
    """Add the affected points to a problem, unless all points have it."""
    if len(points) == of > 1:
        return problem
    others = ", ".join(str(point.number) for point in points[1 : NAMED_POINTS + 1])
    more = f" and {len(points) - 1 - NAMED_POINTS} more" if len(points) > NAMED_POINTS + 1 else ""
    also = f", also {others}{more}" if others else ""
    return replace(problem, where=f"{points[0]}{also}: {problem.where}")
