"""Shared by all benchmarks: rows of figures, and the fabric of sixteen GPUs."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from model.errors import EmulationError, NotReady
from model.fabric.platforms import GBIT
from model.fabric.spec import FabricKind, FabricSpec

Row = dict[str, Any]
# Key of a row whose part of a benchmark ended early; its value is the cause.
FAILED = "failed"
SIXTEEN = FabricSpec(
    kind=FabricKind.RAIL_ONLY,
    domains=4,
    domain_size=4,
    platform="dgx-h100",
    hb_rate_bps=3600 * GBIT,
    nic_rate_bps=400 * GBIT,
    bandwidth_scale=20_000,
    spines=4,
)


def sized(domains: int, domain_size: int) -> FabricSpec:
    """Return `SIXTEEN` in another size, with the same total rate of all links."""
    scale = SIXTEEN.bandwidth_scale * domains * domain_size / SIXTEEN.gpus
    return replace(
        SIXTEEN,
        domains=domains,
        domain_size=domain_size,
        spines=domains,
        bandwidth_scale=scale,
    )


def part(rows: Iterable[Row], **facts: Any) -> Iterator[Row]:
    """Yield the rows of a part of a benchmark, each with the common `facts`.

    If the part ends early, its last row has the cause; other parts still have their rows.
    """
    try:
        for row in rows:
            yield {**facts, **row}
    except (EmulationError, NotReady) as error:
        yield {**facts, FAILED: str(error).partition("\n")[0]}
