"""Compare HTB, with shallow and default buckets, with HFSC, on a quiet and a noisy machine."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from execution.cases.emulation import Experiment
from model.fabric.shaping import DEFAULT_DEPTH_S, LEAST_DEPTH_S
from model.fabric.spec import FabricSpec
from model.prediction.fluid import Prediction
from model.workload.schedule import Schedule
from studies.benchmarks.common.fabrics import bench_fabric
from studies.benchmarks.common.rows import SIXTEEN, Row, part
from studies.benchmarks.comparisons.hfsc import shape_by_hfsc
from studies.benchmarks.costs.growth import exchange
from studies.benchmarks.noise.noise import noise
from testbed.nodes.gpu_proxies import ProxyKind

SHARES = (0.0, 0.2, 0.4)
WARMUP, REPEATS = 1, 5
NIC_BUSY_S = 2.0
# HFSC allows no burst, so its model has the shallowest bucket.
SHALLOW = replace(SIXTEEN, bucket_depth_s=LEAST_DEPTH_S)
SHAPERS = {
    f"HTB, {LEAST_DEPTH_S * 1e3:g} ms": SHALLOW,
    f"HTB, {DEFAULT_DEPTH_S * 1e3:g} ms": SIXTEEN,
    "HFSC": SHALLOW,
}


def shapers(_store: Path) -> Iterator[Row]:
    """Compare the time of a two-step all-to-all with its model, by shaper and noise."""
    for name, spec in SHAPERS.items():
        facts = {"shaper": name, "proxies": ProxyKind.PROCESS.value}
        yield from part(_with(name, spec), **facts)


def _with(name: str, spec: FabricSpec) -> Iterator[Row]:
    schedule = exchange(spec, NIC_BUSY_S)
    with bench_fabric("shapers", spec) as fabric:
        if name == "HFSC":
            shape_by_hfsc(fabric.bed.links, fabric.topology.links)
        prediction = fabric.predict(schedule)
        for share in SHARES:
            yield {"asked": share, **_under(share, fabric, schedule, prediction)}


def _under(share: float, fabric: Experiment, schedule: Schedule, prediction: Prediction) -> Row:
    with noise(share) as made:
        begun_s = time.monotonic()
        repeats = list(fabric.repeats(schedule, prediction, WARMUP + REPEATS, check_data=False))
        cores_s = len(os.sched_getaffinity(0)) * (time.monotonic() - begun_s)
        taken = made.taken_s() / cores_s
    ratios = [repeat.completion_s / prediction.completion_s for repeat in repeats[WARMUP:]]
    return {"noise": taken, "ratio": median(ratios), "spread": max(ratios) - min(ratios)}
