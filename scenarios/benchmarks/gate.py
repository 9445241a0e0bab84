"""Whether the verdict by observation alone tells when the machine is overloaded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from model.errors import OutOfTolerance
from scenarios.benchmarks.rows import SIXTEEN, Row
from scenarios.library import LIBRARY
from scenarios.loading import load
from scenarios.progress import Silent
from scenarios.runner import run
from testbed.proxies import ProxyKind

NIC_MBIT_PER_S = (20, 40, 80, 160, 240, 320, 500)
# The gate must have turned before an error is larger than the one, and pass below the other.
LARGEST_ERROR, SMALL_ERROR = 0.05, 0.02


def gate(store: Path) -> Iterator[Row]:
    """The self-check at ever higher rates: error against the model, and verdict without it."""
    for rate in NIC_MBIT_PER_S:
        scale = SIXTEEN.nic_rate_bps / rate / 1e6
        facts = {"gpus": SIXTEEN.gpus, "proxies": ProxyKind.PROCESS.value, "nic_mbit_per_s": rate}
        scenario = load(LIBRARY / "self-check.yaml", [f"fabric.bandwidth_scale={scale}"])
        try:
            cases = run(scenario, ProxyKind.PROCESS, store, Silent())["cases"]
        except OutOfTolerance as error:  # stopped before the gate has a say
            why = str(error).partition("\n")[0]
            yield {**facts, "case": "all", "verdict": "fail", "reasons": [why]}
            continue
        yield from ({**facts, **judged(case)} for case in cases)


def judged(case: dict[str, Any]) -> Row:
    """A case's error, and whether the verdict by observation was right about it."""
    error, seen = abs(case["ratio"] - 1), case["fidelity"]
    passes = seen["verdict"] == "pass"
    return {
        "case": case["case"],
        "ratio": case["ratio"],
        "idle": seen["idle_mean"],
        "switch_full": seen["switch_saturated"],
        "beside_switch": seen["beside_switch"],
        "wait": seen["run_delay"],
        "again_per_s": seen["retransmits_per_s"],
        "verdict": seen["verdict"],
        "reasons": seen["reasons"],
        "right": not ((passes and error > LARGEST_ERROR) or (not passes and error < SMALL_ERROR)),
    }
