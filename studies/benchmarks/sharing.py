"""Measure the shares of forwarded TCP flows on a NIC, and their effect on completion times.

A GPU that forwards packets of others sends its own flows over the same NIC. TCP keeps no more than
about two segments of an own flow in the NIC's queue (tcp_small_queue_check in
net/ipv4/tcp_output.c), and as many of a forwarded flow as its window has. A queue serves packets in
their order, so forwarded flows get more than a fair share; how much more is chance, too. In the
predictions here, each forwarded transfer has a weight; its logarithm has a mean and a standard
deviation.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from random import Random
from statistics import mean, median, stdev

import numpy as np

from execution.cases.emulation import Experiment
from execution.faults.convergence import wait_until_converged
from execution.faults.fault_timeline import break_component
from model.arrays import Bools, Floats
from model.fabric.spec import FabricSpec
from model.fabric.topology import Hop, LinkKind
from model.faults import Fault, health_under
from model.prediction.fluid import predict
from model.routing.paths import Routing
from model.workload.schedule import Steps
from model.workload.transfers.columns import streams
from scenarios.library_files import LIBRARY
from scenarios.load import load
from studies.benchmarks.fabrics import bench_fabric
from studies.benchmarks.rows import Row, part
from testbed.faults.injector import FaultInjector

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


@dataclass(frozen=True)
class Shares:
    """Mean and standard deviation of the logarithms of forwarded flows' weights; own ones have 1.

    Equal shares are `Shares(0, 0)`.
    """

    mean: float
    spread: float

    @classmethod
    def of(cls, weights: Sequence[float]) -> "Shares":
        """Estimate from weights that were measured; raises `StatisticsError` with less than two."""
        logarithms = np.log(weights).tolist()
        return cls(mean(logarithms), stdev(logarithms))

    def drawn(self, forwarded: Bools, random: np.random.Generator) -> Floats:
        """Draw the weight of each transfer."""
        weights = np.exp(random.normal(self.mean, self.spread, len(forwarded)))
        return np.where(forwarded, weights, 1.0)


def weight_of(one_s: float, other_s: float) -> float:
    """Return the weight of a flow against another one by their arrivals, with equal sizes.

    Both begin at 0 on a link that is busy until the later one has arrived: the earlier one has
    carried its size in its own time, the later one the rest of that time's bytes. Raises
    `ValueError` if the link must have been idle.
    """
    first_s, last_s = sorted((one_s, other_s))
    rest_s = 2 * first_s - last_s
    if rest_s <= 0:
        raise ValueError("the later flow ends too late: the link was idle")
    weight = last_s / rest_s
    return weight if one_s <= other_s else 1 / weight


def sharing(_store: Path) -> Iterator[Row]:
    """Compare degraded fabrics with models of fair and of uneven sharing.

    The shares are measured apart from the compared executions: a GPU's own flow competes with one
    that it forwards, both with the median size of the collective's forwarded transfers.
    """
    for name, overrides in LOADS:
        scenario = load(LIBRARY / f"{name}.yaml", overrides)
        for case in scenario.cases:
            (fault,), spec = scenario.faults[case.kind], scenario.spec_of(case.kind)
            rows = _rows(case.schedule(spec), spec, fault)
            yield from part(rows, case=case.name, fault=fault.name)


def _rows(schedule: Steps, spec: FabricSpec, fault: Fault) -> Iterator[Row]:
    with bench_fabric("sharing", spec) as fabric:
        _degrade(fabric, fault)
        transfers, placement = schedule.transfers, fabric.placement
        routing, gpus = Routing(placement.topology, placement.health), placement.gpus
        hops = [
            routing.path_if_any(gpus[t.source], gpus[t.destination].by(t.lane)) for t in transfers
        ]
        paths = {(t.source, t.destination): p for t, p in zip(transfers, hops, strict=True) if p}
        forwarded = np.array([is_forwarded(path or ()) for path in hops])
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
    return any(
        hop.link.kind is LinkKind.NIC and hop.link.lower.node == hop.sender for hop in hops[1:]
    )


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
        spot = [placement.epoch], latency_s, placement.gpus
        return predict(schedule, *spot, weight=weight).completion_s

    modeled_s = completion_s(None)
    uneven_s = under_uneven_sharing(completion_s, forwarded, shares, DRAWS)
    done = fabric.repeats(schedule, fabric.predict(schedule), WARMUP + REPEATS, check_data=False)
    measured_s = [repeat.completion_s for repeat in done][WARMUP:]
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


def under_uneven_sharing(
    completion_s: Callable[[Floats], float], forwarded: Bools, shares: Shares, draws: int
) -> list[float]:
    """Return sorted completion times with weights drawn for each forwarded transfer."""
    random = np.random.default_rng(0)
    return sorted(completion_s(shares.drawn(forwarded, random)) for _ in range(draws))
