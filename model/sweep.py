"""A sweep: one scenario at every combination of some of its values."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any


@dataclass(frozen=True)
class Setting:
    """A key of the scenario and its value: as it was written, and what that means."""

    key: str
    text: str
    value: Any = field(compare=False)

    def __str__(self) -> str:
        return f"{self.key}={self.text}"


@dataclass(frozen=True)
class Point:
    """One combination, numbered from 1, and the whole scenario that it makes."""

    number: int
    settings: tuple[Setting, ...]
    text: str

    @property
    def label(self) -> str:
        """Its settings in words."""
        return ", ".join(map(str, self.settings))

    def __str__(self) -> str:
        return f"point {self.number} ({self.label})"


@dataclass(frozen=True)
class Sweep:
    """All points of a scenario, which are run in this order, with one kind of GPU proxies."""

    scenario: str
    proxies: str
    points: tuple[Point, ...]

    @property
    def digest(self) -> str:
        """Differs when any point's scenario, their order or the proxies differ."""
        content = "\0".join([self.proxies, *(point.text for point in self.points)])
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def name(self) -> str:
        """The same for the same points."""
        return f"{self.scenario}-{self.digest[:8]}"


def combinations(axes: Sequence[Sequence[Setting]]) -> Iterator[tuple[Setting, ...]]:
    """One setting of each axis, in every combination; the last axis changes fastest."""
    return product(*axes)
