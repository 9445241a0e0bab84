"""Benchmark the computation of a large fabric's desired state."""

import gc
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from controller.forwarding.planner import DesiredState, Planner
from model.fabric.health import HEALTHY, Health, without
from model.fabric.spec import FabricKind
from model.fabric.topology import LinkKind, Topology, build_topology
from studies.benchmarks.common.rows import Row, resized

ROUTING_TRIALS = 5


def routing(_store: Path) -> Iterator[Row]:
    """Measure processor time for the desired state of 1024 GPUs: from scratch, after failures."""
    for kind in FabricKind:
        topology = build_topology(replace(resized(128, 8), kind=kind))
        for change, health in _changes(topology).items():
            trials = [_planned(topology, health) for _ in range(ROUTING_TRIALS)]
            seconds, changed = zip(*trials, strict=True)
            yield {
                "gpus": topology.spec.gpus,
                "fabric": kind.value,
                "change": change,
                "desired_state_s": median(seconds),
                "desired_state_max_s": max(seconds),
                "entries_changed": changed[0],
            }


def _changes(topology: Topology) -> dict[str, Health | None]:
    """Health by change: from scratch (`None`), one link of each kind lost, a rail switch lost."""
    names = {kind: [k.name for k in topology.links if k.kind is kind] for kind in LinkKind}
    switch = topology.rail_switches[len(topology.rail_switches) // 2]
    return {
        "from scratch": None,
        **{f"one {k}": Health(frozenset({of[len(of) // 2]})) for k, of in names.items() if of},
        "rail switch": without(topology, [switch]),
    }


def _planned(topology: Topology, health: Health | None) -> tuple[float, int]:
    """Return seconds of processor time, and the number of rules and routes added or removed.

    As in the controller, the garbage collector skips the state from before the failure.
    """
    planner = Planner(topology)
    before = DesiredState({}, {}, ()) if health is None else planner.state(HEALTHY)
    gc.freeze()
    began_s = time.process_time()
    after = Planner(topology).state(HEALTHY) if health is None else planner.state(health)
    seconds = time.process_time() - began_s
    gc.unfreeze()
    changed = [after.rules[name] ^ before.rules.get(name, frozenset()) for name in after.rules]
    routed = [after.routes[name] ^ before.routes.get(name, frozenset()) for name in after.routes]
    return seconds, sum(map(len, (*changed, *routed)))
