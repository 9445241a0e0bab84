"""Progress of a sweep: the current point, the number of points, and the remaining time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from execution.cases.progress import Lines, progress_bar
from model.sweep import Point
from results.store.sweeps import SweepFolder


class SweepLines:
    """Two lines for each point: for logs and pipes."""

    def __init__(self, console: Console, points: int) -> None:
        self._lines = Lines(console)
        self._points = points

    def begun(self, point: Point, remaining_s: float | None) -> None:
        """Print the point, and the seconds until all have ended, None if not known yet."""
        self._lines.step(f"{self._named(point)}; {human_remaining(remaining_s)}")

    def ended(self, point: Point, how: str) -> None:
        """Print how the point ended, in the words of `how`."""
        self._lines.step(f"{self._named(point)}: {how}")

    def _named(self, point: Point) -> str:
        return f"point {point.number} of {self._points} ({point.label})"


class SweepBar:
    """A bar over all points, with the elapsed and the remaining time."""

    def __init__(self, progress: Progress, points: int, finished: int) -> None:
        self._progress = progress
        self._task = self._progress.add_task(
            "starting", total=points, completed=finished, remaining=""
        )

    def begun(self, point: Point, remaining_s: float | None) -> None:
        """Show the point and the remaining time beside the bar."""
        left = human_remaining(remaining_s)
        self._progress.update(self._task, description=str(point), remaining=left)

    def ended(self, point: Point, how: str) -> None:
        """Advance the bar; print above it how the point ended."""
        self._progress.console.print(f"{point}: {how}")
        self._progress.advance(self._task)


SweepListener = SweepLines | SweepBar


@contextmanager
def sweep_listener(console: Console, folder: SweepFolder) -> Iterator[SweepListener]:
    """Choose the listener for a console: a bar on a terminal, else lines."""
    points = len(folder.sweep.points)
    if not console.is_terminal:
        yield SweepLines(console, points)
        return
    left = TextColumn("{task.fields[remaining]}", markup=False)
    with progress_bar(console, TimeElapsedColumn(), left) as progress:
        yield SweepBar(progress, points, points - len(folder.unfinished))


def remaining(took_s: Sequence[float], points: int, at_once: int = 1) -> float | None:
    """Estimate the seconds for `points` points by the mean of those ended; None if none has."""
    return sum(took_s) / len(took_s) * ceil(points / at_once) if took_s else None


def human_remaining(seconds: float | None) -> str:
    """Remaining time in words."""
    if seconds is None:
        return "remaining time not known yet"
    if seconds < 120:
        return f"about {seconds:.0f} s left"
    minutes = round(seconds / 60)
    hours = f"{minutes // 60} h " if minutes >= 60 else ""
    return f"about {hours}{minutes % 60} min left"
