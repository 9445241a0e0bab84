"""What a run tells while it runs: steps done, to a person at a terminal or as plain lines."""

import time
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Listener(Protocol):
    """Is told what a run does."""

    def step(self, what: str) -> None:
        """Something else begins."""

    def done(self, what: str) -> None:
        """One of the counted executions has ended."""


class Silent:
    """Says nothing."""

    def step(self, what: str) -> None:
        """Nothing."""

    def done(self, what: str) -> None:
        """Nothing."""


class Lines:
    """One line for each step: for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun_s = time.monotonic()

    def step(self, what: str) -> None:
        """Say it, with the seconds since the run began."""
        elapsed_s = time.monotonic() - self._begun_s
        line = f"{elapsed_s:6.1f} s  {what}"
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def done(self, what: str) -> None:
        """Nothing: the next step will say enough."""


class Bar:
    """A bar over all executions, with the remaining time."""

    def __init__(self, console: Console, executions: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("starting", total=executions)

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def step(self, what: str) -> None:
        """Show it beside the bar."""
        self._progress.update(self._task, description=what)

    def done(self, what: str) -> None:
        """Move the bar; executions in place of disturbed ones make it longer."""
        self._progress.advance(self._task)
        (task,) = self._progress.tasks
        self._progress.update(self._task, total=max(task.total or 0, task.completed))
