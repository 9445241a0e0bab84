"""Compare real executions with a prediction; try again if the machine was disturbed."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from execution.cases.case import Executions, is_disturbed
from execution.cases.emulation import Experiment
from execution.cases.observer import observing
from model.measurement.records import Repeat
from model.prediction.fluid import Prediction
from model.workload.schedule import Steps
from results.verdicts.fidelity import Fidelity, machine_headroom, machine_reasons
from results.verdicts.verdict import Verdict
from scenarios.scenario import Repeats

# Undisturbed executions of which the median is taken, after a warm-up.
REPEATS = 2
ATTEMPTS = 4
# Attempts with enough machine headroom that must be off: one execution may be held up unseen.
CONFIRMED = 2
# Farther off, the machine's verdict fails (docs/explanation/measuring.md, self-check).
DISTURBED_WITHIN = 0.08


@dataclass(frozen=True)
class Attempt:
    """The ratio of measured to modeled time, and how far the machine allows to trust it."""

    executions: tuple[Repeat, ...]
    ratio: float
    fidelity: Fidelity
    disturbed: int
    lost: float

    def agrees(self, within: float) -> bool:
        """Whether measured and modeled time do; a disturbed machine has a limit of its own."""
        return abs(self.ratio - 1) <= self.limit(within)

    def limit(self, within: float) -> float:
        """How far off a part of the completion time may be."""
        return within if _is_trusted(self) else max(within, DISTURBED_WITHIN)


def attempt(fabric: Experiment, schedule: Steps, prediction: Prediction) -> Attempt:
    """Execute a schedule until enough executions are undisturbed, or a limit is reached."""
    done = Executions(1, Repeats(REPEATS, REPEATS))
    depth_s = fabric.topology.least_depth_s
    with tempfile.TemporaryDirectory() as folder, observing(fabric, Path(folder)) as observer:
        for repeat in fabric.repeats(schedule, prediction, done.most, check_data=False):
            done.add(repeat, disturbed=is_disturbed(observer.note(repeat), depth_s))
            if done.are_enough:
                break
        counted = done.of_case.repeats
        headroom = machine_headroom(observer.observations(counted), 0)
    assert headroom is not None
    return Attempt(
        executions=counted,
        ratio=median(repeat.completion_s for repeat in counted) / prediction.completion_s,
        fidelity=Fidelity.of(machine_reasons(headroom), headroom=headroom),
        disturbed=len(done.disturbed),
        lost=headroom.lost,
    )


def undisturbed_attempt(fabric: Experiment, schedule: Steps, prediction: Prediction) -> Attempt:
    """Return the first attempt with enough machine headroom, or the nearest one of `ATTEMPTS`."""
    attempts: list[Attempt] = []
    while len(attempts) < ATTEMPTS:
        attempts.append(attempt(fabric, schedule, prediction))
        if _is_trusted(attempts[-1]):
            break
    return _nearest(attempts)


def agreeing_attempt(
    fabric: Experiment, schedule: Steps, prediction: Prediction, within: float
) -> Attempt:
    """Return the first attempt with a ratio `within` of 1, or the nearest one if there is none.

    A disturbed machine only delays: what takes as long as modeled on it is not slower than modeled.
    """
    attempts: list[Attempt] = []
    while len(attempts) < ATTEMPTS and sum(map(_is_trusted, attempts)) < CONFIRMED:
        found = attempt(fabric, schedule, prediction)
        if abs(found.ratio - 1) <= within:
            return found
        attempts.append(found)
    return _nearest(attempts)


def _nearest(attempts: Sequence[Attempt]) -> Attempt:
    """The attempt of ratio nearest 1, among the trusted ones if there are any."""
    trusted = [one for one in attempts if _is_trusted(one)]
    return min(trusted or attempts, key=lambda one: abs(one.ratio - 1))


def _is_trusted(found: Attempt) -> bool:
    return found.fidelity.verdict is Verdict.PASS
