"""Load a scenario file: read it, apply overrides, check everything, resolve.

All problems are collected and reported at once, each with its file, line and key.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError

from model.errors import InputError, Problem
from model.prediction.machine import Machine
from scenarios.planning.resolver import resolve
from scenarios.spec.issues import Issue, Place
from scenarios.spec.messages import nearest_key, wording
from scenarios.spec.old_keys import current, rename_old_keys
from scenarios.spec.scenario import Case, Scenario
from scenarios.spec.schema import ScenarioFile

# Errors of reading YAML. ruamel.yaml lets Python's own through where a value does not fit its tag
# or form (`2001-99-99`, `!!bool x`), and where lists are nested by the thousand.
UNREADABLE = (
    YAMLError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)

# Longer than any line, so that the YAML writer folds none.
WHOLE_LINES = 2**20


@dataclass(frozen=True)
class Source:
    """Where the values of a scenario come from: the file's lines, or `--set`."""

    path: Path
    document: Any
    overridden: frozenset[Place]

    def where(self, place: Place) -> str:
        """File, line and key of a value (its parent's line if missing), or `--set` and key."""
        key = ".".join(str(part) for part in place)
        if any(place[: len(part)] == part for part in self.overridden):
            return f"--set {key}"
        return f"{self.path}:{self._line(place)} {key}".rstrip()

    def _line(self, place: Place) -> int:
        """The line of a key, from 1."""
        node, line = self.document, 1
        for part in place:
            if not isinstance(node, CommentedMap | CommentedSeq):
                break
            try:
                line = node.lc.data[part][0] + 1
                node = node[part]
            except (KeyError, IndexError, TypeError):
                break
        return line


def load(path: Path, overrides: Sequence[str] = (), machine: Machine | None = None) -> Scenario:
    """Read and check a scenario; raises `InputError` with all problems.

    `machine` has this machine's measured costs; without them, no load is refused as too high.
    """
    text = _read(path)
    document = _parse(path, text)
    twice = list(rename_old_keys(document))
    problems: list[Problem] = []
    overridden = set()
    for override in overrides:
        try:
            overridden.add(_override(document, override))
        except ValueError as error:
            problems.append(Problem(f"--set {override}", str(error)))
    source = Source(path, document, frozenset(overridden))
    problems += [_reported(source, issue) for issue in twice]
    try:
        parsed = ScenarioFile.model_validate(_plain(document))
    except ValidationError as error:
        problems += [_problem(source, details) for details in _one_a_place(error)]
        raise InputError(*problems) from error
    name = _name_of(path)
    alone = _alone(document, name) if overrides else text
    scenario, found = resolve(parsed, name, alone, machine)
    problems += [_reported(source, issue) for issue in found]
    if problems or scenario is None:
        raise InputError(*problems)
    return replace(scenario, cases=tuple(_placed(source, case) for case in scenario.cases))


def _placed(source: Source, case: Case) -> Case:
    """Add to a case where its workload is, for messages."""
    return replace(case, where=source.where(("workloads", case.workload)))


def _reported(source: Source, issue: Issue) -> Problem:
    return Problem(source.where(issue.place), issue.what, issue.hint)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        hint = "`./railbed list` names the scenarios that come with Railbed"
        raise InputError(Problem(str(path), "no such file", hint)) from None
    except IsADirectoryError:
        raise InputError(Problem(str(path), "is a folder, not a scenario file")) from None
    except UnicodeDecodeError as error:
        raise InputError(Problem(str(path), f"is not UTF-8 text: {error.reason}")) from None
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be read: {error.strerror}")) from None


def _name_of(path: Path) -> str:
    """Scenario name from a file's name; runs and containers are named for it."""
    return re.sub(r"[^a-z0-9]+", "-", path.stem.lower())[:40].strip("-") or "scenario"


def _alone(document: CommentedMap, name: str) -> str:
    """YAML text of the document with its overrides and name, so it stands alone; keeps comments."""
    if document.get("name") is None:
        document["name"] = name
    yaml = YAML(typ="rt")
    yaml.width = WHOLE_LINES
    text = StringIO()
    yaml.dump(document, text)
    return text.getvalue()


def _parse(path: Path, text: str) -> CommentedMap:
    yaml = YAML(typ="rt")
    try:
        document = yaml.load(text)
    except DuplicateKeyError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        what = str(error.problem).split(" with value")[0].replace("found duplicate", "duplicate")
        raise InputError(Problem(f"{path}:{line}", what, "each key once")) from None
    except UNREADABLE as error:
        where = f"{path}{_line_of(error, text)}"
        raise InputError(Problem(where, f"is not YAML: {_reason(error)}")) from None
    if not isinstance(document, CommentedMap):
        found = "nothing" if document is None else type(document).__name__
        what = f"must be a mapping with the keys of a scenario, got {found}"
        raise InputError(Problem(f"{path}:1", what, "see docs/reference/scenarios.md"))
    return document


def _line_of(error: Exception, text: str) -> str:
    """Return `:LINE` of a YAML error; empty if the error has no position."""
    if isinstance(error, MarkedYAMLError) and error.problem_mark:
        return f":{error.problem_mark.line + 1}"
    if isinstance(error, ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return f":{line}"
    return ""


def _reason(error: Exception) -> str:
    """Why a text is not YAML, on one line."""
    match error:
        case ReaderError():
            return f"the character U+{error.character:04X} is not allowed"
        case MarkedYAMLError():
            return str(error.problem)
        case RecursionError():
            return "it is nested too deeply"
        case ValueError():
            return str(error).partition(";")[0]
        case _:
            return "a value does not fit its tag or is out of range"


def _override(document: CommentedMap, override: str) -> Place:
    """Apply `key.key=value`; return the place of the value, or of the topmost key it created."""
    keys, equals, value = override.partition("=")
    if not equals or not keys:
        raise ValueError("must be key=value, such as fabric.domains=8")
    place = current(tuple(int(key) if key.isdecimal() else key for key in keys.split(".")))
    node: Any = document
    made = len(place)
    for depth, part in enumerate(place[:-1], start=1):
        if isinstance(node, dict) and part not in node:
            made = min(made, depth)
        node = _child(node, part)
    if isinstance(node, list) and place[-1] not in range(len(node)):
        raise ValueError(f"the list has {len(node)} entries, numbered from 0")
    try:
        node[place[-1]] = value_of(value)
    except TypeError:
        raise ValueError(f"{keys!r} leads into a plain value") from None
    return place[:made]


def value_of(text: str) -> Any:
    """Parse the value of an override as YAML; raises `ValueError` with a message."""
    try:
        return _plain(YAML(typ="safe").load(text))
    except UNREADABLE as error:
        raise ValueError(not_yaml("the value", error)) from None


def not_yaml(what: str, error: Exception) -> str:
    """Message for a text that ruamel.yaml cannot read; `what` names the text."""
    return f"{what} is not YAML: {_reason(error)}"


def _child(node: Any, part: str | int) -> Any:
    """Child of a node; a missing key is created, a missing list entry is a `ValueError`."""
    if isinstance(node, dict):
        return node.setdefault(part, CommentedMap())
    if isinstance(node, list) and isinstance(part, int) and part < len(node):
        return node[part]
    raise ValueError(f"{part!r} is not in the scenario")


def _plain(node: Any) -> Any:
    """Convert a node to plain dictionaries and lists, without ruamel.yaml's types."""
    if isinstance(node, dict):
        return {key: _plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(value) for value in node]
    return node


def _one_a_place(error: ValidationError) -> list[Any]:
    """Return one error per place: the last, where a value fits no type of a union.

    Drops `too_short` of a list that only has wrong entries, which have errors of their own, and
    `literal_error` of a number, which has another error.
    """
    errors = (e for e in error.errors() if not (e["type"] == "too_short" and e["input"]))
    found: dict[Place, Any] = {}
    for details in errors:
        if details["type"] != "literal_error" or not _is_number(details["input"]):
            found[_place(details)] = details
    return list(found.values())


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _place(details: Any) -> Place:
    """Keys of an error's location, without the union branches that pydantic adds."""
    if details["type"] == "extra_forbidden":
        return tuple(details["loc"])
    return tuple(part for part in details["loc"] if isinstance(part, int) or part.isidentifier())


def _problem(source: Source, details: Any) -> Problem:
    place = _place(details)
    if details["type"] == "extra_forbidden":
        what, hint = f"unknown key {place[-1]!r}", nearest_key(place)
    else:
        what, hint = wording(details), ""
    return Problem(source.where(place), what, hint)
