"""Run the points of a sweep one at a time, as they would disturb each other on a machine."""

from dataclasses import dataclass

from model.sweep import Point
from results.store.sweeps import Outcome, SweepFolder
from scenarios.sweep.executor import Executor, Order
from scenarios.sweep.progress import SweepListener, remaining


@dataclass(frozen=True)
class Sweeping:
    """Runs the unfinished points of a sweep."""

    folder: SweepFolder
    executor: Executor
    listener: SweepListener

    def run(self) -> None:
        """Run the points without a result, in order; one that fails does not stop the others."""
        waiting = self.folder.unfinished
        for done, point in enumerate(waiting):
            self.listener.begun(point, self._remaining_s(len(waiting) - done))
            outcome = self._execute(point)
            self.listener.ended(point, _how(outcome))

    def _execute(self, point: Point) -> Outcome:
        folder = self.folder
        folder.begin(point)
        place = folder.point_folder(point)
        order = Order(folder.scenario(point), place, folder.sweep.proxies)
        outcome = self.executor.execute(order)
        folder.end(point, outcome)
        return outcome

    def _remaining_s(self, points: int) -> float | None:
        outcomes = [self.folder.outcome(point) for point in self.folder.sweep.points]
        took_s = [outcome.took_s for outcome in outcomes if outcome and outcome.result]
        return remaining(took_s, points)


def _how(outcome: Outcome) -> str:
    """How a point ended, on one line."""
    if outcome.result is None:
        return f"failed after {outcome.took_s:.1f} s: {outcome.cause.partition(chr(10))[0]}"
    verdict = "failed its expectations" if outcome.exit_code else "done"
    return f"{verdict} after {outcome.took_s:.1f} s"
