"""Rows of a case's observations, and whether the verdict by observation alone was right."""

from typing import Any

from studies.benchmarks.common.rows import Row

# A right verdict by observation alone: no pass if the error is above `NEVER_PASSED`, a fail if
# above `ALWAYS_FAILED`, and no fail if below `NEVER_FAILED`.
NEVER_PASSED, ALWAYS_FAILED, NEVER_FAILED = 0.03, 0.08, 0.02


def seen(case: dict[str, Any]) -> Row:
    """Return the row of a case of a run's JSON object: times against the model, observations."""
    measured, fidelity = case["measured_s"], case["fidelity"]
    return {
        "case": case["case"],
        "ratio": case["ratio"],
        "spread": (measured["max"] - measured["min"]) / measured["median"],
        "counted": len(measured["values"]),
        "disturbed": len(case["disturbed_s"]),
        "lost": fidelity["lost"],
        "pauses_per_s": fidelity["pauses_per_s"],
        "longest_ms": 1e3 * fidelity["pause_longest_s"],
        "idle": fidelity["idle_mean"],
        "strain": fidelity["strain"],
        "strain_max": fidelity["strain_max"],
        "switch_never_done": fidelity["switch_never_done"],
        "switch_starved": fidelity["switch_starved"],
        "beside_switch": fidelity["beside_switch"],
        "agents_wait": fidelity["agents_run_delay_mean"],
        "one_agent": fidelity["agents_run_delay_max"],
        "again_per_s": fidelity["retransmits_per_s"],
        "observed": fidelity["verdict"],
        "verdict": case["verdict"],
        "reasons": fidelity["reasons"],
    }


def judged(case: dict[str, Any]) -> Row:
    """Return the row of `seen`, and whether the verdict by observation alone fits the error."""
    right = is_judged_right(abs(case["ratio"] - 1), case["fidelity"]["verdict"])
    return {**seen(case), "judged_right": right}


def is_judged_right(error: float, verdict: str) -> bool:
    """Whether a verdict by observation alone fits the error against the model."""
    if error > ALWAYS_FAILED:
        return verdict == "fail"
    if error > NEVER_PASSED:
        return verdict != "pass"
    return verdict != "fail" or error >= NEVER_FAILED
