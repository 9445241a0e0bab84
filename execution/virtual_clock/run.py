"""Runs, path checks and benchmarks under the virtual clock: the same results as by the real one."""

import json
from pathlib import Path
from typing import Any

from execution.virtual_clock.command import VirtualCommand
from execution.virtual_clock.known_results import KnownResult
from execution.virtual_clock.machines import guest_mib
from execution.virtual_clock.stored_runs import copied, stored
from results.store.runs import digest_of, read_state
from scenarios.load import with_files_in
from scenarios.scenario import Scenario

# In the machine, GPU proxies are processes: it has no Docker Engine.
OPTIONS = ("--json", "--proxies", "process")
# The folder of a scenario's traces and configurations in the machine.
FILES = Path("/files")


def run_virtually(scenario: Scenario, store: Path, *, fresh: bool) -> dict[str, Any]:
    """Run a scenario; return its JSON object, which its folder in `store` keeps, too.

    A known result is copied, unless `fresh`. Raises `EndedInside` if the run ended without one.
    """
    command = _on_scenario("run", scenario)
    with command.result(store, fresh=fresh) as result:
        (run,) = result.runs
        return stored(run, store, command.clock, scenario.text)


def verify_virtually(scenario: Scenario, store: Path, *, fresh: bool) -> dict[str, Any]:
    """Check the paths of a scenario's fabrics; return the JSON object of the check."""
    command = _on_scenario("verify", scenario)
    with command.result(store, fresh=fresh) as result:
        return {**json.loads(result.output), "clock": _clock(command, result)}


def _on_scenario(name: str, scenario: Scenario) -> VirtualCommand:
    """A command whose argument is a scenario."""
    file, (text, copies) = f"{scenario.name}.yaml", with_files_in(FILES, scenario)
    return VirtualCommand(
        words=(name, f"$RAILBED_HANDED/{file}", *OPTIONS),
        files={file: text},
        seed=scenario.machine_seed,
        memory_mib=guest_mib(scenario.gpus),
        copies=copies,
        scenario=scenario.text,
    )


def bench_virtually(name: str, store: Path, *, fresh: bool) -> tuple[int, dict[str, Any]]:
    """Measure a benchmark; return its exit code and its JSON object.

    Its runs come into `store`, the complete ones with the clock.
    """
    command = VirtualCommand(("bench", name, "--json"))
    with command.result(store, fresh=fresh) as result:
        for run in result.runs:
            if read_state(run)["state"] == "complete":
                stored(run, store, command.clock)
            else:
                copied(run, store)
        measured = {**json.loads(result.output), "clock": _clock(command, result)}
        return result.exit_code, measured


def _clock(command: VirtualCommand, result: KnownResult) -> dict[str, Any]:
    """The clock of a result without runs, whose records are its output."""
    return {**command.clock, "records": digest_of(result.output)}
