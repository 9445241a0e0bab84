"""The cases, failure experiments and jobs of a run's JSON object as rows of tables."""

from collections.abc import Mapping
from typing import Any

from results.store.raw_tables import CASE, REAL, TEXT, WHOLE

CASES = {
    **dict.fromkeys((CASE, "fabric", "collective", "algorithm", "verdict"), TEXT),
    **dict.fromkeys(("domains", "domain_size", "gpus", "bytes", "retransmits"), WHOLE),
    **dict.fromkeys(("bandwidth_scale", "size_scale", "time_dilation", "median_s"), REAL),
    **dict.fromkeys(("modeled_s", "lower_bound_s", "real_s", "ratio"), REAL),
    **dict.fromkeys(("algbw_gbyte_per_s", "busbw_gbyte_per_s"), REAL),
    "values_s": f"{REAL}[]",
    "reasons": f"{TEXT}[]",
}
FAILURES = {
    **dict.fromkeys((CASE, "fault", "component", "fabric", "strategy", "verdict"), TEXT),
    **dict.fromkeys(("blackout_ms", "baseline_s", "modeled_baseline_s", "during_fault_s"), REAL),
    **dict.fromkeys(("degraded_s", "modeled_degraded_s", "ratio", "recovered_s"), REAL),
    **dict.fromkeys(("probed_pairs", "unaffected_pairs", "lost_probes_unaffected"), WHOLE),
    "reasons": f"{TEXT}[]",
}
INTERFERENCE = {
    **dict.fromkeys((CASE, "alone", "job", "verdict"), TEXT),
    **dict.fromkeys(("alone_s", "modeled_alone_s", "together_s", "modeled_together_s"), REAL),
    **dict.fromkeys(("interference", "modeled_interference"), REAL),
}
JUDGED_TABLES = {"cases": CASES, "failures": FAILURES, "interference": INTERFERENCE}


def judged_rows(result: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each table."""
    return {
        "cases": [_case(case) for case in result["cases"]],
        "failures": [_failure(failure) for failure in result["failures"]],
        "interference": [_interference(job) for job in result.get("interference", ())],
    }


def _case(case: Mapping[str, Any]) -> dict[str, Any]:
    measured, fabric = case["measured_s"], case["fabric"]
    named = {CASE: case["case"], "fabric": fabric["kind"]}
    values = {"median_s": measured["median"], "values_s": measured["values"]}
    return _known({**case, **fabric, **named, **values}, CASES)


def _failure(failure: Mapping[str, Any]) -> dict[str, Any]:
    # `where` is a word of SQL, too.
    named = {CASE: failure["case"], "component": failure["where"]}
    return _known({**failure, **named}, FAILURES)


def _interference(job: Mapping[str, Any]) -> dict[str, Any]:
    pairs = {key: job[key] for key in ("alone_s", "together_s", "interference")}
    measured = {key: pair["measured"] for key, pair in pairs.items()}
    modeled = {f"modeled_{key}": pair["modeled"] for key, pair in pairs.items()}
    return _known({**job, CASE: job["case"], **measured, **modeled}, INTERFERENCE)


def _known(row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    return {column: row[column] for column in columns}
