"""Benchmark calibration on correct links, and on links that are a little too slow."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from execution.link_check import calibrate
from model.fabric.spec import FabricKind, FabricSpec
from model.faults import FaultMode
from model.measurement.link_quality import DirectionCalibration, Outcome, representatives
from studies.benchmarks.common.fabrics import bench_fabric
from studies.benchmarks.common.rows import SIXTEEN, Row, part
from testbed.faults.injector import FaultInjector

# Uplinks and NIC links have these rates in Mbit/s, HB links nine times as much.
NIC_MBIT_PER_S = (0.5, 1.25, 2.5, 5, 20, 62.5, 200)
# Remaining rate, in percent, of links that are slowed down without calibration knowing.
SLOWED_PERCENT = (100, 98, 97)


def calibration(_store: Path) -> Iterator[Row]:
    """Calibrate links of each class of a rail-optimized fabric, unchanged and slowed down."""
    for rate in NIC_MBIT_PER_S:
        scale = SIXTEEN.nic.rate_bps / rate / 1e6
        spec = replace(SIXTEEN, kind=FabricKind.RAIL_OPTIMIZED, bandwidth_scale=scale)
        yield from part(_at(spec), nic_mbit_per_s=rate)


def _at(spec: FabricSpec) -> Iterator[Row]:
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
        yield {"kind": kind.value, **_row([each for each in links if each.counted.kind is kind])}


def _row(found: Sequence[DirectionCalibration]) -> Row:
    trials = [each.counted for each in found]
    rates = [trial.rates for trial in trials]
    gaps = [trial.gap_errors.p95 for trial in trials if trial.gap_errors.p95 is not None]
    return {
        "mbit_per_s": rates[0].nominal_bps / 1e6,
        "rate_error_least": min(rate.error for rate in rates),
        "rate_error_most": max(rate.error for rate in rates),
        "probes": max(rate.others_bps / rate.nominal_bps for rate in rates),
        "gaps_over_ms": 1e3 * trials[0].train.gap_s,
        "gaps_off": max(gaps, default=0.0),
        "latency_us": 1e6 * max(trial.latency_s for trial in trials),
        "trials": max(len(each.trials) for each in found),
        **{outcome.value: [e.outcome for e in found].count(outcome) for outcome in Outcome},
    }
