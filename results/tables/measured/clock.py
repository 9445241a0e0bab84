"""The line of a result that says with which virtual clock it was measured."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text


def print_clock(result: Mapping[str, Any], console: Console) -> None:
    """Print the clock of a result; nothing for this machine's own clock."""
    if "clock" in result:
        console.print(Text(clock_line(result["clock"]), "dim"), soft_wrap=True)


def clock_line(clock: Mapping[str, Any]) -> str:
    """Describe the virtual clock."""
    return (
        f"\nVirtual clock, {clock['instruction_ns']} ns an instruction: image {clock['image']}, "
        f"{clock['qemu']}, seed {clock['seed']}; records {clock['records']}"
    )
