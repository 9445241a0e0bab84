"""The clock of a command: this machine's, or the virtual machine's."""

from typing import Annotated

import typer

from model.errors import InputError, Problem
from model.sweep import CLOCKS, VIRTUAL

Clock = Annotated[
    str, typer.Option(help="real, or virtual: counted instructions of a virtual machine, no root")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="virtual clock: compute known results again")]
# For errors of commands that have the option.
NEEDS_NO_ROOT = "`--clock virtual` needs no root"


def is_virtual(clock: str, proxies: str | None) -> bool:
    """Whether `--clock` is the virtual one; raises `InputError` if it is unknown.

    Also if `--proxies` asks for others than processes: the virtual machine has no Docker Engine.
    """
    if clock not in CLOCKS:
        raise InputError(Problem("--clock", f"must be {' or '.join(CLOCKS)}, got {clock!r}"))
    if clock == VIRTUAL and proxies not in (None, "process"):
        what = f"must be process with the virtual clock, got {proxies!r}"
        raise InputError(Problem("--proxies", what, "the virtual machine has no Docker Engine"))
    return clock == VIRTUAL
