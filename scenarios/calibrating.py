"""Calibration of a fabric that has just come up: is each class of its links what it should be?"""

from collections.abc import Callable
from functools import partial
from itertools import chain

from model.calibration import LinkCalibration, representatives
from model.errors import OutOfTolerance
from scenarios.experiment import Experiment
from testbed.calibration import measure

# A machine does other things at times; a link that is wrong is wrong each time.
TRIALS = 3

Directions = tuple[LinkCalibration, LinkCalibration]


def calibrate(fabric: Experiment) -> tuple[LinkCalibration, ...]:
    """Some links of each class, each direction alone; what is right once is right."""
    links = representatives(fabric.topology)
    tried = (best_trial(partial(measure, fabric.bed, link)) for link in links)
    return tuple(chain.from_iterable(tried))


def best_trial(trial: Callable[[], Directions]) -> Directions:
    """The best of some trials of both directions, each by itself; if all is well, there is one."""
    best = trial()
    for _ in range(TRIALS - 1):
        if not any(direction.flaws for direction in best):
            break
        up, down = zip(best, trial(), strict=True)
        best = min(up, key=_flaw), min(down, key=_flaw)
    return best


def _flaw(direction: LinkCalibration) -> tuple[bool, float]:
    """Sorts those without a flaw first, and then by the rate: what disturbs makes it less."""
    return bool(direction.flaws), abs(direction.rate_error)


def require_calibrated(fabric: str, links: tuple[LinkCalibration, ...]) -> None:
    """Raise `OutOfTolerance` with all that is out of tolerance."""
    flaws = [
        f"{fabric}: {direction.kind} {direction.link}, {direction.direction}wards: {flaw}"
        for direction in links
        for flaw in direction.flaws
    ]
    if flaws:
        raise OutOfTolerance(
            "\n".join(flaws)
            + f"\nEach was measured alone, {TRIALS} times. Is this machine busy, or does "
            "another program change its traffic control? Try again when it is idle, or with a "
            'larger fabric.bandwidth_scale; see docs/measuring.md, "Calibration".'
        )
