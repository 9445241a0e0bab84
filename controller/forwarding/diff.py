"""The difference between installed and desired table entries."""

from collections.abc import Set
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Placed(Protocol):
    """A table entry with its place, such as a rule."""

    @property
    def place(self) -> object:
        """The key of the entry: a table has one entry for each place."""


Entry = TypeVar("Entry")
PlacedEntry = TypeVar("PlacedEntry", bound=Placed)


@dataclass(frozen=True)
class Difference(Generic[Entry]):
    """Entries to add, then entries to remove; in the reverse order, packets would be lost."""

    additions: frozenset[Entry]
    removals: frozenset[Entry]


def difference(installed: Set[Entry], desired: Set[Entry]) -> Difference[Entry]:
    """Compute the additions and removals that turn `installed` into `desired`."""
    return Difference(frozenset(desired - installed), frozenset(installed - desired))


def vacated(change: Difference[PlacedEntry]) -> frozenset[PlacedEntry]:
    """The removals whose place no addition takes: an addition replaces the entry at its place."""
    taken = {entry.place for entry in change.additions}
    return frozenset(entry for entry in change.removals if entry.place not in taken)
