"""The command `vm`."""

from typing import Annotated

import typer

from commands.options import Command
from commands.output import err
from execution.virtual_clock.machines import available_mib
from linux.files.program_files import ROOT
from linux.files.user_files import work_folder
from model.errors import InputError, Problem
from results.store.runs import DEFAULT_STORE, copy_all, require_writable
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
    command: Command,
    memory: Annotated[
        int, typer.Option(metavar="MIB", callback=_possible_memory, help="memory of the machine")
    ] = 4096,
    docker: Annotated[bool, typer.Option(help="start a Docker Engine in it")] = False,
    suite: Annotated[
        Suite, typer.Option(help="its release of Debian, with that kernel")
    ] = Suite.BOOKWORM,
) -> None:
    """Execute a command on a virtual machine, keep its runs, and exit with its exit code."""
    require_writable(DEFAULT_STORE, "change to a folder that you may write in")
    with work_folder() as back:
        code = execute_in_copy(ROOT, command, back, suite=suite, memory_mib=memory, docker=docker)
        for name, place in copy_all(back / "runs", DEFAULT_STORE).items():
            err.print(f"{DEFAULT_STORE / name} exists: stored as {place}.", soft_wrap=True)
    raise typer.Exit(code)
