"""The exception tree with the exit code of each branch.

A failed expectation is a result, not an error: the command line exits with 1.

RailbedError
├── InputError          2   a scenario or an argument is wrong
├── NotReady            3   this machine lacks something
└── EmulationError      4   something died or did not come up
    └── OutOfTolerance  4   a link, measured in isolation, is not as specified
"""

from dataclasses import dataclass


class RailbedError(Exception):
    """Anything that Railbed reports to its user in a sentence."""

    exit_code = 4


@dataclass(frozen=True)
class Problem:
    """One problem in an input: its place, what is wrong and was found, and a hint to fix it."""

    where: str
    what: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.where}: {self.what}{hint}"


class InputError(RailbedError):
    """All problems of an input, reported together."""

    exit_code = 2

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


class NotReady(RailbedError):
    """The machine lacks something; the message ends with the command that fixes it."""

    exit_code = 3


class EmulationError(RailbedError):
    """A part of the running testbed died, or did not come up in time."""


class OutOfTolerance(EmulationError):
    """Calibration found a link that deviates from the fabric's specification."""
