"""Measure the twins of the paper's figures; stored points are not run again."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from scenarios.execution.cases.progress import Listener
from scenarios.file_formats.scenario.scenario import Scenario
from scenarios.studies.twins.plan import Planned, to_run
from scenarios.sweep.progress import human_remaining

Result = dict[str, Any]


def measure(
    plan: Sequence[Planned], run: Callable[[Scenario], Result], listener: Listener
) -> list[Result]:
    """Return the JSON object of each point's run: the stored one, or that of a new run."""
    left_s = {digest: point.estimated_s for digest, point in to_run(plan).items()}
    done, points, pace = dict[str, Result](), len(left_s), Pace()
    for point in plan:
        if point.stored is not None:
            listener.step(f"{point.twin.name}: stored as {point.stored['run_id']}")
            done[point.digest] = point.stored
        elif point.digest not in done:
            left = human_remaining(pace.factor * sum(left_s.values()))
            number = points - len(left_s) + 1
            listener.step(f"{point.twin.name}: point {number} of {points} begins; {left}")
            begun_s = time.monotonic()
            done[point.digest] = run(point.scenario)
            pace.add(left_s.pop(point.digest), time.monotonic() - begun_s)
    return [done[point.digest] for point in plan]


class Pace:
    """How much longer points take than estimated."""

    def __init__(self) -> None:
        self._estimated_s = self._took_s = 0.0

    def add(self, estimated_s: float, took_s: float) -> None:
        """Count a point that has ended."""
        self._estimated_s += estimated_s
        self._took_s += took_s

    @property
    def factor(self) -> float:
        """Time taken over estimated time; 1 before a point has ended."""
        return self._took_s / self._estimated_s if self._estimated_s else 1.0
