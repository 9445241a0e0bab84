"""A YAML file with checked keys: its values with their lines, some of them overridden.

Text that expands, nests or counts beyond bounds is refused unread. An alias or a merge (`<<`) is a
copy of what it repeats, so that an override changes one place.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.composer import Composer, MaxDepthExceededError
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from linux.files.user_files import Unreadable, read_text
from model.errors import InputError, Problem
from scenarios.format.issues import Issue, Place
from scenarios.format.other_files import other_kind

# Largest file: the largest scenario of the library has 2 kB, and this takes about a second.
MOST_BYTES = 2**18
# A scenario has some hundred values. 10 000 take a third of a second to read.
MOST_VALUES = 10_000
MOST_LEVELS = 20
# No meaningful number has more digits; Python's own limit does not hold for hexadecimal.
MOST_DIGITS = 100
INDEX = re.compile(f"[0-9]{{1,{MOST_DIGITS}}}")
NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
MERGE = "tag:yaml.org,2002:merge"

# Errors of reading YAML. ruamel.yaml lets Python's own through where a value does not fit its tag
# or form (`2001-99-99`, `!!bool x`), or the file's version is not known (`%YAML 1.3`).
UNREADABLE = (
    *(YAMLError, ArithmeticError, AssertionError, AttributeError),
    *(LookupError, TypeError, ValueError),
)

# Words of the parser, and what to do.
PLAIN = {
    "expected <block end>": "must be indented like the line above, and be a key or an entry "
    "like it",
    "found character '\\t'": "a tab cannot be here; use spaces",
    "mapping values are": "a key cannot be here; check spaces, and quote a value with a colon",
}


@dataclass(frozen=True)
class FileKind:
    """The kind of a file, for messages: its name, a hint if there is no such file, its page.

    `other_hint` is for a file whose name is not that of YAML.
    """

    name: str
    missing_hint: str
    page: str
    other_hint: str = ""

    def hint(self, path: Path) -> str:
        """Return what to do about a file that may be of another kind."""
        return "" if path.suffix in (".yaml", ".yml") else self.other_hint


@dataclass(frozen=True)
class Document:
    """The values of a file with their lines; those at the places `overridden` are from `--set`.

    `problems` are those of wrong overrides, which are reported with all others. `network` is the
    file that its `fabric` names, whose keys are this one's.
    """

    path: Path
    text: str
    values: CommentedMap
    overridden: frozenset[Place] = frozenset()
    problems: tuple[Problem, ...] = ()
    network: "Document | None" = None

    def refuse(self, issues: Iterable[Issue]) -> None:
        """Raise `InputError` with all issues, each once and at its place; pass if none."""
        wrong = dict.fromkeys(self.problem(one.place, one.what, one.hint) for one in issues)
        if wrong:
            raise InputError(*self.problems, *wrong)

    def problem(self, place: Place, what: str, hint: str = "") -> Problem:
        """A problem of the value at a place."""
        return Problem(self.where(place), what, hint)

    def where(self, place: Place) -> str:
        """File, line and key of a value (its parent's line if missing), or `--set` and key."""
        key = ".".join(str(part) for part in place)
        if any(place[: len(part)] == part for part in self.overridden):
            return f"--set {key}"
        node: Any = self.values
        line = 1
        with suppress(AttributeError, KeyError, IndexError, TypeError):
            for part in place:
                line = node.lc.data[part][0] + 1
                node = node[part]
        network, inside = self.network, place[1:]
        if network and node is self.values.get("fabric") and {*inside[:1]} & {*network.values}:
            return network.where(inside)
        return f"{self.path}:{line} {key}".rstrip()


def read(path: Path, kind: FileKind) -> Document:
    """The mapping in a file; raises `InputError` for any other file."""
    try:
        return parse(path, read_text(path, MOST_BYTES), kind)
    except Unreadable as error:
        hint = kind.hint(path)
        if not (os.path.isfile(path) or os.path.isdir(path)):
            other = "name a regular file, or a link to one"
            hint = other if os.path.lexists(path) else kind.missing_hint
        raise InputError(Problem(str(path), str(error), hint)) from None


@contextmanager
def telling_other_kinds(path: Path, *wanted: str) -> Iterator[None]:
    """Turn the `InputError` of a file that is of another known kind into one that says so."""
    try:
        yield
    except InputError:
        text, values = "", None
        with suppress(Unreadable, *UNREADABLE):
            text = read_text(path, MOST_BYTES)
            values = parser("safe").load(text)
        keys = values.keys() if isinstance(values, dict) else ()
        if other := other_kind(path, text, keys, *wanted):
            raise InputError(other) from None
        raise


def parse(path: Path, text: str, kind: FileKind) -> Document:
    """The mapping of a YAML text; raises `InputError` for any other text."""
    yaml, values = parser("rt"), None
    yaml.allow_duplicate_keys = True  # all are told below; two merges are refused all the same
    try:
        with suppress(DuplicateKeyError):
            values = yaml.load(text)
    except UNREADABLE as error:
        what = unreadable(error, "JSON" if path.suffix == ".json" else "YAML")
        wrong = Problem(f"{path}{_line_of(error, text)}", what, kind.hint(path))
        raise InputError(other_kind(path, text, (), kind.name) or wrong) from None
    if repeated := sorted((key.start_mark.line + 1, key.value) for key in yaml.composer.repeated):
        told = ((f"{path}:{line}", f'duplicate key "{key}"') for line, key in repeated)
        raise InputError(*(Problem(*one, "each key once") for one in told))
    keys = values.keys() if isinstance(values, CommentedMap) else ()
    if other := other_kind(path, text, keys, kind.name):
        raise InputError(other)
    if not isinstance(values, CommentedMap):
        of_one = "a list" if isinstance(values, list) else "a single value"
        got = "nothing" if values is None else of_one
        what = f"must be a mapping with the keys of a {kind.name}, got {got}"
        raise InputError(Problem(f"{path}:1", what, kind.hint(path) or f"see {kind.page}"))
    return Document(path, text, values)


def override(document: Document, overrides: Sequence[str]) -> Document:
    """Set values of a document (`key.key=value`); return it, with the problems of wrong ones.

    Of several for one key, the last one counts.
    """
    overridden: list[Place] = []
    problems: list[Problem] = []
    for text in overrides:
        try:
            overridden.append(_override(document.values, text))
        except ValueError as error:
            problems.append(Problem(f"--set {text}", str(error)))
    return replace(document, overridden=frozenset(overridden), problems=tuple(problems))


def place_of(keys: str) -> Place:
    """Parse `key.key`, in which a number is an entry of a list."""
    parts = keys.split(".")
    return tuple(int(part) if INDEX.fullmatch(part) else part for part in parts)


def overlap(one: Place, other: Place) -> bool:
    """Whether two places are the same, or one is inside the other."""
    return all(part == beside for part, beside in zip(one, other, strict=False))


def _override(values: CommentedMap, text: str) -> Place:
    """Apply `key.key=value`; return the place of the value, or of the topmost key it created."""
    keys, equals, value = text.partition("=")
    if not equals or not keys:
        raise ValueError("must be key=value, such as fabric.domains=8")
    place = place_of(keys)
    if len(place) > MOST_LEVELS:
        raise ValueError(f"must have at most {MOST_LEVELS} nested keys, got {len(place)}")
    node: Any = values
    made = len(place)
    for depth, part in enumerate(place[:-1], start=1):
        _require_possible(node, place[:depth])
        if isinstance(node, dict) and part not in node:
            if isinstance(place[depth], int):
                whole = ".".join(map(str, place[:depth]))
                raise ValueError(f"there is no list {whole}; give it whole: {whole}=[...]")
            made = min(made, depth)
            node[part] = CommentedMap()
        node = node[part]
    _require_possible(node, place)
    refuse_comments(value)
    node[place[-1]] = value_of(value)
    return place[:made]


def _require_possible(node: Any, place: Place) -> None:
    """Raise `ValueError` unless a node may have the last part of a place as a key or an entry."""
    if isinstance(node, list) and place[-1] not in range(len(node)):
        count = "1 entry, number 0" if len(node) == 1 else f"{len(node)} entries, numbered from 0"
        raise ValueError(f"the list has {count}, got {place[-1]}")
    if not isinstance(node, dict | list):
        raise ValueError(f"{'.'.join(map(str, place[:-1]))} is a scalar; it has no keys")


class OutOfBounds(MarkedYAMLError):
    """Too many values, a number with too many digits, or an alias inside its own value."""


class BoundedComposer(Composer):
    """Composes nodes up to the bounds, each on its own; raises `OutOfBounds` beyond them.

    `repeated` has the keys that are in their mapping before.
    """

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader)
        # A text may use an anchor's name again (YAML 1.2, section 3.2.2.2).
        self.warn_double_anchors = False
        self._sizes: dict[Node, int] = {}
        self.repeated: list[ScalarNode] = []

    def compose_node(self, parent: Any, index: Any) -> Node:
        """Compose the next node, or copy the one that an alias repeats."""
        node: Node = super().compose_node(parent, index)
        if node not in self._sizes:
            node.anchor = None
            inside = [] if isinstance(node, ScalarNode) else node.value
            parts = chain(*inside) if isinstance(node, MappingNode) else inside
            self._sizes[node] = 1 + sum(self._sizes[part] for part in parts)
        self._require_room(node, 0)
        return node

    def return_alias(self, a: Node) -> Node:
        """Return a copy of the node that an alias repeats, which must be complete."""
        if a not in self._sizes:
            _refuse(a, "an alias repeats the value that it is in")
        self._require_room(a, self._sizes[a])
        return self._copied(a)

    def _require_room(self, node: Node, more: int) -> None:
        if len(self._sizes) + more > MOST_VALUES:
            _refuse(node, f"it has more than {MOST_VALUES} values, those of aliases included")

    def _copied(self, node: Node) -> Node:
        """Return a copy of a node, without comments."""
        copied = copy(node)
        copied.comment = None
        if isinstance(node, MappingNode):
            copied.value = [tuple(map(self._copied, pair)) for pair in node.value]
        elif isinstance(node, SequenceNode):
            copied.value = list(map(self._copied, node.value))
        self._sizes[copied] = self._sizes[node]
        return copied

    def compose_mapping_node(self, anchor: Any) -> MappingNode:
        """Compose a mapping, with the keys that it merges."""
        node: MappingNode = super().compose_mapping_node(anchor)
        keys = [key for key, _ in node.value if isinstance(key, ScalarNode)]
        first = {key.value: key for key in reversed(keys)}
        self.repeated += [key for key in keys if first[key.value] is not key]
        node.value = _merged(node.value)
        return node

    def compose_scalar_node(self, anchor: Any) -> ScalarNode:
        """Compose a scalar; refuse a long number here, before Python computes it."""
        node: ScalarNode = super().compose_scalar_node(anchor)
        if str(node.tag) in NUMBERS and len(node.value) > MOST_DIGITS:
            got = len(node.value)
            _refuse(node, f"a number must have at most {MOST_DIGITS} characters, got {got}")
        return node


def _merged(pairs: list[tuple[Node, Node]]) -> list[tuple[Node, Node]]:
    """Return the pairs of a mapping, and those that it merges of other keys, the first of each.

    The constructor refuses a merge of what is no mapping, and two merges.
    """
    merges = [value for key, value in pairs if key.tag == MERGE]
    sources = merges[0].value if merges and isinstance(merges[0], SequenceNode) else merges
    if len(merges) != 1 or not all(isinstance(source, MappingNode) for source in sources):
        return pairs
    own = [(key, value) for key, value in pairs if key.tag != MERGE]
    names = {str(key.value) for key, _ in own}
    others = (pair for source in reversed(sources) for pair in source.value)
    merged = {name: pair for pair in others if (name := str(pair[0].value)) not in names}
    return [*merged.values(), *own]


def _refuse(node: Node, what: str) -> NoReturn:
    raise OutOfBounds(None, None, what, node.start_mark)


def parser(typ: str) -> YAML:
    """A YAML parser with bounds: `rt` keeps lines and comments, `safe` gives plain values."""
    yaml = YAML(typ=typ, pure=True)
    yaml.Composer = BoundedComposer
    yaml.max_depth = MOST_LEVELS
    return yaml


def value_of(text: str) -> Any:
    """Parse one YAML value; raises `ValueError` with a message."""
    try:
        return plain(parser("safe").load(text))
    except UNREADABLE as error:
        raise ValueError(f"the value {unreadable(error)}") from None


def out_of_bounds(text: str, values: Any) -> Iterator[Issue]:
    """Yield an issue of a text of these values that could not be read again."""
    what = "exceeds its bounds together with overrides and other files: it has more than"
    if (size := len(text.encode())) > MOST_BYTES:
        yield Issue((), f"{what} {MOST_BYTES / 2**20} MiB, {size / 2**20:.2f}")
    elif (count := _count(values)) > MOST_VALUES:
        yield Issue((), f"{what} {MOST_VALUES} values, {count}")


def _count(node: Any) -> int:
    """Return the number of a node's values, keys included, as the composer counts them."""
    if isinstance(node, dict):
        return 1 + sum(1 + _count(value) for value in node.values())
    return 1 + sum(map(_count, node)) if isinstance(node, list) else 1


def refuse_comments(text: str) -> None:
    """Raise `ValueError` with a message if an option's YAML has a comment, which would be lost."""
    try:
        tokens = list(parser("safe").scan(text))
    except UNREADABLE:
        return  # whoever parses the text says why it is not YAML
    for token, after in pairwise(tokens):
        if "#" in text[token.end_mark.index : after.start_mark.index]:
            raise ValueError("a space and # begin a comment (quote a value that has them)")


def plain(node: Any) -> Any:
    """Convert a node to plain dictionaries and lists, without ruamel.yaml's types."""
    if isinstance(node, dict):
        return {key: plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [plain(value) for value in node]
    return node


def unreadable(error: Exception, form: str = "YAML") -> str:
    """Why a text of a form cannot be read, on one line."""
    match error:
        case ReaderError():
            return f"is not {form}: the character U+{error.character:04X} is not allowed"
        case MaxDepthExceededError():
            return f"is out of bounds: it is nested more than {MOST_LEVELS} deep"
        case OutOfBounds():
            return f"is out of bounds: {error.problem}"
        case MarkedYAMLError():
            problem = str(error.problem)
            problem = next((PLAIN[one] for one in PLAIN if problem.startswith(one)), problem)
            begun = f"{error.context}, " if problem.startswith("but ") else ""
            end = "'<stream end>'", "the end of the text"
            return f"is not {form}: {begun}{problem.replace(*end)}"
        case ValueError():
            return f"is not {form}: {str(error).partition(';')[0]}"
        case AssertionError():
            return f"is not {form} of a known version; write `%YAML 1.2`, or no version"
        case _:
            return f"is not {form}: a value does not fit its tag or is out of range"


def _line_of(error: Exception, text: str) -> str:
    """Return `:LINE` of a YAML error; empty if the error has no position."""
    if isinstance(error, MarkedYAMLError) and error.problem_mark:
        return f":{error.problem_mark.line + 1}"
    if isinstance(error, ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return f":{line}"
    return ""
