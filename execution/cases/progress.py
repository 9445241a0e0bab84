"""Report a run's progress, as a bar on a terminal or as plain lines."""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from rich import progress
from rich.console import Console

if TYPE_CHECKING:
    from execution.cases.emulation import Experiment
    from results.verdicts.verdict import Verdict


class Listener:
    """Is told of a run's progress, fabrics and verdicts; this one looks away."""

    def step(self, what: str) -> None:
        """Step `what` begins."""

    def done(self, what: str) -> None:
        """An execution of case `what` has ended."""

    def show(self, fabric: "Experiment | None") -> None:
        """A fabric is up and idle; `None` before it is taken down."""

    def judged(self, case: str, verdict: "Verdict", ratio: float | None) -> None:
        """A case has its verdict; its measured time is `ratio` of the model's, if both count."""


# For runs whose progress nobody follows.
SILENT = Listener()


@dataclass
class Lines(Listener):
    """Prints one line for each step, for logs and pipes."""

    console: Console
    begun_s: float = field(default_factory=time.monotonic)

    def step(self, what: str) -> None:
        """Print the step with the seconds since the run began."""
        elapsed_s = time.monotonic() - self.begun_s
        self.console.print(f"{elapsed_s:6.1f} s  {what}", soft_wrap=True)


def progress_bar(console: Console, *columns: progress.ProgressColumn) -> progress.Progress:
    """A bar with its description, the number done, and further columns; it vanishes at its end."""
    words = progress.TextColumn("{task.description}", markup=False)
    shown = words, progress.BarColumn(bar_width=24), progress.MofNCompleteColumn()
    return progress.Progress(*shown, *columns, console=console, transient=True)


class Bar(Listener):
    """Shows a bar over all executions, with the remaining time."""

    def __init__(self, console: Console, executions: int) -> None:
        self._progress = progress_bar(console, progress.TimeRemainingColumn())
        self._task = self._progress.add_task("starting", total=executions)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def step(self, what: str) -> None:
        """Show the step beside the bar."""
        self._progress.update(self._task, description=what)

    def done(self, what: str) -> None:
        """Advance the bar; executions that replace disturbed ones raise its total."""
        self._progress.advance(self._task)
        (task,) = self._progress.tasks
        self._progress.update(self._task, total=max(task.total or 0, task.completed))
