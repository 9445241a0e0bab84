"""Shared by all benchmarks: rows of figures, and the fabric of sixteen GPUs."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from model.errors import EmulationError, NotReady
from model.fabric.platforms import GBIT
from model.fabric.spec import FabricKind, FabricSpec, HbNetwork, NicNetwork

Row = dict[str, Any]
# Key of a row whose part of a benchmark ended early; its value is the cause.
FAILED = "failed"
SIXTEEN = FabricSpec(
    kind=FabricKind.RAIL_ONLY,
    domains=4,
    domain_size=4,
    platform="dgx-h100",
    hb=HbNetwork(3600 * GBIT),
    nic=NicNetwork(400 * GBIT, spines=4),
    bandwidth_scale=20_000,
)


def resized(domains: int, domain_size: int) -> FabricSpec:
    """Return `SIXTEEN` in another size, with as many spines as domains."""
    nic = replace(SIXTEEN.nic, spines=domains)
    return replace(SIXTEEN, domains=domains, domain_size=domain_size, nic=nic)


def sized(domains: int, domain_size: int) -> FabricSpec:
    """Return `SIXTEEN` in another size, with the same total rate of all links."""
    scale = SIXTEEN.bandwidth_scale * domains * domain_size / SIXTEEN.gpus
    return replace(resized(domains, domain_size), bandwidth_scale=scale)


def part(rows: Iterable[Row], **facts: Any) -> Iterator[Row]:
    """Yield the rows of a part of a benchmark, each with the common `facts`.

    If the part ends early, its last row has the cause; other parts still have their rows.
    """
    try:
        for row in rows:
            yield {**facts, **row}
    except (EmulationError, NotReady) as error:
        yield {**facts, FAILED: str(error).partition("\n")[0]}
