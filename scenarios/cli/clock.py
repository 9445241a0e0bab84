"""The clock of a command: this machine's, or the virtual machine's."""

from typing import Annotated

import typer

from model.errors import InputError, Problem

CLOCKS = ("real", "virtual")

Clock = Annotated[
    str, typer.Option(help="real, or virtual: counted instructions of a virtual machine, no root")
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="virtual clock: compute again what was computed before")
]


def is_virtual(clock: str) -> bool:
    """Whether the value of `--clock` is the virtual one; raises `InputError` if it is unknown."""
    if clock not in CLOCKS:
        raise InputError(Problem("--clock", f"must be {' or '.join(CLOCKS)}, got {clock!r}"))
    return clock == "virtual"
