"""From what is installed to what is desired: the difference and nothing else."""

from collections.abc import Set
from dataclasses import dataclass
from typing import Generic, TypeVar

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Difference(Generic[Entry]):
    """What to add, and then what to remove: never the other way round, or packets are lost."""

    additions: frozenset[Entry]
    removals: frozenset[Entry]


def difference(installed: Set[Entry], desired: Set[Entry]) -> Difference[Entry]:
    """What makes `desired` of `installed`."""
    return Difference(frozenset(desired - installed), frozenset(installed - desired))
