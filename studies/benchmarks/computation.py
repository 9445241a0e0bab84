"""Benchmarks without a fabric: routing, schedules, the model and its terms, training."""

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from statistics import median

from controller.planner import DesiredState, Planner
from model.fabric.build import build_topology
from model.fabric.health import HEALTHY, Epoch, Health, without
from model.fabric.spec import COMPARED, FabricKind, FabricSpec
from model.fabric.topology import LinkKind, Topology
from model.prediction.fluid import predict
from model.prediction.network import ALL, PathClass, Terms, healthy_network
from model.training.iteration import evaluate
from model.training.job import Job, cluster_of
from model.training.search import Freedom, best, ways
from model.training.strategy import ANY, divisors, insides, strategies, within_one_domain
from model.training.traffic import Dimension, traffic
from model.training.transformer import Recomputation
from model.workload.transfers.collective import Collective
from scenarios.format.training import evaluated, load_configuration
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.scenario import Case
from studies.benchmarks.rows import Row, resized, sized
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS
from traffic_gen.workloads.sized_collective import SizedCollective

TRIALS = 5
# Of schedules: domains and their sizes, collectives, bytes.
SHAPES = ((32, 8), (128, 8))
COLLECTIVES = (Collective.ALL_REDUCE, Collective.ALL_TO_ALL)
SIZE_BYTES = 400_000_000
# One-way latency of every path in seconds, so that no two events coincide by chance.
LATENCY_S = 1e-3
HB, NIC, UPLINK = (LinkKind.HB,), (LinkKind.NIC,), (LinkKind.UPLINK,)
PATHS: tuple[PathClass, ...] = (2 * HB, 2 * NIC, 2 * HB + 2 * NIC, NIC + 2 * UPLINK + NIC)
# The quickstart's scale, and slower: NICs of 20, 5 and 1.25 Mbit/s.
SLOWER = (1, 4, 16)
# About the latency of an idle path on the machine of the figures.
IDLE_LATENCY_S = 1e-4
# The configuration of the training model's benchmark.
NAME = "gpt-1t"
SEARCHED_GPUS = 65536


def routing(_store: Path) -> Iterator[Row]:
    """Measure processor time for the desired state of 1024 GPUs: from scratch, after failures."""
    for kind in COMPARED:
        topology = build_topology(replace(resized(128, 8), kind=kind))
        for change, health in _changes(topology).items():
            trials = [_planned(topology, health) for _ in range(TRIALS)]
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


def schedules(_store: Path) -> Iterator[Row]:
    """Measure processor time for AllReduce and all-to-all of 256 and of 1024 GPUs."""
    cases = product(SHAPES, sorted(ALGORITHMS), COMPARED)
    for shape, named, kind in cases:
        if named[0] in COLLECTIVES:
            yield _schedule_row(SizedCollective(*named, shape, SIZE_BYTES), kind)


def _schedule_row(task: SizedCollective, kind: FabricKind) -> Row:
    topology = build_topology(replace(sized(*task.shape), kind=kind))
    began_s = time.process_time()
    schedule = task.steps()
    proved_s = time.process_time()
    prediction = predict(schedule, [Epoch(topology)], dict.fromkeys(PATHS, LATENCY_S))
    predicted_s = time.process_time()
    return {
        "gpus": schedule.gpus,
        "fabric": kind.value,
        "collective": task.collective.value,
        "algorithm": task.algorithm,
        "transfers": len(schedule.transfers),
        "schedule_and_proof_s": proved_s - began_s,
        "prediction_s": predicted_s - proved_s,
        "together_s": predicted_s - began_s,
        "modeled_s": prediction.completion_s,
    }


def terms(_store: Path) -> Iterator[Row]:
    """Predict the quickstart's cases without each term in turn, with the same data at all rates.

    A term's figure is the share of the completion time that it adds.
    """
    for slower in SLOWER:
        scenario = load(LIBRARY / "quickstart.yaml", [f"fabric.bandwidth_scale={20_000 * slower}"])
        for case in scenario.cases:
            spec = scenario.spec_of(case.kind)
            facts = {"nic_mbps": spec.emulated_nic_bps / 1e6, "case": case.name}
            yield {**facts, **_worth(case, spec)}


def _worth(case: Case, spec: FabricSpec) -> Row:
    topology, schedule = build_topology(spec), case.schedule(spec)
    _, net = healthy_network(schedule.transfers, topology)

    def completion_s(present: Terms = ALL, latency_s: float = IDLE_LATENCY_S) -> float:
        latencies = dict.fromkeys(net.classes, latency_s)
        return predict(schedule, [Epoch(topology)], latencies, terms=present).completion_s

    whole_s = completion_s()
    without = {
        term.name: completion_s(replace(ALL, **{term.name: False})) for term in fields(Terms)
    }
    without["latency"] = completion_s(latency_s=0.0)
    return {"modeled_s": whole_s} | {name: 1 - s / whole_s for name, s in without.items()}


def training(_store: Path) -> Iterator[Row]:
    """Measure processor time; a search starts without anything that an earlier one has kept."""
    configuration = load_configuration(Path(NAME))
    given = configuration.job
    large = replace(
        given,
        batch=4096,
        recomputation=Recomputation.SELECTIVE,
        cluster=cluster_of("gh200", SEARCHED_GPUS),
    )
    strategy = evaluated(NAME, configuration).strategy
    yield _training_row("one evaluation", given, lambda: evaluate(given, strategy))
    searched = _training_row("search", large, lambda: _searched(large))
    yield searched | {"strategies": len(strategies(large).tensor)}
    context = replace(ANY, context=None)
    count = sum(len(strategies(one, context).tensor) for one in ways(large, Freedom))
    weighed = _training_row("search of everything", large, lambda: _searched(large, Freedom))
    yield weighed | {"strategies": count}
    yield _training_row(
        "traffic", given, lambda: traffic(given, strategy).pairs_with_traffic(*Dimension)
    )


def _searched(job: Job, freedoms: Iterable[Freedom] = ()) -> None:
    for kept in (divisors, insides, within_one_domain):
        kept.cache_clear()
    best(job, freedoms=freedoms)


def _training_row(what: str, job: Job, task: Callable[[], object]) -> Row:
    seconds = []
    for _ in range(TRIALS):
        began_s = time.process_time()
        task()
        seconds.append(time.process_time() - began_s)
    return {
        "what": what,
        "gpus": job.cluster.gpus,
        "median_s": median(seconds),
        "max_s": max(seconds),
    }
