"""Executors of sweep points: each point reads a scenario, writes a run folder, shares nothing."""

import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from linux.processes import last_words, start
from results.store.runs import read_state, stored_runs
from results.store.sweeps import WITH_RESULT, Outcome

PROGRAM = Path(__file__).parents[2]
INTERRUPTED = 130


@dataclass(frozen=True)
class Order:
    """A point to run: its scenario file, where its run folder goes, and the kind of proxies."""

    scenario: Path
    folder: Path
    proxies: str


class Executor(Protocol):
    """Runs points, on this machine or elsewhere."""

    def execute(self, order: Order) -> Outcome:
        """Run a point until it succeeds or fails.

        On an interruption (`KeyboardInterrupt`) take the point down first, then raise it again.
        """


class LocalExecutor:
    """Runs each point as a `railbed run` of its own on this machine.

    A point that crashes affects no other; the kernel kills the point when the sweep is killed.
    """

    def execute(self, order: Order) -> Outcome:
        """Run a point; its output goes to `log.txt` in its folder."""
        log = order.folder / "log.txt"
        log.unlink(missing_ok=True)
        begun_s = time.monotonic()
        exit_code = _ended(start(_command(order), log, {"PYTHONPATH": str(PROGRAM)}))
        run = next(reversed(stored_runs(order.folder)), None)
        took_s = time.monotonic() - begun_s
        return Outcome(exit_code, run, took_s, _cause(exit_code, run, log))


def _command(order: Order) -> list[str]:
    options = ["--proxies", order.proxies, "--store", str(order.folder)]
    return [sys.executable, "-P", "-m", "scenarios", "run", str(order.scenario), *options]


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Wait for a run's exit code; on an interruption, terminate the run and wait for its end."""
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise


def _cause(exit_code: int, run: Path | None, log: Path) -> str:
    """Why a run has no result, by its own message if there is one; empty if it has a result."""
    state = read_state(run) if run is not None else {"state": "not begun"}
    if state["state"] == "complete" and exit_code in WITH_RESULT:
        return ""
    if exit_code < 0:
        return f"its run was killed by signal {-exit_code} ({signal.strsignal(-exit_code)})"
    if exit_code == INTERRUPTED:
        return "its run was interrupted"
    return state.get("cause") or last_words(log).rpartition("railbed: ")[2]
