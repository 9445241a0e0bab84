"""The tables of a training iteration: its time, and its traffic."""

from math import prod
from typing import Any

from rich.console import Console

from results.tables.style import figures_table

GIGA = 1e9


def print_train(result: dict[str, Any], out: Console) -> None:
    """Print the strategy, the iteration's time and its terms."""
    size = f"{result['parameters'] / GIGA:.1f} billion parameters"
    where = f"{result['gpus']} GPUs in HB domains of {result['domain_size']}"
    filled = prod(result["in_domain"].values())
    if filled < min(result["domain_size"], result["gpus"]):
        where += f", of which the degrees fill {filled}"
    out.print(
        f"{result['configuration']}: {size}, {where}, batch {result['batch']}", soft_wrap=True
    )
    inside = result["in_domain"]
    degrees = (f"{k} {v}{_inside(inside, k)}" for k, v in result["strategy"].items())
    out.print(f"strategy: {', '.join(degrees)}", soft_wrap=True)
    table = figures_table("term", "seconds", "share")
    for term, seconds in result["terms_s"].items():
        table.add_row(term, f"{seconds:.4f}", f"{100 * seconds / result['iteration_s']:.1f} %")
    table.add_row("iteration", f"{result['iteration_s']:.4f}", "")
    out.print(table)
    memory = f"{result['memory_bytes'] / GIGA:.0f} GB a GPU{'' if result['fits'] else ': too much'}"
    used = f"MFU {result['mfu']:.1f} %, HFU {result['hfu']:.1f} %"
    out.print(f"{used}, memory {memory}")


def _inside(inside: dict[str, int], degree: str) -> str:
    return f" ({inside[degree]} in a domain)" if degree in inside else ""


def print_traffic(result: dict[str, Any], out: Console) -> None:
    """Print bytes by parallel dimension, and the shares of pairs."""
    gpus, total = result["gpus"], sum(result["bytes"].values())
    table = figures_table(result["configuration"], "all GPUs", "each GPU", "share")
    for name, size in result["bytes"].items():
        table.add_row(name, *_sizes(size, gpus), f"{100 * size / (total or 1):.1f} %")
    for name, key in (
        ("in HB domains", "hb_bytes"),
        ("by NICs", "nic_bytes"),
        ("by NICs, across rails", "cross_rail_nic_bytes"),
    ):
        table.add_row(name, *_sizes(result[key], gpus), f"{100 * result[key] / (total or 1):.1f} %")
    out.print(table)
    shares = (
        f"{100 * result['idle_pairs']:.2f} % idle",
        f"{100 * result['tensor_pairs']:.3f} % with tensor-parallel traffic",
    )
    out.print(f"{result['pairs']} ordered pairs: {', '.join(shares)}")


def _sizes(size: float, gpus: int) -> tuple[str, str]:
    return f"{size / GIGA:.1f} GB", f"{size / gpus / GIGA:.2f} GB"
