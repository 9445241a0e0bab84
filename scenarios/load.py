"""Load a scenario file: its text, its checked keys, the resolved scenario.

All problems are collected and reported at once, each with its file, line and key.
"""

import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

from model.errors import InputError
from model.prediction.machine import Machine
from scenarios.format.checked_file import checked
from scenarios.format.document import override, read
from scenarios.format.keys import SCENARIO, ScenarioFile
from scenarios.resolve import resolve
from scenarios.scenario import Scenario
from scenarios.standalone import standalone_text


def load(path: Path, overrides: Sequence[str] = (), machine: Machine | None = None) -> Scenario:
    """Read and check a scenario; raises `InputError` with all problems.

    `machine` has this machine's measured costs; without them, no load is refused as too high.
    """
    document, problems = override(read(path, SCENARIO), overrides)
    file, name = checked(document, ScenarioFile, problems), _name_of(path)
    text = standalone_text(document, file, name)
    scenario, issues = resolve(file, name, text, machine)
    problems += map(document.problem, issues)
    if problems or scenario is None:
        raise InputError(*problems)
    where = (document.where(("workloads", case.workload)) for case in scenario.cases)
    cases = (replace(case, where=place) for case, place in zip(scenario.cases, where, strict=True))
    return replace(scenario, cases=tuple(cases))


def format_check(path: Path) -> Callable[[Sequence[str]], None]:
    """Return a check of overrides that raises `InputError` for wrong keys, types or values.

    That takes a tenth of the time of `load`: the file is read once.
    """
    document = read(path, SCENARIO)

    def check(overrides: Sequence[str]) -> None:
        overridden, problems = override(deepcopy(document), overrides)
        checked(overridden, ScenarioFile, problems)

    return check


def _name_of(path: Path) -> str:
    """Scenario name from a file's name; runs and containers are named after it."""
    return re.sub(r"[^a-z0-9]+", "-", path.stem.lower())[:40].strip("-") or "scenario"
