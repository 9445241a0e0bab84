"""Load a scenario file: read it, apply overrides, check everything, resolve.

All problems are collected and reported at once, each with its file, line and key.
"""

import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from model.errors import InputError, Problem
from model.prediction.machine import Machine
from scenarios.format.bounded_text import MOST_LEVELS, plain, value_of
from scenarios.format.checked_file import (
    FileKind,
    Source,
    parse,
    problems_of,
    read,
)
from scenarios.format.issues import Issue, Place
from scenarios.format.keys import ScenarioFile
from scenarios.format.matrix_files import insert_matrices, matrix_file_names
from scenarios.format.networks.imported import import_network
from scenarios.format.training.configuration import ENDINGS
from scenarios.format.workloads import FILE_KEYS, entries
from scenarios.resolve import resolve
from scenarios.scenario import Case, Scenario
from traffic_gen.traces.reading import files_of

SCENARIO = FileKind(
    "scenario",
    "`./railbed list` names the scenarios that come with Railbed",
    "docs/reference/scenarios.md",
)

# Longer than any line, so that the YAML writer folds none.
WHOLE_LINES = 2**20


def load(path: Path, overrides: Sequence[str] = (), machine: Machine | None = None) -> Scenario:
    """Read and check a scenario; raises `InputError` with all problems.

    `machine` has this machine's measured costs; without them, no load is refused as too high.
    """
    text = read(path, SCENARIO)
    document = parse(path, text, SCENARIO)
    source, parsed, problems, changed = _validated(path, document, overrides)
    name = _name_of(path)
    alone = _standalone_text(document, name) if changed else text
    scenario, found = resolve(parsed, name, alone, machine)
    problems += [_reported(source, issue) for issue in found]
    if problems or scenario is None:
        raise InputError(*problems)
    return replace(scenario, cases=tuple(_placed(source, case) for case in scenario.cases))


def format_check(path: Path) -> Callable[[Sequence[str]], None]:
    """Return a check of overrides that raises `InputError` for wrong keys, types or values.

    That takes a tenth of the time of `load`: the file is read once.
    """
    document = parse(path, read(path, SCENARIO), SCENARIO)

    def check(overrides: Sequence[str]) -> None:
        _validated(path, deepcopy(document), overrides)

    return check


def _validated(
    path: Path, document: CommentedMap, overrides: Sequence[str]
) -> tuple[Source, ScenarioFile, list[Problem], bool]:
    """Apply overrides to a document and check its keys and values; put files in place.

    Returns the source of the values, the values, problems of overrides and files, and whether the
    document differs from the file.
    """
    problems: list[Problem] = []
    overridden = set()
    for override in overrides:
        try:
            overridden.add(_override(document, override))
        except ValueError as error:
            problems.append(Problem(f"--set {override}", str(error)))
    imported = import_network(document, path.parent)
    changed = _locate_files(document, path) or imported or bool(overrides)
    source = Source(path, document, frozenset(overridden))
    files = matrix_file_names(document)
    bad = insert_matrices(document, path.parent, files)
    problems += [_reported(source, issue) for issue in bad]
    try:
        parsed = ScenarioFile.model_validate(plain(document))
    except ValidationError as error:
        known = {problem.where for problem in problems}
        wrong = problems_of(source, error, ScenarioFile)
        problems += [problem for problem in wrong if problem.where not in known]
        raise InputError(*problems) from error
    return source, parsed, problems, changed or bool(files)


def _placed(source: Source, case: Case) -> Case:
    """Add its workload's place in the file to a case, for messages."""
    return replace(case, where=source.where(("workloads", case.workload)))


def _reported(source: Source, issue: Issue) -> Problem:
    return Problem(source.where(issue.place), issue.what, issue.hint)


def _name_of(path: Path) -> str:
    """Scenario name from a file's name; runs and containers are named after it."""
    return re.sub(r"[^a-z0-9]+", "-", path.stem.lower())[:40].strip("-") or "scenario"


def _standalone_text(document: CommentedMap, name: str) -> str:
    """YAML text of the document with its overrides and name, so it stands alone; keeps comments."""
    if document.get("name") is None:
        document["name"] = name
    yaml = YAML(typ="rt")
    yaml.width = WHOLE_LINES
    text = StringIO()
    yaml.dump(document, text)
    return text.getvalue()


def _locate_files(document: CommentedMap, path: Path) -> bool:
    """Write whole paths of traces and configurations, which are relative to the scenario's file.

    A run's copy of the scenario is elsewhere. Return whether there are any such paths.
    """
    found = _naming_files(document)
    for entry, key in found:
        entry[key] = str(path.parent.absolute() / entry[key])
    return bool(found)


def _naming_files(document: CommentedMap) -> list[tuple[CommentedMap, str]]:
    """Return the entries that name a trace or a configuration in a file, each with its key."""
    return [
        (entry, key)
        for _, entry in entries(document)
        for key in FILE_KEYS
        if isinstance(entry.get(key), str)
        if key == "trace" or Path(entry[key]).suffix in ENDINGS
    ]


def with_files_in(folder: Path, scenario: Scenario) -> tuple[str, dict[Path, Path]]:
    """Return a scenario's text with its traces and configurations in a folder of another machine.

    Also return the files of this machine by their paths there. Files of equal names get different
    paths.
    """
    document, files = parse(Path(scenario.name), scenario.text, SCENARIO), dict[Path, Path]()
    for number, (entry, key) in enumerate(_naming_files(document)):
        path, there = Path(entry[key]), folder / str(number)
        for file in files_of(path) if key == "trace" else [path]:
            files[there / file.relative_to(path.parent)] = file
        entry[key] = str(there / path.name)
    return _standalone_text(document, scenario.name) if files else scenario.text, files


def _override(document: CommentedMap, override: str) -> Place:
    """Apply `key.key=value`; return the place of the value, or of the topmost key it created."""
    keys, equals, value = override.partition("=")
    if not equals or not keys:
        raise ValueError("must be key=value, such as fabric.domains=8")
    parts = keys.split(".")
    if len(parts) > MOST_LEVELS:
        raise ValueError(f"has {len(parts)} keys, one in the other, of at most {MOST_LEVELS}")
    place = tuple(int(key) if key.isdecimal() else key for key in parts)
    node: Any = document
    made = len(place)
    for depth, part in enumerate(place[:-1], start=1):
        if isinstance(node, dict) and part not in node:
            made = min(made, depth)
        node = _child(node, part)
    if isinstance(node, list) and place[-1] not in range(len(node)):
        raise ValueError(_no_entry(node, place[-1]))
    try:
        node[place[-1]] = value_of(value)
    except TypeError:
        raise ValueError(f"{keys!r} leads into a plain value") from None
    return place[:made]


def _no_entry(node: list[Any], part: str | int) -> str:
    entries = "1 entry, number 0" if len(node) == 1 else f"{len(node)} entries, numbered from 0"
    return f"the list has {entries}, got {part}"


def _child(node: Any, part: str | int) -> Any:
    """Child of a node; a missing key is created, a missing list entry is a `ValueError`."""
    if isinstance(node, dict):
        return node.setdefault(part, CommentedMap())
    if isinstance(node, list):
        if part in range(len(node)):
            return node[int(part)]
        raise ValueError(_no_entry(node, part))
    raise ValueError(f"{part!r} is not in the scenario")
