"""Removes leftovers of dead runs: processes, containers and folders that have their run ids.

    python -m testbed.host.cleanup

does so after a run has died (`linux/processes/lifetime.py`), again and again for some seconds: the
Docker Engine may still create containers that the run requested.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass

from docker.errors import DockerException

from linux.processes.run_lock import RUN_LABEL, live_run_ids, remove_dead, run_of, run_processes
from model.errors import NotReady, RailbedError
from testbed.nodes.docker_engine import answering, docker_client, remove_container

# Cleaning is repeated every `AGAIN_S`, until `QUIET_S` without leftovers, or `AT_MOST_S`, are over.
QUIET_S, AT_MOST_S, AGAIN_S = 2.0, 8.0, 0.3
ENGINE_S = 20


@dataclass(frozen=True)
class Removed:
    """Counts of the leftovers of dead runs: in /run/railbed, processes, containers."""

    runs: int
    processes: int
    containers: int

    def __bool__(self) -> bool:
        return bool(self.runs or self.processes or self.containers)

    def __str__(self) -> str:
        return f"{self.runs} dead runs, {self.processes} processes, {self.containers} containers"


def clean() -> Removed:
    """Remove processes, containers and folders that have a dead run's id, and nothing else."""
    if os.geteuid() != 0:
        raise NotReady("leftovers of runs belong to root; run the command again with `sudo`")
    processes = _kill_processes()
    containers = _remove_containers()
    return Removed(remove_dead(), processes, containers)


def _kill_processes() -> int:
    """Kill the processes of dead runs; return how many there were.

    Processes are listed before live runs are, so those of a run that begins meanwhile are safe. A
    pidfd means the process that was looked at, even if its number is used again.
    """
    with ExitStack() as stack:
        listed = [stack.enter_context(_held(process_id)) for process_id, _ in run_processes()]
        alive = live_run_ids()
        dead = [fd for fd, run_id in listed if run_id is not None and run_id not in alive]
        for descriptor in dead:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    return len(dead)


@contextmanager
def _held(process_id: int) -> Iterator[tuple[int, str | None]]:
    """A pidfd of a process, and the id of its run; no id if it has ended, or is this process."""
    try:
        descriptor = os.pidfd_open(process_id)
    except ProcessLookupError:
        yield -1, None
        return
    try:
        yield descriptor, None if process_id == os.getpid() else run_of(process_id)
    finally:
        os.close(descriptor)


def _remove_containers() -> int:
    """Remove the containers of dead runs; return how many, none without a Docker Engine."""
    try:
        client = docker_client(ENGINE_S)
    except NotReady:
        return 0
    with closing(client), answering():
        label = {"label": RUN_LABEL}
        listed = client.containers.list(all=True, filters=label, ignore_removed=True)
        alive = live_run_ids()
        dead = [container for container in listed if container.labels[RUN_LABEL] not in alive]
        for container in dead:
            remove_container(container)
    return len(dead)


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
