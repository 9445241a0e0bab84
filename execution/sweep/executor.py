"""Executors of runs: each run reads a scenario, writes a run folder, and shares nothing."""

import os
import signal
import subprocess
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import wait
from pathlib import Path
from typing import Protocol

from linux.files.program_files import MODULES_HERE, module_command
from linux.processes.lifetime import end, last_message, start
from model.errors import EXIT_INTERRUPTED, InputError
from model.fabric.spec import FabricKind
from model.sweep import HANGING, VIRTUAL
from results.store.runs import read_state, stored_runs
from results.store.sweeps import WITH_RESULT, Outcome
from scenarios.planning.plan import estimate_of
from scenarios.scenario import Scenario

END_DEADLINE_S = 60
# Seconds of a point beside its executions: a large fabric comes up in minutes on a busy machine.
PATIENCE, PATIENCE_S = 10, 1800
# poll(2) waits for at most 2^31 milliseconds at once.
LONGEST_POLL_S = 2e6
# Longest time of a point under the virtual clock, whose seconds take many real ones.
VIRTUAL_S = 8 * 3600.0


@dataclass(frozen=True)
class Order:
    """A run to execute: its scenario file, where its run folder goes, and options of `run`.

    It hangs after `at_most_s` seconds. Run folders of `earlier` attempts are not its own.
    """

    scenario: Path
    folder: Path
    options: tuple[str, ...]
    at_most_s: float
    earlier: tuple[Path, ...] = ()

    @property
    def log(self) -> Path:
        """The file of the run's output."""
        return self.folder / "log.txt"

    def outcome(self, exit_code: int, took_s: float) -> Outcome:
        """How the run has ended."""
        runs = [run for run in stored_runs(self.folder) if run not in self.earlier]
        run = runs[-1] if runs else None
        return Outcome(exit_code, run, took_s, cause(exit_code, run, self.log, self.at_most_s))


Ended = Generator[tuple[Order, Outcome], None, None]


class Executor(Protocol):
    """Executes runs, on this machine or elsewhere."""

    @property
    def at_once(self) -> int:
        """The most runs under way at the same time."""

    def execute(self, orders: Iterator[Order]) -> Ended:
        """Execute runs; yield each with its outcome when it ends.

        An order is taken when its run begins. A generator that is closed before its end has taken
        down all runs that were under way.
        """


@dataclass(frozen=True)
class LocalExecutor:
    """Executes each order as a `railbed run` of its own on this machine, `at_once` at a time.

    A run that crashes affects no other; the kernel kills the runs when this process is killed.
    """

    at_once: int = 1

    def execute(self, orders: Iterator[Order]) -> Ended:
        """Execute runs; the output of each goes to `log.txt` in its folder."""
        under_way: list[_Started] = []
        try:
            under_way += map(_Started, islice(orders, self.at_once))
            while under_way:
                ended = _first_ended(under_way)
                under_way.remove(ended)
                yield ended.order, ended.outcome()
                under_way += map(_Started, islice(orders, 1))
        finally:
            _terminate([started.process for started in under_way])


class _Started:
    def __init__(self, order: Order) -> None:
        self.order = order
        order.log.unlink(missing_ok=True)
        self._begun_s = time.monotonic()
        self.hung = False
        self.process = start(_command(order), order.log, MODULES_HERE)

    @property
    def left_s(self) -> float:
        """Seconds after which the run hangs."""
        return max(0.0, self._begun_s + self.order.at_most_s - time.monotonic())

    def outcome(self) -> Outcome:
        """How the run has ended."""
        exit_code = HANGING if self.hung else self.process.wait()
        return self.order.outcome(exit_code, time.monotonic() - self._begun_s)


def at_most_s(scenario: Scenario, options: Sequence[str]) -> float:
    """Seconds after which the run of a scenario hangs.

    Under the virtual clock 8 h; else 30 min, ten times its modeled time, and its faults' time.
    """
    if VIRTUAL in options:
        return VIRTUAL_S
    estimates = (estimate_of(case, scenario.spec_of(case.kind)) for case in scenario.cases)
    longest_s = max(estimate.completion_s for estimate in estimates)
    faulted_s = sum(_faulted_s(scenario, case.kind) for case in scenario.cases)
    return PATIENCE_S + PATIENCE * scenario.executions * longest_s + faulted_s


def _faulted_s(scenario: Scenario, kind: FabricKind) -> float:
    """Seconds that a case waits for the ends of its faults, and for its job's return."""
    ends_s = [fault.at_s + (fault.for_s or 0.0) for fault in scenario.faults.get(kind, ())]
    job = scenario.keys.job
    return max(ends_s) + job.restart_time + job.reconfiguration_time if ends_s else 0.0


def _command(order: Order) -> list[str]:
    words = order.scenario, *order.options, "--store", order.folder
    return module_command("commands", "run", *words)


def _first_ended(under_way: Sequence[_Started]) -> _Started:
    """Wait until one of the runs has ended, or hangs and is ended."""
    with ExitStack() as stack:
        by_descriptor = {}
        for started in under_way:
            descriptor = os.pidfd_open(started.process.pid)
            stack.callback(os.close, descriptor)
            by_descriptor[descriptor] = started
        first = min(under_way, key=lambda started: started.left_s)
        while not (ended := wait(by_descriptor, min(first.left_s, LONGEST_POLL_S))):
            if not first.left_s:
                first.hung = True
                _terminate([first.process])
                return first
        return next(started for number, started in by_descriptor.items() if number in ended)


def _terminate(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask runs to take themselves down, and wait for their end; kill those that do not."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            end(process)


def cause(exit_code: int, run: Path | None, log: Path, limit_s: float) -> str:
    """The reason for a run's missing result, by its own message if there is one; else empty.

    `limit_s` is the number of seconds after which the run was taken to hang.
    """
    try:
        state = read_state(run) if run is not None else {"state": "not begun"}
    except InputError as error:  # the run died before it had a state
        state = {"state": "not begun", "cause": str(error)}
    if state["state"] == "complete" and exit_code in WITH_RESULT:
        return ""
    if exit_code == HANGING:
        return f"its run did not end within {limit_s / 60:.3g} min, and was killed"
    if exit_code < 0:
        return f"its run was killed by signal {-exit_code} ({signal.strsignal(-exit_code)})"
    if exit_code == EXIT_INTERRUPTED:
        return "its run was interrupted"
    return state.get("cause") or last_message(log)
