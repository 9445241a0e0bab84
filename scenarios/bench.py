"""The benchmarks behind the figures of docs/measuring.md: each returns rows."""

import gc
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from controller.desired import DesiredState, Planner, desired_state
from model.fabric import FabricKind, FabricSpec
from model.health import HEALTHY, Health, without
from model.platforms import GBIT
from model.schedule import Collective
from model.topology import LinkKind, Topology, build_topology
from scenarios.blackout_trials import trials
from scenarios.experiment import experiment
from scenarios.iperf_comparison import iperf3_cpu_s
from scenarios.library import LIBRARY
from scenarios.loading import load
from scenarios.progress import Silent
from scenarios.runner import run
from testbed.marks import marked_run
from testbed.proxies import ProxyKind
from traffic_gen.collectives import build_schedule

Row = dict[str, Any]
STARTUP_TRIALS = ROUTING_TRIALS = 5
SIXTEEN = FabricSpec(
    kind=FabricKind.RAIL_ONLY,
    domains=4,
    domain_size=4,
    platform="dgx-h100",
    hb_rate_bps=3600 * GBIT,
    nic_rate_bps=400 * GBIT,
    bandwidth_scale=20_000,
    spines=4,
)


def startup(_store: Path) -> Iterator[Row]:
    """Seconds from the first command to all rules confirmed, and until all is down again."""
    for proxies in ProxyKind:
        for kind in FabricKind:
            spec = replace(SIXTEEN, kind=kind)
            trials = [_up_and_down(spec, proxies) for _ in range(STARTUP_TRIALS)]
            up, down = zip(*trials, strict=True)
            yield {
                "gpus": spec.gpus,
                "proxies": proxies.value,
                "fabric": kind.value,
                "up_s": median(up),
                "up_max_s": max(up),
                "down_s": median(down),
            }


def _up_and_down(spec: FabricSpec, proxies: ProxyKind) -> tuple[float, float]:
    mark_id = f"bench-{os.getpid()}-{spec.kind}"
    with marked_run(mark_id) as mark, experiment(spec, proxies, mark) as fabric:
        up_s, leaving_s = fabric.up_s, time.monotonic()
    return up_s, time.monotonic() - leaving_s


def fidelity(store: Path) -> Iterator[Row]:
    """Measured over modeled, for every case of the quickstart and of its DGX A100 variant."""
    for name in ("quickstart", "moe-dgx-a100"):
        result = run(load(LIBRARY / f"{name}.yaml"), ProxyKind.CONTAINER, store, Silent())
        for case in result["cases"]:
            yield {
                "gpus": case["gpus"],
                "proxies": ProxyKind.CONTAINER.value,
                "scenario": name,
                "case": case["case"],
                "measured_s": case["measured_s"]["median"],
                "modeled_s": case["modeled_s"],
                "ratio": case["ratio"],
                "verdict": case["verdict"],
            }
        for slowdown in result["slowdowns"]:
            yield {
                "gpus": SIXTEEN.gpus,
                "proxies": ProxyKind.CONTAINER.value,
                "scenario": name,
                "case": slowdown["case"],
                "slowdown_measured_percent": 100 * slowdown["measured"],
                "slowdown_modeled_percent": 100 * slowdown["modeled"],
            }


def agents(_store: Path) -> Iterator[Row]:
    """Processor time of the agents and of iperf3, for the same bytes on the same links."""
    mark_id = f"bench-{os.getpid()}-agents"
    with marked_run(mark_id) as mark, experiment(SIXTEEN, ProxyKind.PROCESS, mark) as fabric:
        for collective, algorithm, size in (
            (Collective.ALL_GATHER, "hierarchical", 24_000_000),
            (Collective.ALL_TO_ALL, "two-step", 12_000_000),
        ):
            schedule = build_schedule(collective, algorithm, 4, 4, size)
            prediction = fabric.predict(schedule)
            repeats = list(fabric.repeats(schedule, prediction, 6, verify=False))[1:]
            ours = median(repeat.agents_cpu_s for repeat in repeats)
            theirs = median(iperf3_cpu_s(fabric, schedule) for _ in range(3))
            yield {
                "gpus": SIXTEEN.gpus,
                "proxies": ProxyKind.PROCESS.value,
                "collective": collective.value,
                "algorithm": algorithm,
                "bytes": sum(transfer.size_bytes for transfer in schedule.transfers),
                "agents_cpu_s": ours,
                "iperf3_cpu_s": theirs,
                "agents_over_iperf3": ours / theirs,
            }


def blackout(_store: Path) -> Iterator[Row]:
    """How long pairs are cut off, by failures that switches see and by silent ones, under load."""
    for kind in FabricKind:
        spec, mark_id = replace(SIXTEEN, kind=kind), f"bench-{os.getpid()}-blackout-{kind}"
        with marked_run(mark_id) as mark, experiment(spec, ProxyKind.PROCESS, mark) as fabric:
            for row in trials(fabric):
                proxies = ProxyKind.PROCESS.value
                yield {"gpus": spec.gpus, "proxies": proxies, "fabric": kind.value, **row}


def routing(_store: Path) -> Iterator[Row]:
    """Processor time of the desired state for 1024 GPUs: anew, and after something has failed."""
    for kind in FabricKind:
        topology = build_topology(
            replace(SIXTEEN, kind=kind, domains=128, domain_size=8, spines=128)
        )
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
    """One link of each kind, and a switch, somewhere in the middle."""
    names = {kind: [k.name for k in topology.links if k.kind is kind] for kind in LinkKind}
    switch = topology.rail_switches[len(topology.rail_switches) // 2]
    return {
        "from scratch": None,
        **{f"one {k}": Health(frozenset({of[len(of) // 2]})) for k, of in names.items() if of},
        "rail switch": without(topology, [switch]),
    }


def _planned(topology: Topology, health: Health | None) -> tuple[float, int]:
    """Seconds of processor time, and how many rules and routes have come or gone.

    As in the controller, what a fabric has before it fails is not looked through for garbage.
    """
    planner = Planner(topology)
    before = DesiredState({}, {}, ()) if health is None else planner.state(HEALTHY)
    gc.freeze()
    began_s = time.process_time()
    after = desired_state(topology) if health is None else planner.state(health)
    seconds = time.process_time() - began_s
    gc.unfreeze()
    changed = [after.rules[name] ^ before.rules.get(name, frozenset()) for name in after.rules]
    routed = [after.routes[name] ^ before.routes.get(name, frozenset()) for name in after.routes]
    return seconds, sum(map(len, (*changed, *routed)))


BENCHMARKS: dict[str, Callable[[Path], Iterator[Row]]] = {
    "fidelity": fidelity,
    "startup": startup,
    "agents": agents,
    "routing": routing,
    "blackout": blackout,
}
WITHOUT_FABRIC = frozenset({"routing"})
