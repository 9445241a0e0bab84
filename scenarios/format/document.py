"""A YAML file with checked keys: its values with their lines, some of them overridden."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError

from linux.files.user_files import Unreadable, read_text
from model.errors import InputError, Problem
from scenarios.format.bounded_text import (
    MOST_LEVELS,
    UNREADABLE,
    line_of,
    parser,
    unreadable,
    value_of,
)
from scenarios.format.issues import Issue, Place

# Largest file: the largest scenario of the library has 2 kB, and this takes about a second.
MOST_BYTES = 2**18


@dataclass(frozen=True)
class FileKind:
    """The kind of a file, for messages: its name, a hint if there is no such file, its page."""

    name: str
    missing_hint: str
    page: str


@dataclass(frozen=True)
class Document:
    """The values of a file with their lines; those at the places `overridden` are from `--set`."""

    path: Path
    text: str
    values: CommentedMap
    overridden: frozenset[Place] = frozenset()

    def problem(self, issue: Issue) -> Problem:
        """Return an issue as a problem at its place."""
        return Problem(self.where(issue.place), issue.what, issue.hint)

    def where(self, place: Place) -> str:
        """File, line and key of a value (its parent's line if missing), or `--set` and key."""
        key = ".".join(str(part) for part in place)
        if any(place[: len(part)] == part for part in self.overridden):
            return f"--set {key}"
        return f"{self.path}:{self._line(place)} {key}".rstrip()

    def _line(self, place: Place) -> int:
        """The line of a key, from 1."""
        node, line = self.values, 1
        for part in place:
            if not isinstance(node, CommentedMap | CommentedSeq):
                break
            try:
                line = node.lc.data[part][0] + 1
                node = node[part]
            except (KeyError, IndexError, TypeError):
                break
        return line


def read(path: Path, kind: FileKind) -> Document:
    """The mapping in a file; raises `InputError` for any other file."""
    try:
        return parse(path, read_text(path, MOST_BYTES), kind)
    except Unreadable as error:
        hint = "" if os.path.lexists(path) else kind.missing_hint
        raise InputError(Problem(str(path), str(error), hint)) from None


def parse(path: Path, text: str, kind: FileKind) -> Document:
    """The mapping of a YAML text; raises `InputError` for any other text."""
    try:
        values = parser("rt").load(text)
    except DuplicateKeyError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        what = str(error.problem).split(" with value")[0].replace("found duplicate", "duplicate")
        raise InputError(Problem(f"{path}:{line}", what, "each key once")) from None
    except UNREADABLE as error:
        raise InputError(Problem(f"{path}{line_of(error, text)}", unreadable(error))) from None
    if not isinstance(values, CommentedMap):
        what = f"must be a mapping with the keys of a {kind.name}, got {_kind_of(values)}"
        raise InputError(Problem(f"{path}:1", what, f"see {kind.page}"))
    return Document(path, text, values)


def _kind_of(values: object) -> str:
    """Name the kind of a YAML text that is not a mapping."""
    if values is None:
        return "nothing"
    return "a list" if isinstance(values, list) else "a single value"


def override(document: Document, overrides: Sequence[str]) -> tuple[Document, list[Problem]]:
    """Set values of a document (`key.key=value`); return it, and the problems of wrong ones."""
    overridden: list[Place] = []
    problems: list[Problem] = []
    for text in overrides:
        try:
            overridden.append(_override(document.values, text))
        except ValueError as error:
            problems.append(Problem(f"--set {text}", str(error)))
    return replace(document, overridden=frozenset(overridden)), problems


def _override(values: CommentedMap, text: str) -> Place:
    """Apply `key.key=value`; return the place of the value, or of the topmost key it created."""
    keys, equals, value = text.partition("=")
    if not equals or not keys:
        raise ValueError("must be key=value, such as fabric.domains=8")
    place = tuple(int(key) if key.isdecimal() else key for key in keys.split("."))
    if len(place) > MOST_LEVELS:
        raise ValueError(f"must have at most {MOST_LEVELS} nested keys, got {len(place)}")
    node: Any = values
    made = len(place)
    for depth, part in enumerate(place[:-1], start=1):
        _require_possible(node, place[:depth])
        if isinstance(node, dict) and part not in node:
            made = min(made, depth)
            node[part] = CommentedMap()
        node = node[part]
    _require_possible(node, place)
    node[place[-1]] = value_of(value)
    return place[:made]


def _require_possible(node: Any, place: Place) -> None:
    """Raise `ValueError` unless a node may have the last part of a place as a key or an entry."""
    if isinstance(node, list) and place[-1] not in range(len(node)):
        count = "1 entry, number 0" if len(node) == 1 else f"{len(node)} entries, numbered from 0"
        raise ValueError(f"the list has {count}, got {place[-1]}")
    if not isinstance(node, dict | list):
        raise ValueError(f"{'.'.join(map(str, place[:-1]))} is a scalar; it has no keys")
