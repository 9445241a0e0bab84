"""The JSON object of the networks of both fabrics: equipment, price and power."""

from typing import Any

from model.fabric.network_cost import Prices, equipment
from model.fabric.spec import FabricKind

SCHEMA = "railbed.cost/1"


def cost_object(gpus: int, radix: int, domain_size: int, prices: Prices) -> dict[str, Any]:
    """Both fabrics for `gpus` GPUs in HB domains of `domain_size`, and what rail-only saves."""
    fabrics = {
        kind.value: _fabric(kind, gpus, radix, domain_size, prices)
        for kind in (FabricKind.RAIL_OPTIMIZED, FabricKind.RAIL_ONLY)
    }
    return {
        "schema": SCHEMA,
        "gpus": gpus,
        "radix": radix,
        "domain_size": domain_size,
        **fabrics,
        "saved": _saved(fabrics[FabricKind.RAIL_OPTIMIZED], fabrics[FabricKind.RAIL_ONLY]),
    }


def _fabric(
    kind: FabricKind, gpus: int, radix: int, domain_size: int, prices: Prices
) -> dict[str, float]:
    of = equipment(kind, gpus, radix, domain_size)
    return {
        "switches": of.switches,
        "transceivers": of.transceivers,
        "usd": prices.usd(of),
        "watts": prices.watts(of),
    }


def _saved(whole: dict[str, float], rails: dict[str, float]) -> dict[str, float]:
    saved = {key: whole[key] - rails[key] for key in whole}
    shares = {f"{key}_percent": 100 * saved[key] / whole[key] if whole[key] else 0 for key in whole}
    return saved | shares
