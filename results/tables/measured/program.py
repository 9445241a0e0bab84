"""The table of the bytes that a program put on each link."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console

from model.fabric.topology import BETWEEN_SWITCHES, LinkKind
from results.tables.measured.run import human_bytes
from results.tables.style import figures_table


def print_program(result: dict[str, Any], out: Console) -> None:
    """Print the bytes of GPUs' links and of links between switches, and those of link probes."""
    out.print(f"{result['fabric']}: {result['seconds']:.1f} s; bytes on each link, by its counters")
    by_gpu: dict[str, dict[str, Any]] = {}
    for link in result["links"]:
        by_gpu.setdefault(link["lower"], {})[link["kind"]] = link
    table = figures_table("GPU", "HB out", "HB in", "NIC out", "NIC in")
    for gpu, links in by_gpu.items():
        if LinkKind.NIC in links:
            table.add_row(gpu, *_both(links[LinkKind.HB]), *_both(links[LinkKind.NIC]))
    out.print(table)
    for kind in BETWEEN_SWITCHES:
        _print_between(kind, [one for one in result["links"] if one["kind"] == kind], out)
    probes = human_bytes(result["probes_bytes"])
    out.print(f"Of each figure, at most {probes} are link probes of the controller.", style="dim")


def _print_between(kind: str, links: Iterable[dict[str, Any]], out: Console) -> None:
    table = figures_table(kind, "up", "down")
    for link in links:
        table.add_row(link["link"], *_both(link))
    if table.row_count:
        out.print(table)


def _both(link: dict[str, Any]) -> tuple[str, str]:
    return human_bytes(link["up_bytes"]), human_bytes(link["down_bytes"])
