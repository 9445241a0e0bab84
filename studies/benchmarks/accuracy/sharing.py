"""Measure the shares of forwarded TCP flows on a NIC, and their effect on completion times."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from statistics import median

import numpy as np

from execution.cases.emulation import Experiment
from execution.faults.convergence import wait_until_converged
from execution.faults.fault_timeline import break_component
from model.arrays import Bools, Floats
from model.fabric.spec import FabricSpec
from model.fabric.topology import Hop, LinkKind
from model.faults import Fault, health_under
from model.prediction.fluid import predict, transfer_paths
from model.workload.schedule import Steps
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.workloads.schedules import case_schedule
from studies.benchmarks.accuracy.uneven_sharing import Shares, under_uneven_sharing, weight_of
from studies.benchmarks.common.fabrics import bench_fabric
from studies.benchmarks.common.rows import Row, part
from testbed.faults.injector import FaultInjector
from traffic_gen.workloads.point_to_point import streams

DIRECT = (
    "workloads.0.collective=all-to-all",
    "workloads.0.algorithm=direct",
    "workloads.0.size=deepspeed-moe-1.3b-all-to-all",
    "workloads.0.size_scale=8",
)
# Degraded fabrics on which flows share links and do not wait for each other.
LOADS = (("nic-link-down", DIRECT), ("hb-link-down", ()))
CONTESTS, ROUNDS, REPEATS, WARMUP, DRAWS = 12, 5, 5, 1, 40

# Source and destination rank, and their paths.
Ranks = tuple[int, int]
Paths = Mapping[Ranks, tuple[Hop, ...]]


def sharing(_store: Path) -> Iterator[Row]:
    """Compare degraded fabrics with models of fair and of uneven sharing.

    The shares are measured apart from the compared executions: a GPU's own flow competes with one
    that it forwards, both with the median size of the collective's forwarded transfers.
    """
    for name, overrides in LOADS:
        scenario = load(LIBRARY / f"{name}.yaml", overrides)
        for case in scenario.cases:
            (fault,), spec = scenario.faults[case.kind], scenario.spec_of(case.kind)
            rows = _rows(case_schedule(case, spec), spec, fault)
            yield from part(rows, case=case.name, fault=fault.name)


def _rows(schedule: Steps, spec: FabricSpec, fault: Fault) -> Iterator[Row]:
    with bench_fabric("sharing", spec) as fabric:
        _degrade(fabric, fault)
        transfers, placement = schedule.transfers, fabric.placement
        found = transfer_paths(transfers, placement.epoch, placement.gpus)
        paths = {(t.source, t.destination): p for t, p in zip(transfers, found, strict=True) if p}
        forwarded = np.array([is_forwarded(hops or ()) for hops in found])
        row: Row = {"transfers": len(transfers), "forwarded": int(forwarded.sum())}
        shares = Shares(0.0, 0.0)
        if forwarded.any():
            size_bytes = round(median(transfers.size_bytes[forwarded].tolist()))
            shares = _shares(fabric, contests(paths), size_bytes)
            row |= {"weight": float(np.exp(shares.mean)), "spread": shares.spread}
        yield {**row, **_compared(fabric, schedule, forwarded, shares)}


def _degrade(fabric: Experiment, fault: Fault) -> None:
    """Let the fault begin, and place the job when the controller has converged."""
    health = health_under(fabric.topology, [fault])
    break_component(FaultInjector(fabric.bed), fabric.topology, fault)
    wait_until_converged(fabric.bed, health.failed)
    fabric.rearrange(replace(fabric.placement, health=health))


def is_forwarded(hops: Sequence[Hop]) -> bool:
    """Whether another GPU sends these packets over its NIC."""
    return any(hop.link.kind is LinkKind.NIC and _leaves_gpu(hop) for hop in hops[1:])


def _leaves_gpu(hop: Hop) -> bool:
    return hop.link.lower.node == hop.sender


def contests(paths: Paths) -> list[tuple[Ranks, Ranks]]:
    """Pairs of flows, a GPU's own one and one that it forwards, that share just its NIC link."""
    return [
        (own, other)
        for own, other in product(paths, paths)
        if set(paths[own]) & set(paths[other][1:]) == {paths[own][0]}
        and paths[own][0].link.kind is LinkKind.NIC
    ]


def _shares(fabric: Experiment, known: Sequence[tuple[Ranks, Ranks]], size_bytes: int) -> Shares:
    """Let some own and forwarded flows of this size compete, several times each."""
    at_most_s = 40 * size_bytes * 8 / fabric.topology.spec.emulated_nic_bps
    weights = []
    for own, other in Random(0).sample(known, min(CONTESTS, len(known))):
        transfers = streams([(*own, size_bytes), (*other, size_bytes)])
        for _ in range(ROUNDS):
            done = fabric.agents.execute(transfers, fabric.placement.addresses(), at_most_s)
            own_ns, other_ns = (
                record.arrived_ns for record in sorted(done.records, key=lambda one: one.transfer)
            )
            with suppress(ValueError):  # the link was idle: that says nothing of shares
                weights.append(weight_of(other_ns, own_ns))
    return Shares.of(weights)


def _compared(fabric: Experiment, schedule: Steps, forwarded: Bools, shares: Shares) -> Row:
    placement, latency_s = fabric.placement, fabric.path_latencies_s(schedule)

    def completion_s(weight: Floats | None) -> float:
        spot = placement.topology, latency_s, placement.health, placement.gpus
        return predict(schedule, *spot, weight=weight).completion_s

    modeled_s = completion_s(None)
    uneven_s = under_uneven_sharing(completion_s, forwarded, shares, DRAWS)
    measured_s = _measured_s(fabric, schedule)
    return {
        "measured_s": median(measured_s),
        "modeled_s": modeled_s,
        "ratio": median(measured_s) / modeled_s,
        "ratio_least": min(measured_s) / modeled_s,
        "ratio_most": max(measured_s) / modeled_s,
        "uneven": median(uneven_s) / modeled_s,
        "uneven_least": uneven_s[0] / modeled_s,
        "uneven_most": uneven_s[-1] / modeled_s,
    }


def _measured_s(fabric: Experiment, schedule: Steps) -> list[float]:
    prediction = fabric.predict(schedule)
    done = fabric.repeats(schedule, prediction, WARMUP + REPEATS, check_data=False)
    return [repeat.completion_s for repeat in done][WARMUP:]
