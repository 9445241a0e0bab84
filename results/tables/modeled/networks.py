"""Tables of networks: equipment, price and power of both, and the decision for a cluster."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from results.tables.style import figures_table, number_or_dash, three_digits


def print_cost(result: dict[str, Any], out: Console) -> None:
    """Print a row for each fabric, and one for what rail-only saves."""
    table = figures_table("network", "switches", "transceivers", "million USD", "MW")
    for name in ("rail-optimized", "rail-only", "saved"):
        row = result[name]
        table.add_row(name, *_counts_and_costs(row))
    shares = (result["saved"][f"{key}_percent"] for key in ("switches", "transceivers"))
    money = (result["saved"][f"{key}_percent"] for key in ("usd", "watts"))
    table.add_row("", *(f"{share:.1f} %" for share in (*shares, *money)))
    out.print(table)


def _counts_and_costs(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Format switches, transceivers, million USD and MW."""
    usd, megawatts = three_digits(row["usd"] / 1e6), three_digits(row["watts"] / 1e6)
    return f"{row['switches']}", f"{row['transceivers']}", usd, megawatts


def print_decision(result: dict[str, Any], out: Console) -> None:
    """Print each design's cost and power, each model on it, the answer and its sensitivities."""
    table = figures_table("design", "switches", "transceivers", "million USD", "MW", "")
    for design in result["designs"]:
        mark = "efficient" if design["efficient"] else ""
        table.add_row(design["design"], *_counts_and_costs(design), mark)
    out.print(table)
    for index, model in enumerate(result["designs"][0]["models"]):
        out.print(f"\n{model['configuration']}")
        _print_model(result["designs"], index, out)
    out.print(f"\n{result['sentence']}", soft_wrap=True)
    changes = [row for row in result["sensitivities"] if row["changes"]]
    for row in changes:
        out.print(f"With {row['input']}: {row['answer']}.", soft_wrap=True)
    if not changes:
        out.print(
            "No price, power, lifetime or tariff a quarter or four times as large changes it."
        )
    commands = (f"{what}: {command}" for what, command in result["measured_by"].items())
    out.print("All figures are modeled. On an emulated twin, these commands measure:")
    for line in commands:
        out.print(f"  {line}")


def _print_model(designs: list[dict[str, Any]], index: int, out: Console) -> None:
    headings = ("iteration", "HFU", "all-to-all", "lost NIC link", "lost GPU", "USD/10⁶ tokens")
    table = figures_table("design", *headings)
    for design in designs:
        model = design["models"][index]
        losses = model["losses_percent"]
        table.add_row(
            design["design"],
            f"{model['iteration_s']:.3f} s",
            f"{model['hfu']:.1f} %",
            number_or_dash(model["all_to_all_slowdown_percent"], "+.1f", " %"),
            number_or_dash(losses["nic_link"], "+.2f", " %"),
            number_or_dash(losses["gpu"], "+.2f", " %"),
            three_digits(model["network_usd_per_million_tokens"]),
        )
    out.print(table)
