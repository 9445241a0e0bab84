"""The command `exec`: programs that know nothing of Railbed, in the proxies of a fabric."""

import os
import shutil
import sys
from functools import partial
from typing import Annotated

import typer

from commands import options
from commands.output import err, print_result
from model.errors import InputError, NotReady, Problem, RailbedError
from results.sections.machine import program_sections
from results.store.records import plain

LONGEST_S = 86_400.0


def execute(
    scenario: options.ScenarioPath,
    command: options.Command,
    as_json: options.AsJson = False,
    proxies: options.Proxies = None,
    overrides: options.Overrides = [],  # noqa: B006  (typer wants a plain default)
    datapath: options.Datapath = None,
    image: Annotated[
        str, typer.Option(help="a Docker image; each rank gets a container of it")
    ] = "",
    launcher: Annotated[
        bool, typer.Option("--launcher", help="start the command once: Open MPI's mpirun")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=LONGEST_S, help="seconds until all ranks are killed")
    ] = 300.0,
) -> bool:
    """Run a command on a fabric, print the end of each rank; return whether one failed."""
    loaded = options.load_scenario(scenario, overrides, datapath)
    _require_startable(command, image, launcher, proxies)
    kind = options.ready(proxies)
    options.require_fabrics(loaded)
    from execution.program import Program
    from execution.program import execute as executed

    program = Program(command, timeout, image, launcher)
    # Standard output is for the JSON object.
    show = partial(print_line, all_on_error=as_json)
    run = executed(loaded.name, loaded.fabrics[0], kind, program, show)
    print_result(plain(run), as_json, program_sections)
    if run.sentence:
        err.print(f"railbed: {run.sentence}", style="red", soft_wrap=True)
    return bool(run.sentence)


def _require_startable(command: list[str], image: str, launcher: bool, proxies: str | None) -> None:
    if image and launcher:
        what = "cannot be combined with --image: its ranks are programs of this machine"
        raise InputError(Problem("--launcher", what))
    if image and proxies not in (None, options.CONTAINER):
        what = "needs GPU proxies that are containers"
        raise InputError(Problem("--image", what, "leave --proxies out"))
    if not image and shutil.which(command[0]) is None:
        raise _not_startable(command[0])


def _not_startable(name: str) -> RailbedError:
    """Explain why no program has this name: a path is not looked up in the PATH (execvp(3))."""
    if "/" in name and os.path.isdir(name):
        return InputError(Problem(name, "is a folder, not a program"))
    if "/" in name and os.path.exists(name):
        return InputError(Problem(name, "is not executable", "chmod +x, or put `sh` before it"))
    if "/" in name:
        return NotReady(f"{name}: not found")
    hint = "install Debian's openmpi-bin; " if name == "mpirun" else ""
    return NotReady(f"{name}: not found; {hint}is it in the PATH?")


def print_line(rank: int, is_error: bool, line: bytes, *, all_on_error: bool) -> None:
    """Print a rank's line on the output that it was written to, after the rank's number."""
    output = sys.stderr if is_error or all_on_error else sys.stdout
    print(f"[{rank}] {line.decode(errors='backslashreplace')}", file=output, flush=True)
