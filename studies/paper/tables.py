"""The paper's tables, computed: platforms and their all-to-all, and the networks' cost."""

from typing import Any

from model.fabric.network_cost import networks
from model.fabric.spec import PLATFORMS
from scenarios.format.prices import load_prices
from studies.paper.study import PLATFORM_NAMES
from studies.paper.values import DOMAIN_SIZE, GPUS, RADICES


def table1() -> list[dict[str, Any]]:
    """The platforms: HB domain, a GPU's bandwidths in Gbit/s, slowdown of an all-to-all."""
    return [
        {
            "platform": one.name,
            "HB domain": one.domain_size,
            "HB Gbit/s": one.hb_rate_bps / 1e9,
            "NIC Gbit/s": one.nic_rate_bps / 1e9,
            "all-to-all slower %": round(100 * one.nic_rate_bps / one.hb_rate_bps, 1),
        }
        for one in map(PLATFORMS.__getitem__, PLATFORM_NAMES)
    ]


def table2() -> list[dict[str, Any]]:
    """The networks of both fabrics by GPUs and radix, and what rail-only saves."""
    return [_network(gpus, radix) for gpus in GPUS for radix in RADICES]


def _network(gpus: int, radix: int) -> dict[str, Any]:
    costs = networks(gpus, radix, DOMAIN_SIZE, load_prices().prices)
    whole, rails, saved = (costs[key] for key in ("rail-optimized", "rail-only", "saved"))
    return {
        "GPUs, radix": f"{gpus}, {radix}",
        "switches": f"{whole['switches']} / {rails['switches']}",
        "transceivers": f"{whole['transceivers']} / {rails['transceivers']}",
        "million USD": f"{whole['usd'] / 1e6:.0f} / {rails['usd'] / 1e6:.0f}",
        "saved %": round(saved["usd_percent"], 1),
        "MW": f"{whole['watts'] / 1e6:.1f} / {rails['watts'] / 1e6:.1f}",
        "less W %": round(saved["watts_percent"], 1),
    }


TABLES = {"table1": table1, "table2": table2}
