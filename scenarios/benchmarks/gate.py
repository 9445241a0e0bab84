"""Whether the verdict by observation alone tells when the machine is overloaded, or noisy."""

from collections.abc import Iterator
from pathlib import Path

from scenarios.benchmarks.rows import SIXTEEN, Row, part
from scenarios.benchmarks.seen import is_judged_right, seen
from scenarios.library import LIBRARY
from scenarios.loading import load
from scenarios.progress import Silent
from scenarios.runner import run
from testbed.noise import noise
from testbed.proxies import ProxyKind

# NIC rates in Mbit/s by the share of the cores that noise takes: dense where errors are 1 to 8 %.
RATES: dict[float, tuple[int, ...]] = {
    0.0: (20, 120, 140, 160, 180, 200, 220, 240),
    0.2: (20, 80, 100, 120, 140, 160),
    0.4: (20, 60, 80, 100, 120),
}


def gate(store: Path) -> Iterator[Row]:
    """The self-check at ever higher rates: error against the model, and verdict without it."""
    for share, rates in RATES.items():
        for rate in rates:
            yield from _at(share, rate, store)


def _at(share: float, rate: int, store: Path) -> list[Row]:
    scale = SIXTEEN.nic_rate_bps / rate / 1e6
    facts = {"gpus": SIXTEEN.gpus, "proxies": ProxyKind.PROCESS.value}
    with part(**facts, asked=share, nic_mbit_per_s=rate) as found, noise(share):
        scenario = load(LIBRARY / "self-check.yaml", [f"fabric.bandwidth_scale={scale}"])
        for case in run(scenario, ProxyKind.PROCESS, store, Silent())["cases"]:
            right = is_judged_right(abs(case["ratio"] - 1), case["fidelity"]["verdict"])
            found.add({"case": case["case"], **seen(case), "judged_right": right})
    return found.rows
