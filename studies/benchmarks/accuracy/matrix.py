"""Benchmark every collective with every algorithm on both fabrics, at three sizes."""

from collections.abc import Iterator
from pathlib import Path

from execution.cases.progress import SILENT
from execution.run import run
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.planning.machine_profile import known_machine
from studies.benchmarks.common.rows import FAILED, Row, part
from studies.benchmarks.common.seen import seen
from testbed.nodes.gpu_proxies import ProxyKind

SCENARIO = LIBRARY / "collectives.yaml"
SIZES = ("2 MB", "4 MB", "8 MB")
# Shares of all cells are counted within these errors against the model.
WITHIN = (0.01, 0.02, 0.04)


def matrix(store: Path) -> Iterator[Row]:
    """Yield a row for each cell, medians of five executions, and one that counts them."""
    rows: list[Row] = []
    for size in SIZES:
        for row in part(_cells(size, store), proxies=ProxyKind.CONTAINER.value, size=size):
            rows.append(row)
            yield row
    yield _counted([abs(row["ratio"] - 1) for row in rows if FAILED not in row])


def _cells(size: str, store: Path) -> Iterator[Row]:
    machine, plain = known_machine(), load(SCENARIO)
    workloads = len(plain.cases) // len(plain.fabrics)
    sizes = [f"workloads.{number}.size={size}" for number in range(workloads)]
    scenario = load(SCENARIO, ["repeats=5", *sizes], machine=machine)
    yield from map(seen, run(scenario, ProxyKind.CONTAINER, store, SILENT)["cases"])


def _counted(errors: list[float]) -> Row:
    shares = {f"within_{100 * limit:.0f}_percent": _share(errors, limit) for limit in WITHIN}
    return {"cells": len(errors), **shares, "worst": max(errors, default=0.0)}


def _share(errors: list[float], limit: float) -> float:
    return sum(error <= limit for error in errors) / len(errors) if errors else 0.0
