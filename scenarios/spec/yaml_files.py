"""YAML files with checked keys: values with their lines, and all issues of a file at once."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError

from model.errors import InputError, Problem
from scenarios.spec.issues import Place
from scenarios.spec.messages import nearest_key, wording

Model = TypeVar("Model", bound=BaseModel)

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


@dataclass(frozen=True)
class FileKind:
    """What a file holds, for messages: its name, the command that lists such files, its page."""

    name: str
    listing: str
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
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(Problem(str(path), "no such file", kind.listing)) from None
    except IsADirectoryError:
        raise InputError(Problem(str(path), f"is a folder, not a {kind.name} file")) from None
    except UnicodeDecodeError as error:
        raise InputError(Problem(str(path), f"is not UTF-8 text: {error.reason}")) from None
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be read: {error.strerror}")) from None


def parse(path: Path, text: str, kind: FileKind) -> CommentedMap:
    """The mapping of a YAML text with its lines; raises `InputError` if it is none."""
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
        what = f"must be a mapping with the keys of a {kind.name}, got {found}"
        raise InputError(Problem(f"{path}:1", what, f"see {kind.page}"))
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


def load_as(path: Path, model: type[Model], kind: FileKind) -> Model:
    """Read a file and check it against a model; raises `InputError` with all problems."""
    document = parse(path, read(path, kind), kind)
    try:
        return model.model_validate(plain(document))
    except ValidationError as error:
        source = Source(path, document)
        raise InputError(*problems_of(source, error, model)) from error


def value_of(text: str) -> Any:
    """Parse the value of an override as YAML; raises `ValueError` with a message."""
    try:
        return plain(YAML(typ="safe").load(text))
    except UNREADABLE as error:
        raise ValueError(not_yaml("the value", error)) from None


def not_yaml(what: str, error: Exception) -> str:
    """Message for a text that ruamel.yaml cannot read; `what` names the text."""
    return f"{what} is not YAML: {_reason(error)}"


def plain(node: Any) -> Any:
    """Convert a node to plain dictionaries and lists, without ruamel.yaml's types."""
    if isinstance(node, dict):
        return {key: plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [plain(value) for value in node]
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


def problems_of(
    source: Source, error: ValidationError, model: type[BaseModel]
) -> Iterator[Problem]:
    """Yield a problem for each place with an error, where its value is; `model` is the file's."""
    for details in _one_a_place(error):
        yield _problem(source, details, model)


def _problem(source: Source, details: Any, model: type[BaseModel]) -> Problem:
    place = _place(details)
    if details["type"] == "extra_forbidden":
        what, hint = f"unknown key {place[-1]!r}", nearest_key(place, model)
    else:
        what, hint = wording(details), ""
    return Problem(source.where(place), what, hint)
