"""What executes each command that the documentation shows: the lines of `checks.csv`."""

import csv
import re
import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.shown.pages import BLOCK, ROOT

CHECKS = Path(__file__).parent / "checks.csv"
TUTORIAL = ROOT / "docs" / "tutorial.md"
DECISION = ROOT / "docs" / "guides" / "decision.md"
PRICES = ROOT / "scenarios" / "format" / "prices.yaml"
# What the documentation writes for a value of the reader's own, beside runs and sweeps.
PLACEHOLDERS = {
    "SCENARIO": "quickstart",
    "TRACE": str(ROOT / "scenarios" / "library" / "traces" / "pipeline.goal"),
    "FILE": "my-moe.yaml",
    "FOLDER": "folder",
}


THE_TEST_COMMAND = "railbed test"


class How(StrEnum):
    """The list that a command belongs to."""

    HERE = "here"
    """`tests/unit/test_shown_commands.py` executes the command itself."""
    TEST = "test"
    """A test of the test command executes it, named in `what`, or that command itself."""
    LONG = "long"
    """`python -m tests.shown` executes it, or the other long run that is named in `what`."""
    NEVER = "never"
    """It is not executed; `what` is the reason."""


@dataclass(frozen=True)
class Check:
    """A command, and what executes it."""

    command: str
    how: How
    what: str

    @property
    def long_run(self) -> str:
        """The command of the long run that executes it."""
        return self.what or self.command


def checks() -> list[Check]:
    """Read `checks.csv`."""
    with CHECKS.open(newline="") as file:
        return [Check(row["command"], How(row["how"]), row["what"]) for row in csv.DictReader(file)]


def with_values(command: str, **more: str) -> str:
    """Replace the documentation's placeholders in a command, also `more`, by values."""
    for name, value in (PLACEHOLDERS | more).items():
        command = re.sub(rf"\b{name}\b", value, command)
    return command


def put_readers_files(folder: Path) -> None:
    """Write the files that the documentation lets its readers write."""
    (folder / "my-moe.yaml").write_text(_block_after(TUTORIAL, "`my-moe.yaml`"))
    (folder / "my-fault.yaml").write_text(_block_after(TUTORIAL, "`my-fault.yaml`"))
    (folder / "cluster.yaml").write_text(_block_after(DECISION, "decide cluster.yaml --figure"))
    (folder / "commands.txt").write_text("run all-reduce\nexit\n")
    shutil.copy(PRICES, folder / "mine.yaml")


def _block_after(page: Path, words: str) -> str:
    """Return the first code block of a page that begins after some words."""
    text = page.read_text()
    first = text.index(words)
    for block in BLOCK.finditer(text):
        if block.start() > first:
            return block[1]
    raise LookupError(f"no code block after {words!r} in {page}")
