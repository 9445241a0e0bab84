"""How often a case is executed: which executions count, and when there are enough of them.

An execution that the machine disturbed does not count, and another one is run in its place. That is
decided from the machine's pauses alone, before anybody looks at how long it took.
"""

from dataclasses import dataclass, field

from model.measurement.pauses import PauseLog
from model.measurement.records import Repeat
from scenarios.spec.repeats import Repeats

# What pauses of all cores took beyond the depth of the buckets, of the length of an execution. A
# bucket makes good what a shorter pause takes; what is beyond it may delay every step that waits.
DISTURBED_ABOVE = 0.01


def is_disturbed(pauses: PauseLog, depth_s: float) -> bool:
    """Whether the machine disturbed an execution, by its pauses on a fabric with such buckets.

    One that was not watched is not known to be disturbed: the verdict says that it was not watched.
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
        """An execution has ended; of a warm-up it does not matter whether it was disturbed."""
        self.all.append(repeat)
        if disturbed and len(self.all) > self.warmup:
            self.disturbed.append(repeat)

    @property
    def most(self) -> int:
        """All that there may be."""
        return self.warmup + self.repeats.executions

    @property
    def warmups(self) -> tuple[Repeat, ...]:
        """The first ones, which do not count."""
        return tuple(self.all[: self.warmup])

    @property
    def undisturbed(self) -> tuple[Repeat, ...]:
        """Those that count if there are enough of them."""
        later = self.all[self.warmup :]
        return tuple(repeat for repeat in later if repeat not in self.disturbed)

    @property
    def are_enough(self) -> bool:
        """Whether no more are needed."""
        return self.repeats.are_enough([repeat.completion_s for repeat in self.undisturbed])

    @property
    def counted(self) -> tuple[Repeat, ...]:
        """The undisturbed ones; if there are too few of them, all."""
        enough = len(self.undisturbed) >= self.repeats.least
        return self.undisturbed if enough else tuple(self.all[self.warmup :])

    @property
    def numbers_disturbed(self) -> frozenset[int]:
        """The numbers of the disturbed ones."""
        return frozenset(repeat.number for repeat in self.disturbed)
