"""Run the points of a sweep, or several scenarios, as many at once as the executor decides."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from execution.cases.progress import Listener
from execution.sweep.executor import Executor, Order
from execution.sweep.progress import SweepListener, remaining
from model.sweep import Point
from results.store.records import read_json, write_json
from results.store.runs import copy_into_store
from results.store.sweeps import Outcome, SweepFolder
from scenarios.scenario import Scenario


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


Results = dict[str, dict[str, Any]]
Causes = dict[str, str]


def run_several(
    scenarios: Sequence[Scenario],
    options: tuple[str, ...],
    store: Path,
    executor: Executor,
    listener: Listener,
) -> tuple[Results, Causes]:
    """Run scenarios; return, by name, the JSON objects of runs, and the causes of missing results.

    The folders of all runs, of early ended ones, too, are moved into `store`.
    """
    results: Results = {}
    causes: Causes = {}
    with TemporaryDirectory(prefix="railbed-") as place:
        orders = _orders(scenarios, options, Path(place), listener)
        with closing(executor.execute(orders)) as ended:
            for order, outcome in ended:
                name = order.scenario.stem
                listener.step(f"{name}: {outcome.how}")
                run = _stored(outcome, store)
                if run is None or outcome.cause:
                    causes[name] = outcome.cause
                else:
                    results[name] = _placed(run)
    return results, causes


def _orders(
    scenarios: Sequence[Scenario], options: tuple[str, ...], place: Path, listener: Listener
) -> Iterator[Order]:
    for scenario in scenarios:
        listener.step(f"{scenario.name}: begins")
        folder = place / scenario.name
        folder.mkdir()
        file = folder / f"{scenario.name}.yaml"
        file.write_text(scenario.text, encoding="utf-8")
        yield Order(file, folder, options)


def _stored(outcome: Outcome, store: Path) -> Path | None:
    if outcome.run is None:
        return None
    return copy_into_store(outcome.run, store, outcome.run.name)


def _placed(run: Path) -> dict[str, Any]:
    """Write a moved run's folder into its JSON object; return the object."""
    result = read_json(run / "result.json")
    result["folder"] = str(run)
    write_json(run / "result.json", result)
    return result
