"""From what is installed to what is desired: the difference and nothing else."""

from collections.abc import Set
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Placed(Protocol):
    """What stands at a place of a table."""

    @property
    def place(self) -> object:
        """What it is for: a table has one entry for each place."""


Entry = TypeVar("Entry")
PlacedEntry = TypeVar("PlacedEntry", bound=Placed)


@dataclass(frozen=True)
class Difference(Generic[Entry]):
    """What to add, and then what to remove: never the other way round, or packets are lost."""

    additions: frozenset[Entry]
    removals: frozenset[Entry]


def difference(installed: Set[Entry], desired: Set[Entry]) -> Difference[Entry]:
    """What makes `desired` of `installed`."""
    return Difference(frozenset(desired - installed), frozenset(installed - desired))


def vacated(change: Difference[PlacedEntry]) -> frozenset[PlacedEntry]:
    """The removals whose place no addition takes: an addition replaces what it finds there."""
    taken = {entry.place for entry in change.additions}
    return frozenset(entry for entry in change.removals if entry.place not in taken)
