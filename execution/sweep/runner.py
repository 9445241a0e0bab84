"""Run the points of a sweep, as many at once as the executor decides."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from execution.sweep.executor import Executor, Order
from execution.sweep.progress import SweepListener, remaining
from model.sweep import Point
from results.store.sweeps import SweepFolder


@dataclass(frozen=True)
class Sweeping:
    """Runs the unfinished points of a sweep, with these options of `railbed run`."""

    folder: SweepFolder
    executor: Executor
    listener: SweepListener
    options: tuple[str, ...] = ()

    def run(self) -> None:
        """Run the points without a result; a failing point does not stop the others.

        Raises `InputError` if the program has changed since the sweep began.
        """
        left = {self.folder.point_folder(point): point for point in self.folder.unfinished}
        with closing(self.executor.execute(self._orders(left))) as ended:
            for order, outcome in ended:
                point = left.pop(order.folder)
                self.folder.end(point, outcome)
                self.listener.ended(point, outcome.how)

    def _orders(self, left: dict[Path, Point]) -> Iterator[Order]:
        """Yield the points in order; each begins when it is taken. Ended points leave `left`."""
        for folder, point in list(left.items()):
            self.folder.require_version()
            self.listener.begun(point, self._remaining_s(len(left)))
            self.folder.begin(point)
            yield Order(self.folder.scenario(point), folder, self.options)

    def _remaining_s(self, points: int) -> float | None:
        return remaining(self.folder.took_s, points, self.executor.at_once)
