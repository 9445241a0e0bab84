"""The command `failures`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from commands import options
from commands.output import err, print_result
from execution.cases.progress import Lines
from execution.sweep.executor import LocalExecutor
from execution.sweep.runner import run_several
from execution.virtual_clock.machines import machines_at_once
from model.errors import EmulationError, InputError, NotReady
from model.prediction.machine import Machine
from model.sweep import REAL, VIRTUAL
from results.sections.run import failures_section
from results.store.runs import DEFAULT_STORE
from results.verdicts.fault_impact import lost_experiment
from scenarios.library_files import library
from scenarios.load import load
from scenarios.planning.machine_profile import machine_by
from scenarios.scenario import Scenario
from testbed.virtual_machine.image import program

# Scenarios with faults by their names, or why one is refused.
Experiments = Mapping[str, Scenario | str]


def failures(
    as_json: options.AsJson = False,
    proxies: options.Proxies = None,
    store: options.Store = DEFAULT_STORE,
    clock: options.Clock = "real",
    fresh: options.Fresh = False,
) -> bool:
    """Run all experiments; print their rows, or those until one ended early."""
    rows: list[dict[str, Any]] = []
    try:
        if options.is_virtual(clock, proxies, fresh=fresh):
            rows.extend(_virtually(store, fresh=fresh))
        else:
            rows.extend(_one_by_one(proxies, store))
    finally:
        if rows:
            print_result(rows, as_json, lambda failed: [failures_section(failed)])
    return any(row["verdict"] == "fail" for row in rows)


def _experiments(clock: str) -> Experiments:
    """Load all scenarios with faults for a clock's machine, by their names; it takes seconds."""
    machine = machine_by(clock)
    named = ((path, load(path)) for path in library())
    return {one.name: _loaded(path, machine) for path, one in named if one.has_faults}


def _loaded(path: Path, machine: Machine | None) -> Scenario | str:
    try:
        return load(path, (), machine)
    except InputError as error:
        return f"not executed: {error}"


def _executable(experiments: Experiments) -> list[Scenario]:
    return [one for one in experiments.values() if not isinstance(one, str)]


def _one_by_one(proxies: str | None, store: Path) -> Iterator[dict[str, Any]]:
    kind, lines = options.ready(proxies, options.NEEDS_NO_ROOT), Lines(err)
    from execution.run import run

    experiments = _experiments(REAL)
    for experiment in _executable(experiments):
        options.require_possible(experiment)
    for name, one in experiments.items():
        if isinstance(one, str):
            yield lost_experiment(name, one)
            continue
        try:
            yield from run(one, kind, store, lines)["failures"]
        except (EmulationError, NotReady) as error:
            yield lost_experiment(name, str(error))


def _virtually(store: Path, *, fresh: bool) -> Iterator[dict[str, Any]]:
    """Run the experiments under the virtual clock, several at once; yield the rows of all."""
    program()
    experiments = _experiments(VIRTUAL)
    arguments = ("--clock", VIRTUAL, *(("--fresh",) if fresh else ()))
    possible = _executable(experiments)
    executor = LocalExecutor(machines_at_once(max((one.gpus for one in possible), default=0)))
    results = run_several(possible, arguments, store, executor, Lines(err))
    for name, one in experiments.items():
        result = one if isinstance(one, str) else results[name]
        if isinstance(result, str):
            yield {**lost_experiment(name, result), "clock": {"kind": VIRTUAL}}
        else:
            yield from ({**row, "clock": result["clock"]} for row in result["failures"])
