"""The exception tree, and the exit code that each branch ends with.

A failed expectation is a result, not an error: the command line ends with 1.

RailbedError
├── InputError          2   a scenario or an argument is wrong
├── NotReady            3   this machine lacks something
└── EmulationError      4   something died or did not come up
    └── OutOfTolerance  4   a link, measured alone, is not what it should be
"""

from dataclasses import dataclass


class RailbedError(Exception):
    """Anything that Railbed reports to its user in a sentence."""

    exit_code = 4


@dataclass(frozen=True)
class Problem:
    """One thing wrong with an input: where, what is wrong and what was found, what to do."""

    where: str
    what: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.where}: {self.what}{hint}"


class InputError(RailbedError):
    """All problems of an input at once."""

    exit_code = 2

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


class NotReady(RailbedError):
    """The machine lacks something; the message ends with the command that mends it."""

    exit_code = 3


class EmulationError(RailbedError):
    """A part of the running testbed died, or did not come up in time."""

    exit_code = 4


class OutOfTolerance(EmulationError):
    """Calibration found a link that is not what the fabric says."""
