"""Rows of figures, the fabric of sixteen GPUs, and whether a verdict by observation was right."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from model.errors import EmulationError, NotReady
from model.fabric.spec import GBIT, FabricKind, FabricSpec, HbNetwork, NicNetwork
from model.workload.generator import Generator

Row = dict[str, Any]
# Key of a row whose part of a benchmark ended early; its value is the cause.
FAILED = "failed"
# A right verdict by observation alone: no pass if the error is above `NEVER_PASSED`, a fail if
# above `ALWAYS_FAILED`, and no fail if below `NEVER_FAILED`.
NEVER_PASSED, ALWAYS_FAILED, NEVER_FAILED = 0.03, 0.08, 0.02
SIXTEEN = FabricSpec(
    kind=FabricKind.RAIL_ONLY,
    domains=4,
    domain_size=4,
    platform="dgx-h100",
    hb=HbNetwork(3600 * GBIT),
    nic=NicNetwork(400 * GBIT, spines=4),
    bandwidth_scale=20_000,
)


def resized(domains: int, domain_size: int) -> FabricSpec:
    """Return `SIXTEEN` in another size, with as many spines as domains."""
    nic = replace(SIXTEEN.nic, spines=domains)
    return replace(SIXTEEN, domains=domains, domain_size=domain_size, nic=nic)


def sized(domains: int, domain_size: int) -> FabricSpec:
    """Return `SIXTEEN` in another size, with the same total rate of all links."""
    scale = SIXTEEN.bandwidth_scale * domains * domain_size / SIXTEEN.gpus
    return replace(resized(domains, domain_size), bandwidth_scale=scale)


def part(rows: Iterable[Row], **facts: Any) -> Iterator[Row]:
    """Yield the rows of a part of a benchmark, each with the common `facts`.

    If the part ends early, its last row has the cause; other parts still have their rows.
    """
    try:
        for row in rows:
            yield {**facts, **row}
    except (EmulationError, NotReady) as error:
        yield {**facts, FAILED: str(error).partition("\n")[0]}


def seen(case: dict[str, Any]) -> Row:
    """Return the row of a case of a run's JSON object: times against the model, observations.

    A case of crafted packets has neither.
    """
    measured, fidelity = case["measured_s"], case["fidelity"]
    named = {
        "case": case["case"],
        "fabric": case["fabric"]["kind"],
        **{key: case[key] for key in ("collective", "algorithm", "generator", "variant")},
    }
    if not Generator(case["generator"]).is_timed:
        return {**named, "verdict": case["verdict"]}
    return {
        **named,
        "measured_s": measured["median"],
        "modeled_s": case["modeled_s"],
        "ratio": case["ratio"],
        "spread": (measured["max"] - measured["min"]) / measured["median"],
        "counted": len(measured["values"]),
        "disturbed": len(case["disturbed_s"]),
        "lost": fidelity["lost"],
        "pauses_per_s": fidelity["pauses_per_s"],
        "longest_ms": 1e3 * fidelity["pause_longest_s"],
        "idle": fidelity["idle_mean"],
        "delay_share": fidelity["delay_share"],
        "delay_share_max": fidelity["delay_share_max"],
        "switch_never_idle": fidelity["switch_never_idle"],
        "switch_backlogged": fidelity["switch_backlogged"],
        "beside_switch": fidelity["beside_switch"],
        "agents_wait": fidelity["agents_run_delay_mean"],
        "one_agent": fidelity["agents_run_delay_max"],
        "again_per_s": fidelity["retransmits_per_s"],
        "observed": fidelity["verdict"],
        "verdict": case["verdict"],
        "reasons": fidelity["reasons"],
        **{key: case.get("contention", {}).get(key) for key in ("jain", "grains")},
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
