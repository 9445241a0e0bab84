"""The JSON objects of calibrated links, each measured alone."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from model.measurement.link_quality import DirectionCalibration, LinkCalibration


def calibration_objects(
    fabrics: Mapping[str, Sequence[DirectionCalibration]],
) -> list[dict[str, Any]]:
    """Return an object per fabric: for each link direction the counted trial, and all trials."""
    return [
        {"fabric": fabric, "links": [_direction_object(link) for link in links]}
        for fabric, links in fabrics.items()
    ]


def _direction_object(direction: DirectionCalibration) -> dict[str, Any]:
    trials = [_trial_object(trial) for trial in direction.trials]
    return {**_trial_object(direction.counted), "outcome": direction.outcome, "trials": trials}


def _trial_object(trial: LinkCalibration) -> dict[str, Any]:
    found = {
        "rate_error": trial.rate_error,
        "flaws": list(trial.deviations),
        "outcome": trial.outcome,
    }
    return {**asdict(trial), **found}
