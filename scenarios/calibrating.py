"""Calibration of a fabric that has just come up: is each class of its links what it should be?"""

from model.calibration import LinkCalibration, representatives
from model.errors import OutOfTolerance
from model.topology import Link
from scenarios.experiment import Experiment
from testbed.calibration import measure

# A machine does other things at times; a link that is wrong is wrong each time.
TRIALS = 3


def calibrate(fabric: Experiment) -> tuple[LinkCalibration, ...]:
    """Some links of each class, each direction alone; what is right once is right."""
    links = representatives(fabric.topology)
    return tuple(direction for link in links for direction in _calibrate_link(fabric, link))


def _calibrate_link(fabric: Experiment, link: Link) -> tuple[LinkCalibration, ...]:
    directions: tuple[LinkCalibration, ...] = measure(fabric.bed, link)
    for _ in range(TRIALS - 1):
        if not any(direction.flaws for direction in directions):
            break
        again = zip(directions, measure(fabric.bed, link), strict=True)
        directions = tuple(min(both, key=_flaw) for both in again)
    return directions


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
