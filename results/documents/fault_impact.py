"""The JSON object of a failure experiment."""

from collections.abc import Iterator
from dataclasses import asdict
from math import inf
from typing import Any

from results.verdicts.fault_impact import Failure
from results.verdicts.verdict import Verdict

FAILURE_KEYS = (
    "scenario",
    "case",
    "fault",
    "where",
    "fabric",
    "reaction",
    "blackout_ms",
    "healthy_s",
    "modeled_healthy_s",
    "struck_s",
    "faulty_s",
    "modeled_faulty_s",
    "ratio",
    "after_s",
    "probed_pairs",
    "untouched_pairs",
    "lost_probes_untouched",
    "times",
    "verdict",
    "reasons",
    "fidelity",
)


def failure_object(scenario: str, failure: Failure) -> dict[str, Any]:
    """A failure as `run --json` and `failures --json` print it; times in emulated seconds."""
    faulty, after = failure.faulty, failure.after
    return {
        "scenario": scenario,
        "case": failure.case,
        "fault": failure.fault,
        "where": failure.where,
        "fabric": failure.fabric,
        "reaction": failure.reaction,
        "blackout_ms": None if failure.blackout_ms == inf else failure.blackout_ms,
        "healthy_s": failure.healthy.measured.median,
        "modeled_healthy_s": failure.healthy.modeled_s,
        "struck_s": failure.struck_s,
        "faulty_s": faulty.measured.median if faulty else None,
        "modeled_faulty_s": faulty.modeled_s if faulty else None,
        "ratio": faulty.ratio if faulty else None,
        "after_s": after.measured.median if after else None,
        "probed_pairs": failure.probed_pairs,
        "untouched_pairs": failure.untouched_pairs,
        "lost_probes_untouched": failure.lost_probes_untouched,
        "times": [asdict(times) for times in failure.times],
        "verdict": failure.verdict.value,
        "reasons": [reason for _, reason in failure.reasons],
        "fidelity": dict(_fidelity(failure)),
    }


def _fidelity(failure: Failure) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each phase's name in the JSON object, with its fidelity."""
    yield "healthy", failure.healthy.fidelity.plain()
    yield "struck", failure.struck.plain()
    for phase, result in (("faulty", failure.faulty), ("after", failure.after)):
        if result is not None:
            yield phase, result.fidelity.plain()


def lost_experiment(scenario: str, cause: str) -> dict[str, Any]:
    """Return the object of an experiment that ended early, with the verdict fail."""
    unknown: dict[str, Any] = dict.fromkeys(FAILURE_KEYS)
    known = {
        "scenario": scenario,
        "fault": scenario,
        "times": [],
        "reasons": [cause],
        "fidelity": {},
    }
    return {**unknown, **known, "verdict": Verdict.FAIL.value}
