"""The JSON object of a failure experiment."""

from collections.abc import Iterator
from dataclasses import asdict
from math import inf
from typing import Any

from results.store.runs import BASELINE, DEGRADED, DURING, RECOVERED
from results.verdicts.fault_impact import FaultImpact, Restart
from results.verdicts.model_comparison import CaseResult
from results.verdicts.verdict import Verdict


def failure_object(scenario: str, impact: FaultImpact) -> dict[str, Any]:
    """A failure as `run --json` and `failures --json` print it; times in emulated seconds."""
    probes, degraded, recovered = impact.probes, impact.degraded, impact.recovered
    return {
        "scenario": scenario,
        "case": impact.case,
        "fault": impact.fault,
        "where": impact.where,
        "fabric": impact.fabric,
        "strategy": impact.strategy,
        "blackout_ms": None if probes.blackout_ms == inf else probes.blackout_ms,
        "baseline_s": impact.baseline.measured_s,
        "modeled_baseline_s": impact.baseline.modeled.completion_s,
        "during_fault_s": impact.during.seconds,
        **_restart(impact.during.restart),
        "degraded_s": degraded.measured_s if degraded else None,
        "modeled_degraded_s": degraded.modeled.completion_s if degraded else None,
        "ratio": degraded.ratio if degraded else None,
        **_replay(impact.replay),
        "recovered_s": recovered.measured_s if recovered else None,
        "probed_pairs": probes.affected_pairs,
        "unaffected_pairs": probes.unaffected_pairs,
        "probes_unaffected": probes.sent_unaffected,
        "lost_probes_unaffected": probes.lost_unaffected,
        "skipped": max(probes.skipped, default=0.0),
        "times": [asdict(times) for times in impact.during.times],
        "verdict": impact.verdict.value,
        "reasons": [reason for _, reason in impact.reasons],
        "fidelity": dict(_fidelity(impact)),
    }


def _fidelity(impact: FaultImpact) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each phase's name in the JSON object, with its fidelity."""
    yield BASELINE, impact.baseline.fidelity.plain()
    yield DURING, impact.during.fidelity.plain()
    for phase, result in ((DEGRADED, impact.degraded), (RECOVERED, impact.recovered)):
        if result is not None:
            yield phase, result.fidelity.plain()


def _replay(replay: CaseResult | None) -> dict[str, Any]:
    return {
        "modeled_replay_s": replay.modeled.completion_s if replay else None,
        "replay_ratio": replay.ratio if replay else None,
        "replay_verdict": replay.verdict.value if replay else None,
    }


def _restart(restart: Restart | None) -> dict[str, float | None]:
    return {
        "aborted_s": restart.aborted_s if restart else None,
        "back_s": restart.back_s if restart else None,
        "modeled_during_fault_s": restart.modeled_end_s if restart else None,
    }


def lost_experiment(scenario: str, cause: str) -> dict[str, Any]:
    """Return the object of an experiment that ended early, with the verdict fail."""
    return {
        "scenario": scenario,
        "case": None,
        "fault": None,
        "where": None,
        "fabric": None,
        "strategy": None,
        "blackout_ms": None,
        "baseline_s": None,
        "modeled_baseline_s": None,
        "during_fault_s": None,
        **_restart(None),
        "degraded_s": None,
        "modeled_degraded_s": None,
        "ratio": None,
        **_replay(None),
        "recovered_s": None,
        "probed_pairs": None,
        "unaffected_pairs": None,
        "probes_unaffected": None,
        "lost_probes_unaffected": None,
        "skipped": None,
        "times": [],
        "verdict": Verdict.FAIL.value,
        "reasons": [cause],
        "fidelity": {},
    }
