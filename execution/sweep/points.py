"""Build the points of a sweep from `--over KEY=V1,V2,...`; all are checked before any is run."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, product
from math import inf, prod
from pathlib import Path
from typing import TypeVar

from linux.files.user_files import digest_of
from model.errors import InputError, Problem
from model.prediction.machine import Machine
from model.sweep import REAL, VIRTUAL, Point, Setting, Sweep
from results.store.sweeps import SweepFolder, begin_sweep, find_sweep
from scenarios.format import document
from scenarios.load import format_check, load, with_files_in
from scenarios.scenario import Scenario
from traffic_gen.workloads.algorithms.collectives import PLUGINS

# 60 short points take an hour: more points than this are a typing error, and take days.
MAX_POINTS = 1000
NAMED_POINTS = 10
# From this many points on, the first wrong one ends the check: 1000 points take seconds.
REFUSED_POINTS = 100
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")

Axis = tuple[Setting, ...]
Result = TypeVar("Result")
Check = Callable[[Scenario], None]
"""Refuses a scenario with an `InputError`, or a machine with a `NotReady`."""


def axes(over: Sequence[str], overrides: Sequence[str]) -> tuple[Axis, ...]:
    """The settings of every key; raises `InputError` with all problems."""
    if not over:
        what = "needs at least one key with its values"
        raise InputError(Problem("--over", what, "such as --over fabric.domains=2,4,8"))
    parsed: list[Axis] = []
    problems: list[Problem] = []
    for option in over:
        try:
            parsed.append(axis(option))
        except ValueError as error:
            problems.append(Problem(f"--over {option}", str(error)))
    problems += _overlapping_keys(parsed, overrides)
    points = prod(map(len, parsed))
    if points > MAX_POINTS:
        shape = " x ".join(str(len(settings)) for settings in parsed)
        what = f"must make at most {MAX_POINTS} points, got {points} ({shape} values)"
        problems.append(Problem("--over", what, "sweep fewer values, or one part at a time"))
    if problems:
        raise InputError(*problems)
    return tuple(parsed)


def axis(option: str) -> Axis:
    """The settings that one `--over` lists; raises `ValueError` with a message.

    The list is a YAML list without its brackets, so a value can be anything that `--set` takes.
    """
    key, equals, listed = option.partition("=")
    if not equals or not key:
        raise ValueError("must be key=value,value,... such as fabric.domains=2,4,8")
    texts = _texts(listed)
    if not texts:
        raise ValueError("needs values after the =, separated by commas")
    return tuple(Setting(key, text, document.value_of(text)) for text in texts)


def _texts(listed: str) -> list[str]:
    """Split a list into its values, as written; raises `ValueError` for a comment, or no YAML."""
    text = f"[{listed}\n]"
    document.refuse_comments(text)
    try:
        node = document.parser("safe").compose(text)
    except document.UNREADABLE as error:
        hint = "quote a value that has a comma or a bracket in it"
        raise ValueError(f"the list of values {document.unreadable(error)} ({hint})") from None
    return [text[value.start_mark.index : value.end_mark.index] for value in node.value]


def _overlapping_keys(parsed: Sequence[Axis], overrides: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for each key whose value another option would replace.

    `--set` comes first: what `--over` changes may be in its value.
    """
    over = [("--over", settings[0].key) for settings in parsed]
    fixed = [("--set", override.partition("=")[0]) for override in overrides]
    beside = chain(combinations(over, 2), product(over, fixed))
    for (option, key), (other, key_beside) in beside:
        place, place_beside = document.place_of(key), document.place_of(key_beside)
        is_inside = other == "--set" and len(place) > len(place_beside)
        if document.overlap(place, place_beside) and not is_inside:
            what = f"cannot be combined with {option} {key}"
            yield Problem(f"{other} {key_beside}", what, "leave one out")


def planned(
    path: Path,
    over: Sequence[str],
    overrides: Sequence[str],
    proxies: str,
    check: Check,
    clock: str = REAL,
    machine: Machine | None = None,
) -> Sweep:
    """The sweep of a scenario file; raises `InputError` with the problems of all points.

    `machine` has the measured costs of the one that is to execute them, if they are known.
    """
    chosen = product(*axes(over, overrides))
    points = [Point(number, settings, "") for number, settings in enumerate(chosen, 1)]

    def changes(point: Point) -> list[str]:
        return [*overrides, *map(str, point.settings)]

    def checked(point: Point) -> Scenario:
        scenario = load(path, changes(point), machine)
        check(scenario)
        return scenario

    check_format = format_check(path)
    values = _of_all(points, lambda point: check_format(changes(point)))
    first = dict(zip(reversed(values), reversed(points), strict=True))
    repeated = dict[frozenset[Setting], Problem]()
    for point, other in zip(points, map(first.__getitem__, values), strict=True):
        if point != other:
            # A value given twice repeats many points: the first of them tells it.
            apart = frozenset({*point.settings} ^ {*other.settings})
            what = f"{point} is the same as {other}"
            repeated.setdefault(apart, Problem("--over", what, "leave one out"))
    if repeated:
        raise InputError(*repeated.values())
    scenarios = _of_all(points, checked)
    whole = (
        replace(point, text=scenario.text, files=files_of_scenario(scenario))
        for point, scenario in zip(points, scenarios, strict=True)
    )
    return Sweep(scenarios[0].name, proxies, tuple(whole), clock)


def check_again(
    points: Sequence[Point],
    file_of: Callable[[Point], Path],
    check: Check,
    machine: Machine | None = None,
) -> None:
    """Check stored points again: Railbed may have changed since the sweep began.

    So may the files that they name, and plugins: new measurements would not fit the old.
    """
    _of_all(points, lambda point: check(stored_scenario(file_of(point), point, machine)))


def stored_scenario(file: Path, point: Point, machine: Machine | None = None) -> Scenario:
    """The scenario of a stored point; raises `InputError` if it or its files have changed."""
    scenario = load(file, (), machine)
    if (scenario.text, files_of_scenario(scenario)) != (point.text, point.files):
        what = "it, a file that it names, or a plugin has changed since the sweep began"
        raise InputError(Problem(str(file), what, "start another sweep"))
    return scenario


def files_of_scenario(scenario: Scenario) -> str:
    """A digest of the traces and configurations that a scenario names, and of its plugins."""
    named = {named for case in scenario.cases for named in case.task.collectives}
    plugins = {Path(*one): PLUGINS[one] for one in named & PLUGINS.keys()}
    try:
        return digest_of({**with_files_in(Path("/"), scenario)[1], **plugins})
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise InputError(Problem(str(error.filename), what)) from None


def _of_all(points: Sequence[Point], of: Callable[[Point], Result]) -> list[Result]:
    """Return the results of all points; raise `InputError` with the problems of all points.

    Of many points, those behind the first wrong one are not checked.
    """
    results: dict[int, Result] = {}
    affected: dict[Problem, list[Point]] = {}
    for looked_at, point in enumerate(_values_first(points), 1):
        try:
            results[point.number] = of(point)
        except InputError as error:
            for problem in error.problems:
                affected.setdefault(problem, []).append(point)
        if affected and looked_at >= REFUSED_POINTS:
            break
    if affected:
        raise InputError(*(_named(*entry, looked_at) for entry in affected.items()))
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
    """Add the affected points to a problem, unless all points have it; name the sweep's option."""
    option, _, key = problem.where.partition("=")[0].partition(" ")
    places = (document.place_of(setting.key) for setting in having[0].settings)
    if option == "--set" and any(
        document.overlap(document.place_of(key), place) for place in places
    ):
        problem = replace(problem, where=problem.where.replace("--set", "--over", 1))
    if len(having) == of > 1:
        return problem
    points = sorted(having, key=lambda point: point.number)
    others = ", ".join(str(point.number) for point in points[1 : NAMED_POINTS + 1])
    more = f" and {len(points) - 1 - NAMED_POINTS} more" if len(points) > NAMED_POINTS + 1 else ""
    also = f", also {others}{more}" if others else ""
    return replace(problem, where=f"{points[0]}{also}: {problem.where}")


@dataclass(frozen=True)
class SweepRequest:
    """Arguments of the command; None or empty if not given."""

    scenario: Path | None
    over: tuple[str, ...]
    overrides: tuple[str, ...]
    proxies: str | None
    name: str | None
    resume: str | None
    clock: str | None = None

    def folder(
        self,
        store: Path,
        check_by: Callable[[str], Check],
        require: Callable[[], None] = lambda: None,
        machine_by: Callable[[str], Machine | None] = lambda _: None,
    ) -> SweepFolder:
        """Return the sweep's folder, all points checked; raises `InputError` with all problems.

        `check_by` returns the check of points that are executed by a clock, `machine_by` the
        measured costs of the machine; `None` of other machines than this one. `require` refuses a
        new sweep, before it has a folder.
        """
        problems = tuple(self._problems())
        if problems:
            raise InputError(*problems)
        if self.scenario is None:
            folder = find_sweep(store, self.resume or "latest")
            clock = folder.sweep.clock
            check_again(folder.sweep.points, folder.scenario, check_by(clock), machine_by(clock))
            return folder
        clock = self.clock or REAL
        proxies = self.proxies or ("process" if clock == VIRTUAL else "container")
        check, machine = check_by(clock), machine_by(clock)
        sweep = planned(self.scenario, self.over, self.overrides, proxies, check, clock, machine)
        return begin_sweep(store, self.name or sweep.name, sweep, require)

    def _problems(self) -> Iterator[Problem]:
        if self.scenario is None and self.resume is None:
            what = "needs a scenario, or --resume NAME"
            yield Problem("sweep", what, "see docs/guides/sweeps.md")
        given = {
            "SCENARIO": self.scenario,
            "--over": self.over,
            "--set": self.overrides,
            "--proxies": self.proxies,
            "--clock": self.clock,
            "--name": self.name,
        }
        beside = [option for option, value in given.items() if value]
        if self.resume is not None and beside:
            what = f"cannot be combined with {', '.join(beside)}"
            yield Problem("--resume", what, "a resumed sweep keeps its settings")
        if self.name is not None and (self.name == "latest" or not NAME.fullmatch(self.name)):
            what = f"must be up to 80 letters, digits, '-', '_' and '.', got {self.name!r}"
            yield Problem("--name", what, "'latest' is reserved for the newest sweep")
