"""Benchmark schedules on paper: the transfers, their proof, and their prediction, of many GPUs."""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

from model.fabric.spec import FabricKind
from model.fabric.topology import LinkKind, build_topology
from model.prediction.fluid import predict
from model.prediction.network import PathClass
from model.workload.transfers.collective import Collective
from studies.benchmarks.common.rows import Row, sized
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS
from traffic_gen.workloads.sized_collective import SizedCollective

SHAPES = ((32, 8), (128, 8))
COLLECTIVES = (Collective.ALL_REDUCE, Collective.ALL_TO_ALL)
SIZE_BYTES = 400_000_000
# One-way latency of every path in seconds, so that no two events coincide by chance.
LATENCY_S = 1e-3
HB, NIC, UPLINK = (LinkKind.HB,), (LinkKind.NIC,), (LinkKind.UPLINK,)
PATHS: tuple[PathClass, ...] = (2 * HB, 2 * NIC, 2 * HB + 2 * NIC, NIC + 2 * UPLINK + NIC)


def schedules(_store: Path) -> Iterator[Row]:
    """Measure processor time for AllReduce and all-to-all of 256 and of 1024 GPUs."""
    cases = product(SHAPES, sorted(ALGORITHMS), FabricKind)
    for shape, named, kind in cases:
        if named[0] in COLLECTIVES:
            yield _row(SizedCollective(*named, shape, SIZE_BYTES), kind)


def _row(task: SizedCollective, kind: FabricKind) -> Row:
    topology = build_topology(replace(sized(*task.shape), kind=kind))
    began_s = time.process_time()
    schedule = task.steps()
    proved_s = time.process_time()
    prediction = predict(schedule, topology, dict.fromkeys(PATHS, LATENCY_S))
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
