"""The controller as a process of its own: its files, its start, its journal."""

import json
import pickle
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from linux.files.program_files import MODULES_HERE, module_command
from linux.network.borrowed_sockets import closing_together
from linux.processes.lifetime import BEFORE_PROXIES, Watch, end, start, wait_for
from linux.processes.run_lock import RunLock
from model.errors import EmulationError
from model.fabric.link_probes import longest_detection_s
from model.fabric.topology import Topology

NAME = "the controller"
# Longest time until the controller is ready, without that in which it looks for gray failures.
READY_DEADLINE_S = 60


class ControllerProcess:
    """The controller of a fabric, which can be killed and started again on the same journal."""

    def __init__(
        self, topology: Topology, process_ids: dict[str, int], lock: RunLock, watch: Watch
    ):
        folder = lock.folder / "controller"
        folder.mkdir()
        self.journal = folder / "journal.jsonl"
        self._fabric, self._proxies = folder / "fabric.pickle", folder / "proxies.json"
        self._log = folder / "controller.log"
        self._process_ids, self._watch = process_ids, watch
        self._deadline_s = READY_DEADLINE_S + longest_detection_s(topology)
        self._environment = {**lock.environment, **MODULES_HERE}
        self._process: subprocess.Popen[bytes] | None = None
        self._earlier_lines = 0
        # A copy, without what was computed of it: the controller does without NumPy.
        self._fabric.write_bytes(pickle.dumps(replace(topology.spec)))

    @property
    def is_running(self) -> bool:
        """Whether there is a process that has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the controller in the current network namespace, for the current proxies.

        It dies with the thread that starts it (prctl(2), PR_SET_PDEATHSIG).
        """
        if self.is_running:
            raise EmulationError(f"{NAME}: already running; a switch connects to one only")
        if self.journal.exists():  # an incomplete last line, left by a killed process, goes
            with self.journal.open("r+b") as file:
                file.truncate(file.read().rfind(b"\n") + 1)
        self._earlier_lines = self.journal_length()
        self._proxies.write_text(json.dumps(self._process_ids))
        command = module_command("controller", self._fabric, self._proxies, self.journal)
        self._process = start(command, self._log, self._environment, BEFORE_PROXIES)
        self._watch.add(NAME, self._process.pid, self._log)

    def kill(self) -> None:
        """Kill the controller, as `kill -9` does; it is no longer watched."""
        self._watch.forget(NAME)
        if self._process is not None:
            with closing_together(self._process.pid):
                end(self._process)

    def journal_length(self) -> int:
        """Return the number of lines in the journal."""
        return len(read_journal(self.journal))

    def wait_for_event(self, event: str) -> None:
        """Wait until this process has written an event to the journal.

        After `listening`, switches can connect: a refused switch retries only after a second. At
        `ready`, every switch has confirmed its rules and every proxy has its routes.
        """

        def seen() -> bool:
            lines = read_journal(self.journal)[self._earlier_lines :]
            return any(line["event"] == event for line in lines)

        wait_for(seen, f"{NAME}: {event}", self._deadline_s, self._watch.check)

    def wait_until_moved(self, links: frozenset[str]) -> None:
        """Wait until the controller has taken links out of use, and removed the old paths.

        Raises `EmulationError` if it is dead.
        """
        if not self.is_running:
            raise EmulationError(f"{NAME}: is dead, and drains no links")

        def moved() -> bool:
            events: Sequence[dict[str, Any]] = read_journal(self.journal)
            last = [event for event in events if event["event"] in ("computed", "settled")][-2:]
            is_settled = len(last) == 2 and last[1]["event"] == "settled"
            return is_settled and links <= set(last[0]["failed"])

        wait_for(moved, f"{NAME}: links drained", READY_DEADLINE_S, self._watch.check)


@contextmanager
def controller(
    topology: Topology, process_ids: dict[str, int], lock: RunLock, watch: Watch
) -> Iterator[ControllerProcess]:
    """Start the controller in the current network namespace; kill it when the context ends."""
    process = ControllerProcess(topology, process_ids, lock, watch)
    try:
        process.start()
        yield process
    finally:
        process.kill()


def read_journal(journal: Path) -> list[dict[str, Any]]:
    """Return the controller's journal entries, oldest first, without an incomplete last line."""
    if not journal.exists():
        return []
    state = journal.stat()
    return list(_entries(journal, state.st_size, state.st_mtime_ns))


@lru_cache(maxsize=1)  # waits for an entry look 200 times a second
def _entries(journal: Path, *_state: int) -> list[dict[str, Any]]:
    lines = journal.read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines]
