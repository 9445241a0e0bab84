"""The command `vm`."""

from pathlib import Path
from typing import Annotated

import typer

from execution.virtual_clock.machines import available_mib
from linux.files.program_files import ROOT
from model.errors import InputError, Problem
from testbed.virtual_machine.guest import execute_in_copy
from testbed.virtual_machine.image import Suite

# Least memory of a virtual machine: Debian and Railbed with its environment take half of it.
LEAST_MIB = 2048


def _possible_memory(mib: int) -> int:
    """Raise `InputError` for a virtual machine that Debian, or this machine, has no room for."""
    most = int(available_mib())
    if not LEAST_MIB <= mib <= most:
        what = f"must be {LEAST_MIB} to {most} MiB (free on this machine), got {mib}"
        raise InputError(Problem("--memory", what))
    return mib


def vm(
    command: Annotated[list[str], typer.Argument(help="command and its arguments, after `--`")],
    memory: Annotated[
        int,
        typer.Option(
            metavar="MIB", callback=_possible_memory, help="memory of the virtual machine"
        ),
    ] = 4096,
    docker: Annotated[bool, typer.Option(help="with a Docker Engine inside")] = False,
    suite: Annotated[
        Suite, typer.Option(help="Debian's release in it, with its kernel")
    ] = Suite.BOOKWORM,
) -> None:
    """Execute a command on a virtual machine, and exit with its exit code."""
    code = execute_in_copy(ROOT, command, Path.cwd(), suite=suite, memory_mib=memory, docker=docker)
    raise typer.Exit(code)
