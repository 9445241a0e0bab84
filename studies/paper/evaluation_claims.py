"""Claims of section V: utilization (figure 7), and cost and power of the networks (table 2)."""

from collections.abc import Callable
from pathlib import Path

from model.fabric.network_cost import networks
from scenarios.format.prices import load_prices
from scenarios.format.training import evaluated, load_configuration
from studies.paper import Finding, published

DOMAIN_SIZE = 256
# The table's sizes and radices.
GPUS, RADICES = (32768, 65536), (64, 128, 256)


def _saved(key: str, gpus: int, radix: int) -> float:
    return networks(gpus, radix, DOMAIN_SIZE, load_prices().prices)["saved"][key]


def _least_and_most(key: str, sizes: tuple[int, ...], unit: float = 1.0) -> tuple[float, float]:
    """The least and the largest saving among sizes and radices."""
    savings = [_saved(key, gpus, radix) / unit for gpus in sizes for radix in RADICES]
    return min(savings), max(savings)


def _power() -> str:
    prices = load_prices().prices
    return (
        f"{prices.port_watts:g} W a port, {prices.transceiver_watts:g} W a transceiver; "
        "the paper's powers are not published"
    )


def modeled_hfu(model: str) -> float:
    """Our HFU of a model of arXiv 2205.05198, in percent."""
    name = f"korthikanti-{model.lower()}"
    return 100 * evaluated(name, load_configuration(Path(name))).hfu


def published_hfu() -> dict[str, float]:
    """The published HFU of each model of arXiv 2205.05198, in percent."""
    return {row["model"]: float(row["hfu_percent"]) for row in published("selective_recompute")}


def _error(model: str) -> Finding:
    ours, theirs = modeled_hfu(model), published_hfu()[model]
    note = f"our HFU is {ours:.1f} %, the published one {theirs:.1f} %; the value is an error"
    return Finding((abs(ours - theirs),), note)


EVALUATION_CLAIMS: dict[str, Callable[[], Finding]] = {
    "fig7-1t": lambda: _error("1T"),
    "fig7-22b": lambda: _error("22B"),
    "table2-cost": lambda: Finding(_least_and_most("usd_percent", (32768,))),
    "table2-cost-usd": lambda: Finding(_least_and_most("usd", (65536,), 1e6)),
    "table2-power": lambda: Finding(_least_and_most("watts_percent", (32768,)), _power()),
    "table2-power-mw": lambda: Finding(_least_and_most("watts", GPUS, 1e6), _power()),
    "table2-prices": lambda: Finding(
        (load_prices().prices.transceiver_usd, load_prices().prices.port_usd),
        "the paper's prices, taken as they are",
    ),
    "table2-power-port": lambda: Finding(
        (load_prices().prices.port_watts,),
        load_prices().port_watts.source,
    ),
    "table2-power-transceiver": lambda: Finding(
        (load_prices().prices.transceiver_watts,),
        load_prices().transceiver_watts.source,
    ),
}
