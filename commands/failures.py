"""The command `failures`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from commands import options
from commands.output import err, print_result
from execution.cases.progress import Lines
from execution.sweep.executor import LocalExecutor
from execution.sweep.runner import run_several
from execution.virtual_clock.machines import machines_at_once
from model.errors import EmulationError, NotReady
from model.sweep import VIRTUAL
from results.sections.run import failures_section
from results.store.runs import DEFAULT_STORE
from results.verdicts.fault_impact import lost_experiment
from scenarios.library_files import library
from scenarios.load import load
from scenarios.planning.machine_profile import machine_by
from scenarios.scenario import Scenario
from testbed.virtual_machine.image import program


def failures(
    as_json: options.AsJson = False,
    proxies: options.Proxies = None,
    store: options.Store = DEFAULT_STORE,
    clock: options.Clock = "real",
    fresh: options.Fresh = False,
) -> bool:
    """Run all experiments; print their rows, or those until one ended early."""
    machine = machine_by(clock)
    experiments = [load(path, (), machine) for path in library() if load(path).has_faults]
    rows: list[dict[str, Any]] = []
    try:
        if options.is_virtual(clock, proxies, fresh=fresh):
            rows.extend(_virtually(experiments, store, fresh=fresh))
        else:
            rows.extend(_one_by_one(experiments, proxies, store))
    finally:
        if rows:
            print_result(rows, as_json, lambda failed: [failures_section(failed)])
    return any(row["verdict"] == "fail" for row in rows)


def _one_by_one(
    experiments: Sequence[Scenario], proxies: str | None, store: Path
) -> Iterator[dict[str, Any]]:
    """Run the experiments on this machine; yield the rows of each."""
    from execution.run import run

    for experiment in experiments:
        options.require_possible(experiment)
    kind, lines = options.ready(proxies, options.NEEDS_NO_ROOT), Lines(err)
    for experiment in experiments:
        try:
            yield from run(experiment, kind, store, lines)["failures"]
        except (EmulationError, NotReady) as error:
            yield lost_experiment(experiment.name, str(error))


def _virtually(
    experiments: Sequence[Scenario], store: Path, *, fresh: bool
) -> Iterator[dict[str, Any]]:
    """Run the experiments under the virtual clock, several at once; yield the rows of all."""
    program()
    arguments = ("--clock", VIRTUAL, *(("--fresh",) if fresh else ()))
    executor = LocalExecutor(machines_at_once(max(one.gpus for one in experiments)))
    results = run_several(experiments, arguments, store, executor, Lines(err))
    for one in experiments:
        result = results[one.name]
        if isinstance(result, str):
            yield lost_experiment(one.name, result)
        else:
            yield from ({**row, "clock": result["clock"]} for row in result["failures"])
