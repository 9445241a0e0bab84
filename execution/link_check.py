"""Calibrate a fabric that has just come up: measure links of each class, one at a time."""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from execution.cases.emulation import Experiment
from model.errors import OutOfTolerance
from model.fabric.topology import Hop
from model.measurement.link_quality import (
    WRONG_AFTER,
    Direction,
    DirectionCalibration,
    LinkCalibration,
    Outcome,
    representatives,
)
from results.store.runs import folder_name
from results.verdicts.verdict import Reason, Verdict
from testbed.instruments.link_calibration import measure
from testbed.instruments.pauses import watching_pauses

# Inconclusive links are measured again, for at most this long for all links of a fabric together.
PATIENCE_S = 8.0


def calibrate(fabric: Experiment) -> tuple[DirectionCalibration, ...]:
    """Measure some links of each class, each direction alone, until decided or out of time."""
    give_up_s = time.monotonic() + PATIENCE_S
    with watching_pauses() as watch:
        return tuple(
            calibrate_direction(
                partial(measure, fabric.bed, hop, watch), lambda: time.monotonic() < give_up_s
            )
            for link in representatives(fabric.topology)
            for hop in (Hop(link, link.lower.node), Hop(link, link.upper.node))
        )


def calibrate_direction(
    trial: Callable[[int], LinkCalibration], may_go_on: Callable[[], bool]
) -> DirectionCalibration:
    """Run trials, numbered from 1, until one is right, enough are wrong, or time is up."""
    trials: tuple[LinkCalibration, ...] = (trial(1),)
    while (direction := DirectionCalibration(trials)).outcome is Outcome.INCONCLUSIVE:
        if len(trials) >= WRONG_AFTER and not may_go_on():
            break
        trials = (*trials, trial(len(trials) + 1))
    return direction


def require_calibrated(fabric: str, links: Iterable[DirectionCalibration]) -> None:
    """Raise `OutOfTolerance` with all issues of links found wrong, machine pauses left out."""
    deviations = [
        f"{_named(fabric, link)}: {deviation}"
        for link in links
        if link.outcome is Outcome.WRONG
        for deviation in link.counted.deviations
    ]
    if deviations:
        raise OutOfTolerance(
            "\n".join(deviations)
            + f"\nEach was measured alone, at least {WRONG_AFTER} times, without this machine's "
            "pauses. Does another program change the traffic control? Or use a larger "
            'fabric.bandwidth_scale; see docs/explanation/measuring.md, "Calibration".'
        )


def inconclusive_reasons(fabric: str, links: Iterable[DirectionCalibration]) -> list[Reason]:
    """Return a warning that names the inconclusive links: the run goes on, its cases report it."""
    open_links = [link for link in links if link.outcome is Outcome.INCONCLUSIVE]
    if not open_links:
        return []
    which = ", ".join(_named(fabric, link) for link in open_links[:2])
    more = f" and {len(open_links) - 2} more" if len(open_links) > 2 else ""
    filled = all(link.counted.can_be_filled for link in open_links)
    cause = "the machine paused" if filled else "this CPU cannot saturate these links"
    return [(Verdict.WARN, f"calibration inconclusive: {cause} ({which}{more})")]


def _named(fabric: str, calibration: DirectionCalibration) -> str:
    link = calibration.counted
    direction = "up" if link.direction is Direction.UP else "down"
    return f"{fabric}: {link.kind} {link.link}, {direction}wards"


def calibration_object(name: str, measured: Iterable[DirectionCalibration]) -> dict[str, Any]:
    """Return the JSON object of a fabric, named by its kind, or by the only case that it is for."""
    links = list[dict[str, Any]]()
    for link in measured:
        trials = [_trial(trial) for trial in link.trials]
        links.append({**_trial(link.counted), "outcome": link.outcome, "trials": trials})
    files = folder_name(name)
    case = {} if files == name else {"case": name}
    return {"fabric": files, **case, "links": links}


def _trial(trial: LinkCalibration) -> dict[str, Any]:
    train, rates, pauses = trial.train, trial.rates, trial.pauses
    return {
        "link": trial.link,
        "kind": trial.kind,
        "direction": trial.direction,
        "nominal_bps": rates.nominal_bps,
        "rate_bps": rates.measured_bps,
        "others_bps": rates.others_bps,
        "latency_s": trial.latency_s,
        "gap_s": train.gap_s,
        "gap_error_median": trial.gap_error_median,
        "gap_error_p95": trial.gap_error_p95,
        "frames": train.frames,
        "sender_bps": rates.sender_bps,
        "sender_wait_s": trial.sender_wait_s,
        "seconds": train.seconds,
        "undisturbed_s": trial.undisturbed_s,
        "paused_s": pauses.total_s,
        "pause_longest_s": pauses.longest_s,
        "queued_s": train.queued_s,
        "watched": trial.watched,
        "trial": trial.trial,
        "rate_error": rates.error,
        "deviations": trial.deviations,
        "outcome": trial.outcome,
    }
