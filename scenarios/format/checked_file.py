"""YAML files with checked keys: values with their lines, and all issues of a file at once."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError

from linux.files.user_files import Unreadable, read_text
from model.errors import InputError, Problem
from scenarios.format.bounded_text import (
    UNREADABLE,
    line_of,
    parser,
    plain,
    unreadable,
)
from scenarios.format.issues import Place
from scenarios.format.messages import nearest_key, wording

Model = TypeVar("Model", bound=BaseModel)

# Largest file: the largest scenario of the library has 2 kB, and this takes about a second.
MOST_BYTES = 2**18
# Hint for `generator: exec`: programs follow no schedule, so a command of its own runs them.
PROGRAMS = "programs of your own: `railbed exec SCENARIO -- COMMAND`"


class Strict(BaseModel):
    """The base model of YAML files: unknown keys are errors, values do not change once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


@dataclass(frozen=True)
class FileKind:
    """The kind of a file, for messages: its name, a hint if there is no such file, its page."""

    name: str
    missing_hint: str
    page: str


@dataclass(frozen=True)
class Source:
    """Where the values of a file come from: its lines, or `--set`."""

    path: Path
    document: Any
    overridden: frozenset[Place] = frozenset()

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


def read(path: Path, kind: FileKind) -> str:
    """The text of a file; raises `InputError` if it cannot be read."""
    try:
        return read_text(path, MOST_BYTES)
    except Unreadable as error:
        hint = "" if os.path.lexists(path) else kind.missing_hint
        raise InputError(Problem(str(path), str(error), hint)) from None


def parse(path: Path, text: str, kind: FileKind) -> CommentedMap:
    """The mapping of a YAML text with its lines; raises `InputError` for any other text."""
    try:
        document = parser("rt").load(text)
    except DuplicateKeyError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        what = str(error.problem).split(" with value")[0].replace("found duplicate", "duplicate")
        raise InputError(Problem(f"{path}:{line}", what, "each key once")) from None
    except UNREADABLE as error:
        raise InputError(Problem(f"{path}{line_of(error, text)}", unreadable(error))) from None
    if not isinstance(document, CommentedMap):
        what = f"must be a mapping with the keys of a {kind.name}, got {_kind_of(document)}"
        raise InputError(Problem(f"{path}:1", what, f"see {kind.page}"))
    return document


def _kind_of(document: object) -> str:
    """Name the kind of a YAML text that is not a mapping."""
    if document is None:
        return "nothing"
    return "a list" if isinstance(document, list) else "a single value"


def load_as(path: Path, model: type[Model], kind: FileKind) -> Model:
    """Read a file and check it against a model; raises `InputError` with all problems."""
    document = parse(path, read(path, kind), kind)
    try:
        return model.model_validate(plain(document))
    except ValidationError as error:
        source = Source(path, document)
        raise InputError(*problems_of(source, error, model)) from error


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
    *before, last = details["loc"] or ("",)
    found = tuple(part for part in before if isinstance(part, int) or part.isidentifier())
    is_key = details["type"] == "extra_forbidden" or isinstance(last, int) or last.isidentifier()
    return (*found, last) if is_key else found


def problems_of(
    source: Source, error: ValidationError, model: type[BaseModel]
) -> Iterator[Problem]:
    """Yield a problem for each place with an error, where its value is; `model` is the file's."""
    for details in _one_a_place(error):
        yield _problem(source, details, model)


def _problem(source: Source, details: Any, model: type[BaseModel]) -> Problem:
    place = _place(details)
    if details["type"] == "extra_forbidden":
        what, hint = f"unknown key {place[-1]!r}", nearest_key(details["loc"], model)
    else:
        is_program = place[-1:] == ("generator",) and details["input"] == "exec"
        what, hint = wording(details), PROGRAMS if is_program else ""
    return Problem(source.where(place), what, hint)
