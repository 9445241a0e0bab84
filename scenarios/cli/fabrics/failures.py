"""The command `failures`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.errors import EmulationError, NotReady
from model.sweep import VIRTUAL
from results.store.runs import DEFAULT_STORE
from results.tables.measured.fault_impact import print_failures
from scenarios.cli.common.options import (
    CONTAINER,
    NEEDS_NO_ROOT,
    AsJson,
    Clock,
    Fresh,
    Proxies,
    Store,
    is_virtual,
)
from scenarios.cli.common.output import err, exit_with, print_result
from scenarios.cli.common.ready import ready
from scenarios.file_formats.scenario.library import library

if TYPE_CHECKING:
    from scenarios.file_formats.scenario.scenario import Scenario
    from scenarios.sweep.several import Causes, Results


def failures(
    as_json: AsJson = False,
    proxies: Proxies = None,
    store: Store = DEFAULT_STORE,
    clock: Clock = "real",
    fresh: Fresh = False,
) -> None:
    """Run all failure experiments of the library, on both fabrics, and print one table."""
    from scenarios.loader import load

    experiments = [scenario for path in library() if (scenario := load(path)).has_faults]
    rows: list[dict[str, Any]] = []
    try:
        if is_virtual(clock, proxies, fresh=fresh):
            rows += _virtually(experiments, store, fresh=fresh)
        else:
            rows.extend(_one_by_one(experiments, proxies or CONTAINER, store))
    finally:
        if rows:
            print_result(rows, as_json, print_failures)
    exit_with(failed=any(row["verdict"] == "fail" for row in rows))


def _one_by_one(
    experiments: Sequence["Scenario"], proxies: str, store: Path
) -> Iterator[dict[str, Any]]:
    """Run the experiments on this machine; yield the rows of each."""
    from results.documents.fault_impact import lost_experiment
    from scenarios.execution.cases.progress import Lines
    from scenarios.execution.run import run
    from scenarios.planning.kernel_support import require_possible

    for experiment in experiments:
        require_possible(experiment)
    kind, lines = ready(proxies, NEEDS_NO_ROOT), Lines(err)
    for experiment in experiments:
        try:
            yield from run(experiment, kind, store, lines)["failures"]
        except (EmulationError, NotReady) as error:
            yield lost_experiment(experiment.name, str(error))


def _virtually(
    experiments: Sequence["Scenario"], store: Path, *, fresh: bool
) -> list[dict[str, Any]]:
    """Run the experiments under the virtual clock, several at once; return the rows of all."""
    from scenarios.execution.cases.progress import Lines
    from scenarios.execution.virtual_clock.machines import machines_at_once
    from scenarios.sweep.executor import LocalExecutor
    from scenarios.sweep.several import run_several
    from testbed.virtual_machine.program import program

    program()
    options = ("--clock", VIRTUAL, *(("--fresh",) if fresh else ()))
    executor = LocalExecutor(machines_at_once(max(one.gpus for one in experiments)))
    results, causes = run_several(experiments, options, store, executor, Lines(err))
    return [row for one in experiments for row in _rows(one.name, results, causes)]


def _rows(name: str, results: "Results", causes: "Causes") -> list[dict[str, Any]]:
    """The rows of an experiment, each with its clock."""
    from results.documents.fault_impact import lost_experiment

    if name in causes:
        return [lost_experiment(name, causes[name])]
    return [{**row, "clock": results[name]["clock"]} for row in results[name]["failures"]]
