"""Scenario keys that got a better name; their old names are still accepted."""

from collections.abc import Iterator
from typing import Any

from ruamel.yaml.comments import CommentedMap

from scenarios.format.issues import Issue, Place

NEW_NAMES: dict[Place, str] = {("verify",): "check_data", ("job", "reaction"): "strategy"}


def with_present_name(place: Place) -> Place:
    """The place of a value, with its key's present name."""
    return (*place[:-1], NEW_NAMES[place]) if place in NEW_NAMES else place


def rename_old_keys(document: CommentedMap) -> Iterator[Issue]:
    """Give keys their present names, at the same line; yield an issue of each that has both."""
    for place, new in NEW_NAMES.items():
        parent: Any = document
        for part in place[:-1]:
            parent = parent.get(part) if isinstance(parent, CommentedMap) else None
        if isinstance(parent, CommentedMap) and place[-1] in parent:
            if new in parent:
                del parent[place[-1]]
                yield Issue((*place[:-1], new), f"is there twice: {place[-1]} is its old name")
            else:
                _rename(parent, str(place[-1]), new)


def _rename(node: CommentedMap, old: str, new: str) -> None:
    position, line = list(node).index(old), node.lc.data.get(old)
    comment = node.ca.items.pop(old, None)
    node.insert(position, new, node.pop(old))
    if line is not None:
        node.lc.data[new] = line
    if comment is not None:
        node.ca.items[new] = comment
