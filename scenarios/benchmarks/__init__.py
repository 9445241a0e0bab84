"""The benchmarks behind the figures of docs/reference/measurements.md: each yields rows."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from scenarios.benchmarks.agents import agents
from scenarios.benchmarks.blackout import blackout
from scenarios.benchmarks.buckets import buckets
from scenarios.benchmarks.calibration import calibration
from scenarios.benchmarks.capacity import capacity
from scenarios.benchmarks.common.rows import Row
from scenarios.benchmarks.datapaths import datapaths
from scenarios.benchmarks.fidelity import fidelity
from scenarios.benchmarks.gate import gate
from scenarios.benchmarks.growth import growth
from scenarios.benchmarks.live import live
from scenarios.benchmarks.matrix import matrix
from scenarios.benchmarks.mininet import mininet
from scenarios.benchmarks.noise import noisy
from scenarios.benchmarks.routing import routing
from scenarios.benchmarks.schedules import schedules
from scenarios.benchmarks.shapers import shapers
from scenarios.benchmarks.sharing import sharing
from scenarios.benchmarks.soak import soak
from scenarios.benchmarks.startup import startup
from scenarios.benchmarks.terms import terms
from scenarios.benchmarks.traces import traces
from scenarios.benchmarks.training import training

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
