"""Decide which executions of a case count, and when there are enough of them.

An execution that the machine disturbed does not count, and another one is run in its place. That is
decided from the machine's pauses alone, before the completion time is looked at.
"""

from dataclasses import dataclass, field

from model.measurement.pauses import PauseLog
from model.measurement.records import Repeat
from scenarios.scenario import Repeats

# Time that pauses of all cores took beyond the bucket depth, as a share of an execution's length. A
# bucket makes up for a shorter pause; the excess may delay every step that waits.
DISTURBED_ABOVE = 0.01


def is_disturbed(pauses: PauseLog, depth_s: float) -> bool:
    """Whether pauses disturbed an execution on a fabric with this bucket depth in seconds.

    `False` if pauses were not watched: the verdict reports that instead.
    """
    return pauses.beyond_s(depth_s) > DISTURBED_ABOVE * pauses.seconds


@dataclass
class Executions:
    """The executions of a case so far, and which of them the machine disturbed."""

    warmup: int
    repeats: Repeats
    all: list[Repeat] = field(default_factory=list)
    disturbed: list[Repeat] = field(default_factory=list)

    def add(self, repeat: Repeat, *, disturbed: bool) -> None:
        """Add an ended execution; a warm-up never counts as disturbed."""
        self.all.append(repeat)
        if disturbed and len(self.all) > self.warmup:
            self.disturbed.append(repeat)

    @property
    def most(self) -> int:
        """Largest number of executions, warm-ups and replacements included."""
        return self.warmup + self.repeats.executions

    @property
    def warmups(self) -> tuple[Repeat, ...]:
        """The first executions, which do not count."""
        return tuple(self.all[: self.warmup])

    @property
    def undisturbed(self) -> tuple[Repeat, ...]:
        """Executions after the warm-ups that were not disturbed."""
        later = self.all[self.warmup :]
        return tuple(repeat for repeat in later if repeat not in self.disturbed)

    @property
    def are_enough(self) -> bool:
        """Whether the undisturbed executions suffice."""
        return self.repeats.are_enough([repeat.completion_s for repeat in self.undisturbed])

    @property
    def counted(self) -> tuple[Repeat, ...]:
        """The undisturbed executions; if these are too few, all after the warm-ups."""
        enough = len(self.undisturbed) >= self.repeats.least
        return self.undisturbed if enough else tuple(self.all[self.warmup :])

    @property
    def numbers_disturbed(self) -> frozenset[int]:
        """Numbers of the disturbed executions."""
        return frozenset(repeat.number for repeat in self.disturbed)
