"""Benchmark how close measurements are to the model, and whether verdicts are right."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product, starmap
from pathlib import Path
from types import MappingProxyType
from typing import Any

from execution.cases.progress import SILENT
from execution.link_check import calibrate
from execution.run import run
from linux.machine.processor import stolen_s
from model.fabric.spec import FabricKind, FabricSpec
from model.faults import FaultMode
from model.measurement.link_quality import DirectionCalibration, Outcome, representatives
from scenarios.library_files import LIBRARY, library
from scenarios.load import load
from scenarios.planning.auto import FINE_PACKETS
from scenarios.planning.machine_profile import known_machine
from studies.benchmarks import BENCHMARKS, Needs
from studies.benchmarks.fabrics import bench_fabric, containers
from studies.benchmarks.noise import noise
from studies.benchmarks.rows import FAILED, SIXTEEN, Row, judged, part, seen
from testbed.faults.injector import FaultInjector
from testbed.nodes.gpu_proxies import ProxyKind


@dataclass(frozen=True)
class Point:
    """A run of a scenario of the library, with changes, while noise takes `share` of all cores.

    Its rows have the `facts`, too. With `fits`, bucket depths fit the machine's measured pauses.
    """

    scenario: str
    changes: tuple[str, ...] = ()
    share: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    fits: bool = True


# NIC rates in Mbit/s by the share of the cores that noise takes: dense where errors are 1 to 8 %.
GATE: dict[float, tuple[int, ...]] = {
    0.0: (20, 120, 160, 200, 220, 240, 260, 280, 300, 320),
    0.2: (20, 80, 100, 120, 130, 140, 160),
    0.4: (20, 60, 80, 90, 100, 110, 120),
}
# Steps of 0.2 s, and of 10 to 50 ms, where bursts at the start of a step show.
DEPTHS = tuple(product((0.0, 0.3), (1, 5, 10, 20), ("self-check", "short-steps")))
# A size and its scale: one whose executions are short, and such that each takes three seconds.
SIZES = {"2 MB": ("2 MB", "1"), "3 s": ("256 MB", "auto")}


def _at_rate(share: float, rate: int) -> Point:
    scale = SIXTEEN.nic.rate_bps / rate / 1e6
    facts = {"asked": share, "nic_mbit_per_s": rate}
    return Point("self-check", (f"fabric.bandwidth_scale={scale}",), share, facts, fits=False)


def _at_depth(share: float, depth_ms: int, name: str) -> Point:
    depth = f"fabric.bucket_depth={depth_ms / 1e3}"
    return Point(name, (depth,), share, {"asked": share, "depth_ms": depth_ms}, fits=False)


def _workloads() -> range:
    """Return the numbers of the workloads of `collectives`."""
    plain = load(LIBRARY / "collectives.yaml")
    return range(len(plain.cases) // len(plain.fabrics))


def _collectives(size: str, size_scale: str, /, *changes: str, **facts: str) -> Point:
    keys = {"size": size, "size_scale": size_scale}
    sizes = (f"workloads.{number}.{key}={keys[key]}" for number in _workloads() for key in keys)
    return Point("collectives", (*sizes, *changes), facts=facts)


def _once_on(**fabric: int) -> Iterator[Point]:
    """Yield each collective once, in a size that takes about as long as all others.

    In large segments, a transfer may arrive 0.1 s earlier or later than modeled.
    """
    fabric = {"bandwidth_scale": 40000, "grain": FINE_PACKETS, **fabric}
    changes = (f"fabric.{key}={value}" for key, value in fabric.items())
    yield _collectives(*SIZES["3 s"], "repeats=1", *changes)


def _by_spines(selection: str, pxn: str = "") -> Point:
    fabric = (
        f"spine_selection={selection}",
        f"pxn={str(bool(pxn)).lower()}",
        "kinds=[rail-optimized]",
    )
    changes = tuple(f"fabric.{change}" for change in fabric)
    return Point("quickstart", changes, facts={"spine_selection": selection + pxn})


# Two domains of four GPUs that all send to all others at once; uplinks that pairs share by hash.
UNIFORM = (
    "fabric.domains=2",
    "workloads=[{collective: all-to-all, algorithm: direct, peers: all, size: 3.2MB, "
    "size_scale: 1}]",
)
FEW_UPLINKS = ("fabric.spines=2", "fabric.oversubscription=2", "fabric.spine_selection=hash")
CONTENDED: Mapping[str, tuple[str, ...]] = {
    "2 x 4": UNIFORM,
    "4 x 4": (),
    "4 x 4, 2:1 by hash": FEW_UPLINKS,
}


def _contended() -> Iterator[Point]:
    for grain, (fabric, changes) in product(("auto", "45"), CONTENDED.items()):
        facts = {"grain": grain, "shape": fabric}
        yield Point("contention", (f"fabric.grain={grain}", *changes), facts=facts)
    yield Point("several-jobs", facts={"grain": "auto", "shape": "4 x 4"})


def _experiments() -> Iterator[Point]:
    names = (path.stem for path in library())
    return (Point(name) for name in names if load(LIBRARY / f"{name}.yaml").has_faults)


# The points of each benchmark that is not one scenario as it stands in the library.
POINTS: dict[str, Callable[[], Iterator[Point]]] = {
    "fidelity": lambda: map(Point, ("quickstart", "moe-dgx-a100")),
    "matrix": lambda: (_collectives(*size, "repeats=5", size=name) for name, size in SIZES.items()),
    "ports": lambda: _once_on(nic_ports=2),
    "shared-nics": lambda: _once_on(domains=2, domain_size=8, nics_per_domain=4),
    "noise": lambda: (
        Point("quickstart", share=share, facts={"asked": share})
        for share in (0.0, 0.05, 0.1, 0.2, 0.3, 0.4)
    ),
    "gate": lambda: (_at_rate(share, rate) for share, rates in GATE.items() for rate in rates),
    "buckets": lambda: (_at_depth(*place) for place in DEPTHS),
    "spine-selection": lambda: starmap(
        _by_spines, (("destination",), ("hash",), ("hash", ", PXN"))
    ),
    "contention": _contended,
    "experiments": _experiments,
}
# Benchmarks of the verdict by observation alone.
JUDGED = frozenset({"gate", "noise"})


def accuracy(store: Path, name: str) -> Iterator[Row]:
    """Run the points of a benchmark, or the scenario of this name; yield a row for each case.

    Rows of latencies come after their case; those of slowdowns, of interference between jobs and of
    failure experiments after all cases.
    """
    in_containers = Needs.CONTAINERS in BENCHMARKS[name].needs
    kind = containers() if in_containers else ProxyKind.PROCESS
    points = POINTS[name]() if name in POINTS else iter([Point(name)])
    for point in points:
        facts = {"scenario": point.scenario, "proxies": kind.value, **point.facts}
        yield from part(_measured(point, store, kind, judged if name in JUDGED else seen), **facts)


def _measured(
    point: Point, store: Path, proxies: ProxyKind, row: Callable[[dict[str, Any]], Row]
) -> Iterator[Row]:
    machine = known_machine() if point.fits else None
    scenario = load(LIBRARY / f"{point.scenario}.yaml", point.changes, machine=machine)
    with disturbed(point.share) as taken:
        result = run(scenario, proxies, store, SILENT)
    for case in result["cases"]:
        yield {**taken, **row(case)}
        for name, latency in case.get("inference", {}).get("latency_s", {}).items():
            times = {"latency_s": latency["measured"], "modeled_latency_s": latency["modeled"]}
            yield {"case": case["case"], "percentile": name, **times}
    for section in ("slowdowns", "interference", "failures"):
        yield from map(flat, result.get(section, ()))


def flat(value: Mapping[str, Any]) -> Row:
    """Return a row of an object's plain values; `{"a": {"b": 1}}` has the key `b_a`."""
    inner = {
        f"{name}_{key}": one
        for key, parts in value.items()
        if isinstance(parts, dict)
        for name, one in parts.items()
    }
    return {key: one for key, one in {**value, **inner}.items() if not isinstance(one, dict | list)}


@contextmanager
def disturbed(share: float) -> Iterator[dict[str, float]]:
    """Make noise; afterwards, the yielded object has the shares that noise and hypervisor took."""
    shares: dict[str, float] = {}
    with noise(share) as made:
        begun_s, noise_s, steal_s = time.monotonic(), made.taken_s(), stolen_s()
        yield shares
        cores_s = (os.cpu_count() or 1) * (time.monotonic() - begun_s)
        shares["noise"] = (made.taken_s() - noise_s) / cores_s
        shares["steal"] = (stolen_s() - steal_s) / cores_s


def matrix(store: Path) -> Iterator[Row]:
    """Yield a row for each cell, medians of five executions, and one that counts them."""
    errors = []
    for row in accuracy(store, "matrix"):
        yield row
        if "ratio" in row and FAILED not in row:
            errors.append(abs(row["ratio"] - 1))
    within = {f"within_{100 * limit:.0f}_percent": limit for limit in (0.01, 0.02, 0.04)}
    shares = {
        name: sum(error <= limit for error in errors) / max(len(errors), 1)
        for name, limit in within.items()
    }
    yield {"cells": len(errors), **shares, "worst": max(errors, default=0.0)}


# Uplinks and NIC links have these rates in Mbit/s, HB links nine times as much.
NIC_MBIT_PER_S = (0.5, 1.25, 2.5, 5, 20, 62.5, 200)
# Remaining rate, in percent, of links that are slowed down without calibration knowing.
SLOWED_PERCENT = (100, 98, 97)


def calibration(_store: Path) -> Iterator[Row]:
    """Calibrate links of each class of a rail-optimized fabric, unchanged and slowed down."""
    for rate in NIC_MBIT_PER_S:
        scale = SIXTEEN.nic.rate_bps / rate / 1e6
        spec = replace(SIXTEEN, kind=FabricKind.RAIL_OPTIMIZED, bandwidth_scale=scale)
        yield from part(_slowed(spec), nic_mbit_per_s=rate)


def _slowed(spec: FabricSpec) -> Iterator[Row]:
    with bench_fabric("calibration", spec) as fabric:
        faults = FaultInjector(fabric.bed)
        for percent in SLOWED_PERCENT:
            # Of several such faults on a link, the one with the lowest rate applies.
            for link in representatives(fabric.topology):
                faults.break_link(link, FaultMode.DEGRADE, link.rate_bps * percent // 100)
            yield from part(rows_by_class(calibrate(fabric)), left_percent=percent)


def rows_by_class(links: Sequence[DirectionCalibration]) -> Iterator[Row]:
    """Yield a row for each class of links that the fabric has."""
    for kind in dict.fromkeys(each.counted.kind for each in links):
        of_kind = [each for each in links if each.counted.kind is kind]
        yield {"kind": kind.value, **_class_row(of_kind)}


def _class_row(links: Sequence[DirectionCalibration]) -> Row:
    trials = [each.counted for each in links]
    rates = [trial.rates for trial in trials]
    gaps = [trial.gap_error_p95 for trial in trials if trial.gap_error_p95 is not None]
    return {
        "mbit_per_s": rates[0].nominal_bps / 1e6,
        "rate_error_least": min(rate.error for rate in rates),
        "rate_error_most": max(rate.error for rate in rates),
        "probes": max(rate.others_bps / rate.nominal_bps for rate in rates),
        "gaps_over_ms": 1e3 * trials[0].train.gap_s,
        "gaps_off": max(gaps, default=0.0),
        "latency_us": 1e6 * max(trial.latency_s for trial in trials),
        "trials": max(len(each.trials) for each in links),
        **{outcome.value: [e.outcome for e in links].count(outcome) for outcome in Outcome},
    }
