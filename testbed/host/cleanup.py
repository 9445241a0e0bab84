"""Removes leftovers of dead runs: processes and containers with their run ids, and folders.

    python -m testbed.host.cleanup

does so after a run has died (`linux/processes/lifetime.py`), again and again for some seconds: the
Docker Engine may still create containers that the run requested.
"""

import os
import signal
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import gettempdir

from docker.errors import DockerException
from docker.models.containers import Container

from linux.files.user_files import remove_unfinished
from linux.processes.lifetime import is_stopped
from linux.processes.run_lock import RUN_LABEL, live_run_ids, remove_dead, run_of, run_processes
from linux.processes.threads import in_threads
from model.errors import EmulationError, NotReady, RailbedError
from testbed.nodes.docker_engine import (
    answering,
    by_holder,
    containers_seen,
    docker_client,
    labeled,
    remove_container,
    stopped_holder,
)
from testbed.virtual_machine.cache import RESULTS, cache_folder

# Cleaning is repeated every `AGAIN_S`, until `QUIET_S` without leftovers, or `AT_MOST_S`, are over.
QUIET_S, AT_MOST_S, AGAIN_S = 2.0, 8.0, 0.3
# Seconds for the Docker Engine: an answer, all removals, and removals for a run without it.
ENGINE_S, REMOVALS_S, HURRY_S = 20, 60, 2
REAPER = b"testbed.host.cleanup"
REMEDY = "resume stopped processes (`kill -CONT`), then `sudo ./railbed clean` removes them"


@dataclass(frozen=True)
class Removed:
    """Counts of removed leftovers, `runs` those in /run/railbed; and what is left."""

    runs: int
    processes: int
    containers: int
    work_folders: int
    left: str = ""

    def __bool__(self) -> bool:
        return bool(str(self))

    def __str__(self) -> str:
        counts = (
            (self.runs, "dead run", "dead runs"),
            (self.processes, "process", "processes"),
            (self.containers, "container", "containers"),
            (self.work_folders, "work folder", "work folders"),
        )
        return ", ".join(f"{n} {one if n == 1 else many}" for n, one, many in counts if n)


def clean(within_s: float = REMOVALS_S) -> Removed:
    """Remove what dead runs have left, containers in time only; nothing else."""
    if os.geteuid() != 0:
        raise NotReady("leftovers of runs belong to root; run the command again with `sudo`")
    processes = _kill_processes()
    containers, left = _remove_containers(within_s)
    return Removed(remove_dead(), processes, containers, _remove_work_folders(), left)


def _remove_work_folders() -> int:
    """Remove the work folders of dead processes; return how many there were."""
    cache = cache_folder()
    return sum(map(remove_unfinished, (Path(gettempdir()), cache, cache / RESULTS)))


def _kill_processes() -> int:
    """Kill the processes of dead runs; return how many there were.

    Processes are listed before live runs are, so those of a run that begins meanwhile are safe.
    """
    listed = [one for one in run_processes() if not _cleans(one[0])]
    alive = live_run_ids()
    dead = [(process_id, run_id) for process_id, run_id in listed if run_id not in alive]
    for process_id, run_id in dead:
        _kill(process_id, run_id)
    return len(dead)


def _kill(process_id: int, run_id: str) -> None:
    """Kill a process of a run, unless it has ended; its number may be used again meanwhile."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(process_id)
        try:
            if run_of(process_id) == run_id:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


def _cleans(process_id: int) -> bool:
    """Whether a process is this one, or a reaper that is not stopped (SIGSTOP)."""
    with suppress(OSError):
        words = Path(f"/proc/{process_id}/cmdline").read_bytes().split(b"\0")
        return process_id == os.getpid() or (REAPER in words and not is_stopped(process_id))
    return False


def _remove_containers(within_s: float) -> tuple[int, str]:
    """Remove the containers of dead runs; return how many, and a sentence about what is left.

    Those that a stopped process holds are left: the engine would wait for that process.
    """
    end_s, removed, names, why = time.monotonic() + within_s, list[str](), dict[str, str](), ""

    def check() -> None:
        if time.monotonic() > end_s:
            raise EmulationError(f"no answer of the Docker Engine within {within_s:g} s")

    def remove(container: Container) -> None:
        remove_container(container)
        removed.append(names.pop(container.id))

    try:
        (client,) = in_threads(docker_client, [ENGINE_S], check)
        with closing(client), answering():
            (listed,) = in_threads(partial(labeled, client), [RUN_LABEL], check)
            alive = live_run_ids()
            dead = [one for one in listed if one.attrs["Labels"][RUN_LABEL] not in alive]
            names |= {one.id: one.attrs["Names"][0].strip("/") for one in dead}
            in_threads(remove, [one for one in dead if not stopped_holder(one.id)], check)
    except RailbedError as error:
        why, names = str(error), names or containers_seen(but_of=live_run_ids())
        # Without an engine, containers are left of one that was killed.
        if not isinstance(error.__cause__, (FileNotFoundError, ConnectionRefusedError)):
            names = names or {"": "containers, if any"}
    left = by_holder(dict(names), why)
    return len(removed), f"left of killed runs: {left}; {REMEDY}" if left else ""


def clean_until_quiet() -> None:
    """Clean until there was no leftover for `QUIET_S`, for `AT_MOST_S` at most."""
    end_s = time.monotonic() + AT_MOST_S
    quiet_s = time.monotonic() + QUIET_S
    while time.monotonic() < min(quiet_s, end_s):
        with suppress(RailbedError, DockerException):
            if clean():
                quiet_s = time.monotonic() + QUIET_S
        time.sleep(AGAIN_S)


if __name__ == "__main__":
    clean_until_quiet()
