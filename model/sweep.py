"""Sweeps: one scenario with every combination of values for some of its keys."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

# Exit code of a point that was ended because it took too long, as of timeout(1).
HANGING = 124
REAL, VIRTUAL = "real", "virtual"
# Tells the program inside the virtual machine that its clock is virtual.
CLOCK_VARIABLE = "RAILBED_CLOCK"


@dataclass(frozen=True)
class Setting:
    """A key of the scenario and its value: `text` as written, `value` as parsed."""

    key: str
    text: str
    value: Any = field(compare=False)

    def __str__(self) -> str:
        return f"{self.key}={self.text}"


@dataclass(frozen=True)
class Point:
    """One combination of settings, numbered from 1; `text` is the complete scenario.

    `files` has a digest of the traces and configurations that it names, and of the plugins with its
    algorithms; empty if there are none.
    """

    number: int
    settings: tuple[Setting, ...]
    text: str
    files: str = ""

    @property
    def label(self) -> str:
        """The settings, separated by commas."""
        return ", ".join(map(str, self.settings))

    def __str__(self) -> str:
        return f"point {self.number} ({self.label})"


@dataclass(frozen=True)
class Sweep:
    """All points of a scenario in their order, with one kind of GPU proxies and one clock."""

    scenario: str
    proxies: str
    points: tuple[Point, ...]
    clock: str = REAL

    @property
    def digest(self) -> str:
        """SHA-256 of the points' scenarios, in order, of the kind of proxies, and of the clock.

        The files of the points count, too, if there are any.
        """
        clock = [] if self.clock == REAL else [self.clock]
        texts = (part for point in self.points for part in (point.text, point.files) if part)
        return hashlib.sha256("\0".join([self.proxies, *clock, *texts]).encode()).hexdigest()

    @property
    def name(self) -> str:
        """The scenario's name and 8 digits of the digest."""
        return f"{self.scenario}-{self.digest[:8]}"
