"""The JSON objects of calibrated links, each measured alone."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
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
    found = {
        "rate_error": trial.rate_error,
        "flaws": list(trial.deviations),
        "outcome": trial.outcome,
    }
    return {**asdict(trial), **found}
