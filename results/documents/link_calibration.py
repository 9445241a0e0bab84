"""The JSON objects of calibrated links, each measured alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from model.measurement.link_quality import DirectionCalibration, LinkCalibration
from results.store.runs import folder_name


def calibration_objects(
    fabrics: Mapping[str, Sequence[DirectionCalibration]],
) -> list[dict[str, Any]]:
    """Return an object per fabric: for each link direction the counted trial, and all trials.

    Fabrics are named by their kind, or by the case that has one of its own.
    """
    return [
        {**_named(fabric), "links": [_direction_object(link) for link in links]}
        for fabric, links in fabrics.items()
    ]


def _named(fabric: str) -> dict[str, str]:
    """Return the name of the fabric's files, and of its case if it is the fabric of one."""
    files = folder_name(fabric)
    return {"fabric": files} if files == fabric else {"fabric": files, "case": fabric}


def _direction_object(direction: DirectionCalibration) -> dict[str, Any]:
    trials = [_trial_object(trial) for trial in direction.trials]
    return {**_trial_object(direction.counted), "outcome": direction.outcome, "trials": trials}


def _trial_object(trial: LinkCalibration) -> dict[str, Any]:
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
        "gap_error_median": trial.gap_errors.median,
        "gap_error_p95": trial.gap_errors.p95,
        "frames": train.frames,
        "sender_bps": rates.sender_bps,
        "seconds": train.seconds,
        "undisturbed_s": trial.undisturbed_s,
        "paused_s": pauses.total_s,
        "pause_longest_s": pauses.longest_s,
        "queued_s": train.queued_s,
        "watched": pauses.watched,
        "trial": trial.trial,
        "rate_error": rates.error,
        "deviations": list(trial.deviations),
        "outcome": trial.outcome,
    }
