"""The command `sweep`."""

import shlex
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from commands import options
from commands.output import err, print_result
from commands.plugins import plugin_options, require_built_in
from execution.sweep import ray_executor
from execution.sweep.executor import Executor, LocalExecutor
from execution.sweep.points import Check, SweepRequest
from execution.sweep.runner import Sweeping, sweep_listener
from execution.virtual_clock.machines import machines_at_once
from model.errors import InputError, Problem
from model.sweep import REAL
from results.sections.several_runs import sweep_section
from results.store.runs import DEFAULT_STORE
from results.store.sweeps import SweepFolder
from results.verdicts.several_runs import sweep_object
from scenarios.library_files import scenario_file
from scenarios.load import load
from scenarios.planning.machine_profile import machine_by
from testbed.virtual_machine.image import program


def sweep(
    scenario: Annotated[Path | None, options.SCENARIO] = None,
    over: Annotated[
        list[str], typer.Option(metavar="KEY=V1,V2,...", help="the values of a key; repeatable")
    ] = [],  # noqa: B006  (typer wants a plain default)
    overrides: options.Overrides = [],  # noqa: B006
    proxies: options.Proxies = None,
    name: Annotated[str | None, typer.Option(help="name of the new sweep")] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="NAME", help="name of a sweep to resume, or `latest`")
    ] = None,
    as_json: options.AsJson = False,
    store: options.Store = DEFAULT_STORE,
    clock: Annotated[
        options.ClockName | None, typer.Option(help=f"{options.VIRTUAL_CLOCK}; default: real")
    ] = None,
    fresh: options.Fresh = False,
    at_once: Annotated[
        int | None, typer.Option(min=1, help="virtual clock: most points at once on a machine")
    ] = None,
    executor: Annotated[
        Literal["local", "ray"], typer.Option(help="ray: all machines of a Ray cluster")
    ] = "local",
    address: Annotated[
        str | None, typer.Option(help="address of the Ray cluster; default: auto")
    ] = None,
) -> bool:
    """Begin or resume a sweep; return whether the verdict of all its points is fail."""
    file = None if scenario is None else scenario_file(scenario)
    options.require_processes(clock, proxies)
    asked = SweepRequest(file, tuple(over), tuple(overrides), proxies, name, resume, clock)
    is_local = executor == "local"
    if is_local:
        options.refuse_idle("needs --executor ray", address=address)
    if resume is None and clock in (None, REAL):
        _refuse_virtual_options(at_once, fresh=fresh)
    if is_local:
        require = partial(_require_machine, clock or REAL, proxies)
        folder = asked.folder(store, _check_here, require, machine_by)
    else:
        require = partial(ray_executor.connected, address or "auto")
        folder = asked.folder(store, _check_elsewhere, require)
    for number, damage in folder.damage.items():
        err.print(f"Point {number} is damaged and runs again: {damage}", soft_wrap=True)
    if folder.sweep.clock == REAL:
        _refuse_virtual_options(at_once, fresh=fresh)
    if folder.unfinished:
        with folder.locked():
            folder.require_version()
            runs = _local(folder, at_once) if is_local else _on_ray(address, folder, at_once)
            given = {
                "--store": None if store == DEFAULT_STORE else store,
                "--executor": None if is_local else executor,
                "--address": address,
                "--at-once": at_once,
            }
            _run_points(folder, runs, given, fresh=fresh)
    else:
        err.print("All points have results; another --name measures them again.")
    result = sweep_object(folder)
    print_result(result, as_json, lambda swept: [sweep_section(swept)])
    return bool(result["verdict"] == "fail")


def _refuse_virtual_options(at_once: int | None, *, fresh: bool) -> None:
    """Raise `InputError` for options that have no meaning by the real clock."""
    options.refuse_fresh(fresh)
    if at_once not in (None, 1):
        what = f"must be 1 with the real clock, got {at_once}"
        hint = "points would compete for cores; use --clock virtual"
        raise InputError(Problem("--at-once", what, hint))


def _check_here(clock: str) -> Check:
    """The check of points on this machine: by the real clock, its kernel is asked."""
    return options.require_possible if clock == REAL else require_built_in


def _check_elsewhere(_clock: str) -> Check:
    """The check of points on other machines, which may have another kernel."""
    return partial(require_built_in, option="--executor ray")


def _require_machine(clock: str, proxies: str | None) -> None:
    """Make this machine ready for points; raise `NotReady` if it cannot execute them."""
    if clock == REAL:
        options.ready(proxies, options.NEEDS_NO_ROOT)
    else:
        program()


def _local(folder: SweepFolder, at_once: int | None) -> Executor:
    """The executor on this machine, which is made ready; by the real clock, for single points."""
    _require_machine(folder.sweep.clock, folder.sweep.proxies)
    if folder.sweep.clock == REAL:
        return LocalExecutor()
    return LocalExecutor(at_once or machines_at_once(_most_gpus(folder)))


def _on_ray(address: str | None, folder: SweepFolder, at_once: int | None) -> Executor:
    """The executor on a cluster's machines, each of which must be ready; by default, this one's."""

    def say(line: str) -> None:
        err.print(f"point {line}", soft_wrap=True)

    clock, gpus = folder.sweep.clock, _most_gpus(folder)
    return ray_executor.RayExecutor(address or "auto", clock, gpus, at_once, say)


def _most_gpus(folder: SweepFolder) -> int:
    return max(load(folder.scenario(point)).gpus for point in folder.sweep.points)


def _run_points(
    folder: SweepFolder, executor: Executor, given: Mapping[str, object], *, fresh: bool
) -> None:
    """Run the points that have no result yet; if interrupted, print how to resume the sweep.

    That takes the `given` options, but for those without a value. Ray prints messages about its
    machines to standard output, which is for the result alone.
    """
    again = ("--fresh",) if fresh else ()
    arguments = ("--proxies", folder.sweep.proxies, "--clock", folder.sweep.clock, *again)
    try:
        with redirect_stdout(sys.stderr), sweep_listener(err, folder) as listener:
            Sweeping(folder, executor, listener, arguments).run()
    except KeyboardInterrupt:
        options = (f"{option}={value}" for option, value in given.items() if value is not None)
        words = [*plugin_options(), "sweep", "--resume", folder.name, *options, *again]
        err.print(f"Resume the sweep with `./railbed {shlex.join(words)}`.", soft_wrap=True)
        raise
