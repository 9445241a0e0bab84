"""The parts of a training iteration's time, measured and modeled."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from model.measurement.records import Repeat
from model.prediction.fluid import Prediction
from model.training.reduction import ReducedIteration
from model.training.steps import IterationSteps, begins_s, exposure_s
from results.verdicts.summary import MeasuredModeled


@dataclass(frozen=True)
class IterationResult:
    """The parts of an iteration: compute, exposed traffic by dimension, waiting.

    They are emulated seconds, a mean over ranks and, measured, over executions.
    """

    parts: Mapping[str, MeasuredModeled]
    reduction: ReducedIteration

    def plain(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "parts_s": {name: asdict(part) for name, part in self.parts.items()},
            "reduction": self.reduction.plain_changes,
        }


def iteration_result(
    steps: IterationSteps, executions: Iterable[Repeat], prediction: Prediction
) -> IterationResult:
    """Divide measured and modeled time into parts.

    Only whole executions count; without any, there are no parts.
    """
    end_s = np.array(prediction.arrival_s)
    modeled = exposure_s(steps, begins_s(steps, end_s), end_s)
    measured = [_measured(steps, repeat) for repeat in executions if repeat.complete]
    parts = {
        name: MeasuredModeled(float(np.mean([one[name] for one in measured])), seconds)
        for name, seconds in modeled.items()
        if measured
    }
    return IterationResult(parts, steps.reduction)


def _measured(steps: IterationSteps, repeat: Repeat) -> Mapping[str, float]:
    times = np.array([(r.started_ns, r.arrived_ns) for r in repeat.records]) / 1e9
    return exposure_s(steps, times[:, 0], times[:, 1])
