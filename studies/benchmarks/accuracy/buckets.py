"""Benchmark depths of token buckets, on the machine as it is and with added noise."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

from studies.benchmarks.common.fabrics import library_cases
from studies.benchmarks.common.rows import SIXTEEN, Row, part
from studies.benchmarks.common.seen import seen
from testbed.nodes.gpu_proxies import ProxyKind

DEPTHS_MS = (1, 5, 10, 20)
SHARES = (0.0, 0.3)
# Steps of 0.2 s, and of 10 to 50 ms, where bursts at the start of a step show.
SCENARIOS = ("self-check", "short-steps")


def buckets(store: Path) -> Iterator[Row]:
    """Run the self-check, and rings with short steps, at each depth, without and with noise."""
    facts = {"gpus": SIXTEEN.gpus, "proxies": ProxyKind.PROCESS.value}
    for share, depth_ms, name in product(SHARES, DEPTHS_MS, SCENARIOS):
        cases = library_cases(name, store, [f"fabric.bucket_depth={depth_ms / 1e3}"], share)
        yield from part(map(seen, cases), **facts, asked=share, depth_ms=depth_ms)
