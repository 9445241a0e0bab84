"""What all benchmarks have in common: a row of figures, and the fabric of sixteen GPUs."""

from dataclasses import replace
from typing import Any

from model.fabric import FabricKind, FabricSpec
from model.platforms import GBIT

Row = dict[str, Any]
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
    """The same in another size, with the same sum of all links."""
    scale = SIXTEEN.bandwidth_scale * domains * domain_size / SIXTEEN.gpus
    return replace(
        SIXTEEN,
        domains=domains,
        domain_size=domain_size,
        spines=domains,
        bandwidth_scale=scale,
    )
