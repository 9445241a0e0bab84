"""The branches of the exception tree, each with its exit code; other modules derive from them.

A failed expectation is a result, not an error: the command line exits with 1.

RailbedError
├── InputError          2   a scenario or an argument is wrong
├── NotReady            3   this machine lacks something
├── Interrupted       130   something failed after a signal had asked the program to end
└── EmulationError      4   something died or did not come up
    └── OutOfTolerance  4   a link, measured in isolation, is not as specified
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from model.sentences import counted

# Control characters but for tab and line feed (ECMA-48, C0 and C1).
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Longest part of a problem, in characters.
MOST_CHARACTERS = 1000
MOST_PROBLEMS = 100


# Exit code of an interrupted command, by the convention of shells: 128 and the number of SIGINT.
EXIT_INTERRUPTED = 130


class RailbedError(Exception):
    """An error that Railbed reports to its user in a sentence."""

    exit_code = 4


@dataclass(frozen=True)
class Problem:
    """One problem in an input: its place, the requirement and the value found, and a hint."""

    where: str
    what: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f" ({shortened(self.hint)})" if self.hint else ""
        return f"{shortened(self.where)}: {shortened(self.what)}{hint}"


def visible(text: str) -> str:
    """Return a text in which characters that control a terminal are shown by their numbers."""
    return CONTROL.sub(lambda control: f"\\x{ord(control[0]):02x}", text)


def shortened(text: str) -> str:
    """Return a visible text for a message; of a long text, the beginning and the end."""
    text = visible(text)
    if len(text) <= MOST_CHARACTERS:
        return text
    part = MOST_CHARACTERS // 2
    return f"{text[:part]} … {len(text) - 2 * part} more characters … {text[-part:]}"


class InputError(RailbedError):
    """All problems of an input, reported together."""

    exit_code = 2

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        lines = [str(problem) for problem in problems[:MOST_PROBLEMS]]
        if len(problems) > MOST_PROBLEMS:
            lines.append(f"and {counted(len(problems) - MOST_PROBLEMS, 'more problem')}")
        super().__init__("\n".join(lines))


@contextmanager
def refusing(place: Path, what: str, hint: str = "") -> Iterator[None]:
    """Turn an `OSError` into an `InputError` that says what failed at a place, and why."""
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise InputError(Problem(str(place), f"{what}: {why}", hint)) from None


class NotReady(RailbedError):
    """The machine lacks something; the message names a remedy if there is one."""

    exit_code = 3


class Interrupted(RailbedError):
    """A failure after a signal had asked the program to end: nothing else is begun."""

    exit_code = EXIT_INTERRUPTED

    def __init__(self, error: Exception) -> None:
        super().__init__(
            f"interrupted; then {error}\n(`sudo ./railbed clean` removes what is left)"
        )


class EmulationError(RailbedError):
    """A part of the running testbed died, or did not come up in time."""


class OutOfTolerance(EmulationError):
    """Calibration found a link that deviates from the fabric's specification."""
