"""The benchmarks behind the figures of docs/reference/measurements.md: each yields rows."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from scenarios.benchmarks.accuracy.buckets import buckets
from scenarios.benchmarks.accuracy.calibration import calibration
from scenarios.benchmarks.accuracy.fidelity import fidelity
from scenarios.benchmarks.accuracy.gate import gate
from scenarios.benchmarks.accuracy.matrix import matrix
from scenarios.benchmarks.accuracy.noise import noisy
from scenarios.benchmarks.accuracy.sharing import sharing
from scenarios.benchmarks.accuracy.terms import terms
from scenarios.benchmarks.common.rows import Row
from scenarios.benchmarks.comparisons.agents import agents
from scenarios.benchmarks.comparisons.datapaths import datapaths
from scenarios.benchmarks.comparisons.mininet import mininet
from scenarios.benchmarks.comparisons.shapers import shapers
from scenarios.benchmarks.computation.routing import routing
from scenarios.benchmarks.computation.schedules import schedules
from scenarios.benchmarks.computation.traces import traces
from scenarios.benchmarks.computation.training import training
from scenarios.benchmarks.costs.capacity import capacity
from scenarios.benchmarks.costs.growth import growth
from scenarios.benchmarks.costs.live import live
from scenarios.benchmarks.costs.startup import startup
from scenarios.benchmarks.failures.blackout import blackout
from scenarios.benchmarks.failures.soak import soak

BENCHMARKS: dict[str, Callable[[Path], Iterator[Row]]] = {
    "fidelity": fidelity,
    "startup": startup,
    "growth": growth,
    "capacity": capacity,
    "gate": gate,
    "matrix": matrix,
    "noise": noisy,
    "buckets": buckets,
    "calibration": calibration,
    "datapaths": datapaths,
    "shapers": shapers,
    "agents": agents,
    "routing": routing,
    "schedules": schedules,
    "blackout": blackout,
    "sharing": sharing,
    "live": live,
    "mininet": mininet,
    "terms": terms,
    "traces": traces,
    "training": training,
}
WITHOUT_FABRIC = frozenset({"routing", "schedules", "terms", "traces", "training"})
WITH_CONTAINERS = frozenset({"fidelity", "startup", "capacity", "matrix", "soak"})
# Benchmarks that take processor time from the machine they run on.
WITH_NOISE = frozenset({"buckets", "gate", "noise", "shapers"})
# Benchmarks of this machine itself.
REAL_ONLY = WITH_NOISE | {"live", "soak"}


def benchmarks(minutes: float, seed: int) -> dict[str, Callable[[Path], Iterator[Row]]]:
    """All benchmarks by name; `soak` lasts as long as it is told to."""
    return {**BENCHMARKS, "soak": partial(soak, minutes=minutes, seed=seed)}
