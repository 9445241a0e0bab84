"""From what is installed to what is desired: the difference and nothing else."""

from collections.abc import Set
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Generic, Protocol, TypeVar


class Placed(Protocol):
    """What stands in a table at the place that its destination gives."""

    @property
    def destination(self) -> IPv4Network:
        """The addresses that it is for."""


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
    taken = {entry.destination for entry in change.additions}
    return frozenset(entry for entry in change.removals if entry.destination not in taken)
