"""Benchmark whether the verdict by observation alone detects an overloaded or noisy machine."""

from collections.abc import Iterator
from pathlib import Path

from studies.benchmarks.common.fabrics import library_cases
from studies.benchmarks.common.rows import SIXTEEN, Row, part
from studies.benchmarks.common.seen import judged
from testbed.nodes.gpu_proxies import ProxyKind

# NIC rates in Mbit/s by the share of the cores that noise takes: dense where errors are 1 to 8 %.
RATES: dict[float, tuple[int, ...]] = {
    0.0: (20, 120, 160, 200, 220, 240, 260, 280, 300, 320),
    0.2: (20, 80, 100, 120, 130, 140, 160),
    0.4: (20, 60, 80, 90, 100, 110, 120),
}


def gate(store: Path) -> Iterator[Row]:
    """Run the self-check at rising rates: error against the model, verdict by observation."""
    facts = {"gpus": SIXTEEN.gpus, "proxies": ProxyKind.PROCESS.value}
    for share, rates in RATES.items():
        for rate in rates:
            scale = SIXTEEN.nic.rate_bps / rate / 1e6
            cases = library_cases("self-check", store, [f"fabric.bandwidth_scale={scale}"], share)
            yield from part(map(judged, cases), **facts, asked=share, nic_mbit_per_s=rate)
