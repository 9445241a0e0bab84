"""Benchmark how close measurements are to the model."""

from collections.abc import Iterator
from pathlib import Path

from execution.cases.progress import SILENT
from execution.run import run
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.planning.machine_profile import known_machine
from studies.benchmarks.common.fabrics import containers
from studies.benchmarks.common.rows import SIXTEEN, Row, part


def fidelity(store: Path) -> Iterator[Row]:
    """Measured over modeled, for every case of the quickstart and of its DGX A100 variant."""
    facts = {"gpus": SIXTEEN.gpus, "proxies": containers().value}
    for name in ("quickstart", "moe-dgx-a100"):
        yield from part(_scenario(name, store), **facts, scenario=name)


def _scenario(name: str, store: Path) -> Iterator[Row]:
    scenario = load(LIBRARY / f"{name}.yaml", machine=known_machine())
    result = run(scenario, containers(), store, SILENT)
    for case in result["cases"]:
        yield {
            "case": case["case"],
            "measured_s": case["measured_s"]["median"],
            "modeled_s": case["modeled_s"],
            "ratio": case["ratio"],
            "verdict": case["verdict"],
        }
    for slowdown in result["slowdowns"]:
        yield {
            "case": slowdown["case"],
            "slowdown_measured_percent": 100 * slowdown["measured"],
            "slowdown_modeled_percent": 100 * slowdown["modeled"],
        }
