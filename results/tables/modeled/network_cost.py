"""The table of both networks' equipment, price and power."""

from typing import Any

from rich.console import Console

from results.tables.style import figures_table


def print_cost(result: dict[str, Any], out: Console) -> None:
    """Print a row for each fabric, and one for what rail-only saves."""
    table = figures_table("network", "switches", "transceivers", "million USD", "MW")
    for name in ("rail-optimized", "rail-only", "saved"):
        row = result[name]
        usd, megawatts = f"{row['usd'] / 1e6:.1f}", f"{row['watts'] / 1e6:.2f}"
        table.add_row(name, f"{row['switches']}", f"{row['transceivers']}", usd, megawatts)
    shares = (result["saved"][f"{key}_percent"] for key in ("switches", "transceivers"))
    money = (result["saved"][f"{key}_percent"] for key in ("usd", "watts"))
    table.add_row("", *(f"{share:.1f} %" for share in (*shares, *money)))
    out.print(table)
