"""The benchmarks behind the figures of docs/reference/measurements.md: each yields rows."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from studies.benchmarks.accuracy.buckets import buckets
from studies.benchmarks.accuracy.calibration import calibration
from studies.benchmarks.accuracy.fidelity import fidelity
from studies.benchmarks.accuracy.gate import gate
from studies.benchmarks.accuracy.matrix import matrix
from studies.benchmarks.accuracy.noise import noisy
from studies.benchmarks.accuracy.sharing import sharing
from studies.benchmarks.accuracy.terms import terms
from studies.benchmarks.common.rows import Row
from studies.benchmarks.comparisons.agents import agents
from studies.benchmarks.comparisons.datapaths import datapaths
from studies.benchmarks.comparisons.mininet import mininet
from studies.benchmarks.comparisons.shapers import shapers
from studies.benchmarks.computation.routing import routing
from studies.benchmarks.computation.schedules import schedules
from studies.benchmarks.computation.traces import traces
from studies.benchmarks.computation.training import training
from studies.benchmarks.costs.capacity import capacity
from studies.benchmarks.costs.growth import growth
from studies.benchmarks.costs.live import live
from studies.benchmarks.costs.startup import startup
from studies.benchmarks.failures.blackout import blackout
from studies.benchmarks.failures.soak import soak

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
