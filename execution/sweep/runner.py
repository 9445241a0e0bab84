"""Run the points of a sweep, or several scenarios, as many at once as the executor decides."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from execution.cases.progress import Listener
from execution.sweep.executor import Executor, Order
from execution.sweep.progress import SweepListener, remaining
from linux.files.user_files import work_folder
from model.sweep import Point
from results.store.records import read_json, write_json
from results.store.runs import copy_into_store, require_writable
from results.store.sweeps import SweepFolder
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
            left_s = remaining(self.folder.took_s, len(left), self.executor.at_once)
            self.listener.begun(point, left_s)
            self.folder.begin(point)
            yield Order(self.folder.scenario(point), folder, self.options)


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
                    run = copy_into_store(outcome.run, store, outcome.run.name)
                    results[name] = outcome.cause or _placed(run)
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
        yield Order(file, folder, options)


def _placed(run: Path) -> dict[str, Any]:
    """Write a moved run's folder into its JSON object; return the object."""
    result = read_json(run / "result.json")
    result["folder"] = str(run)
    write_json(run / "result.json", result)
    return result
