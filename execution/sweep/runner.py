"""Run the points of a sweep, or several scenarios, as many at once as the executor decides.

Progress is told by the current point, the number of points, and the remaining time.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from execution.cases.progress import Lines, Listener, progress_bar
from execution.sweep.executor import Executor, Order, at_most_s
from execution.sweep.points import stored_scenario
from linux.files.user_files import work_folder
from model.errors import InputError
from model.sweep import Point
from results.store.records import read_json, write_json
from results.store.runs import copy_into_store, require_writable, stored_runs
from results.store.sweeps import Outcome, SweepFolder
from scenarios.scenario import Scenario


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
        self._task = progress.add_task("starting", total=points, completed=finished, remaining="")

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


@dataclass(frozen=True)
class Sweeping:
    """Runs the unfinished points of a sweep, with these options of `railbed run`."""

    folder: SweepFolder
    executor: Executor
    listener: SweepListener
    options: tuple[str, ...] = ()

    def run(self) -> None:
        """Run the points without a result; a failing point does not stop the others."""
        left = {self.folder.point_folder(point): point for point in self.folder.unfinished}
        with closing(self.executor.execute(self._orders(left))) as ended:
            for order, outcome in ended:
                self._end(left.pop(order.folder), outcome)

    def _orders(self, left: dict[Path, Point]) -> Iterator[Order]:
        """Yield the points in order; each begins when it is taken. Ended points leave `left`.

        A point fails if the program or its files have changed since the sweep began: the points
        under way are not disturbed.
        """
        for folder, point in list(left.items()):
            try:
                self.folder.require_version()
                file = self.folder.scenario(point)
                limit_s = at_most_s(stored_scenario(file, point), self.options)
                order = Order(file, folder, self.options, limit_s, tuple(stored_runs(folder)))
            except InputError as error:
                self._end(left.pop(folder), Outcome(InputError.exit_code, None, 0.0, str(error)))
                continue
            left_s = remaining(self.folder.took_s, len(left), self.executor.at_once)
            self.listener.begun(point, left_s)
            self.folder.begin(point)
            yield order

    def _end(self, point: Point, outcome: Outcome) -> None:
        self.folder.end(point, outcome)
        self.listener.ended(point, outcome.how)


def run_several(
    scenarios: Sequence[Scenario],
    options: tuple[str, ...],
    store: Path,
    executor: Executor,
    listener: Listener,
) -> dict[str, dict[str, Any] | str]:
    """Run scenarios; return, by name, the JSON object of each run, or why there is none.

    The folders of all runs, of early ended ones, too, are moved into `store`.
    """
    require_writable(store)
    results: dict[str, dict[str, Any] | str] = {}
    with work_folder() as place:
        orders = _orders(scenarios, options, place, listener)
        with closing(executor.execute(orders)) as ended:
            for order, outcome in ended:
                name = order.scenario.stem
                listener.step(f"{name}: {outcome.how}")
                results[name] = outcome.cause
                if outcome.run is not None:
                    run = store.resolve() / outcome.run.name
                    with copy_into_store(outcome.run, run):
                        pass  # a run with a damaged result is stored, too
                    if not outcome.cause:
                        results[name] = {**read_json(run / "result.json"), "folder": str(run)}
                        write_json(run / "result.json", results[name])
    return results


def _orders(
    scenarios: Sequence[Scenario], options: tuple[str, ...], place: Path, listener: Listener
) -> Iterator[Order]:
    for scenario in scenarios:
        listener.step(f"{scenario.name}: begins")
        folder = place / scenario.name
        folder.mkdir()
        file = folder / f"{scenario.name}.yaml"
        file.write_text(scenario.text, encoding="utf-8")
        yield Order(file, folder, options, at_most_s(scenario, options))
