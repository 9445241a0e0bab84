"""YAML text within bounds: text that expands, nests or counts beyond them is refused unread.

The bounds hold for the tree of nodes that the parser composes, in which an alias is one reference.
"""

from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer, MaxDepthExceededError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode
from ruamel.yaml.reader import ReaderError

# A scenario has some hundred values. 10 000 take a third of a second to read.
MOST_VALUES = 10_000
MOST_LEVELS = 20
# No meaningful number has more digits; Python's own limit does not hold for hexadecimal.
MOST_DIGITS = 100
NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")

# Errors of reading YAML. ruamel.yaml lets Python's own through where a value does not fit its tag
# or form (`2001-99-99`, `!!bool x`).
UNREADABLE = (YAMLError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class OutOfBounds(MarkedYAMLError):
    """Too many values, a number with too many digits, or an alias inside its own value."""


class BoundedComposer(Composer):
    """Composes nodes up to the bounds; raises `OutOfBounds` beyond them.

    An alias counts as much as the node that it repeats.
    """

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader)
        # A text may use an anchor's name again (YAML 1.2, section 3.2.2.2).
        self.warn_double_anchors = False
        self._sizes: dict[Node, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Node:
        """Compose the next node, or find the one that an alias repeats."""
        node: Node = super().compose_node(parent, index)
        if node not in self._sizes:
            self._sizes[node] = 1 + sum(self._sizes[child] for child in _children(node))
        if max(self._sizes[node], len(self._sizes)) > MOST_VALUES:
            _refuse(node, f"it has more than {MOST_VALUES} values, those of aliases included")
        return node

    def return_alias(self, a: Node) -> Node:
        """Return the node that an alias repeats, which must be complete."""
        if a not in self._sizes:
            _refuse(a, "an alias repeats the value that it is in")
        return a

    def compose_scalar_node(self, anchor: Any) -> ScalarNode:
        """Compose a scalar; refuse a long number here, before Python computes it."""
        node: ScalarNode = super().compose_scalar_node(anchor)
        if str(node.tag) in NUMBERS and len(node.value) > MOST_DIGITS:
            _refuse(
                node, f"a number must have at most {MOST_DIGITS} characters, got {len(node.value)}"
            )
        return node


def _children(node: Node) -> list[Node]:
    if isinstance(node, ScalarNode):
        return []
    if isinstance(node, MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value)


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
        raise ValueError(not_yaml("the value", error)) from None


def plain(node: Any) -> Any:
    """Convert a node to plain dictionaries and lists, without ruamel.yaml's types."""
    if isinstance(node, dict):
        return {key: plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [plain(value) for value in node]
    return node


def not_yaml(what: str, error: Exception) -> str:
    """Message for a text that cannot be read; `what` names the text."""
    return f"{what} {unreadable(error)}"


def unreadable(error: Exception) -> str:
    """Why a text cannot be read, on one line."""
    is_known = isinstance(error, OutOfBounds | MaxDepthExceededError)
    return f"{'is out of bounds' if is_known else 'is not YAML'}: {reason(error)}"


def line_of(error: Exception, text: str) -> str:
    """Return `:LINE` of a YAML error; empty if the error has no position."""
    if isinstance(error, MarkedYAMLError) and error.problem_mark:
        return f":{error.problem_mark.line + 1}"
    if isinstance(error, ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return f":{line}"
    return ""


def reason(error: Exception) -> str:
    """Why a text is not YAML, on one line."""
    match error:
        case ReaderError():
            return f"the character U+{error.character:04X} is not allowed"
        case MaxDepthExceededError():
            return f"it is nested more than {MOST_LEVELS} deep"
        case MarkedYAMLError():
            return str(error.problem)
        case ValueError():
            return str(error).partition(";")[0]
        case _:
            return "a value does not fit its tag or is out of range"
