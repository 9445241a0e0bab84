"""Removes leftovers of dead runs: processes, containers and folders that have their run ids."""

import os
import shutil
from dataclasses import dataclass

from docker.models.containers import Container

from linux.processes import kill
from linux.run_lock import RUN_LABEL, dead_runs, live_run_ids, run_processes
from model.errors import NotReady
from testbed.nodes.gpu_proxies import docker_client, remove_container


@dataclass(frozen=True)
class Removed:
    """Counts of removed runs (folders), processes and containers."""

    runs: int
    processes: int
    containers: int

    def __bool__(self) -> bool:
        return bool(self.runs or self.processes or self.containers)

    def __str__(self) -> str:
        return f"{self.runs} dead runs, {self.processes} processes, {self.containers} containers"


def clean() -> Removed:
    """Remove processes, containers and folders that have a dead run's id, and nothing else."""
    alive = live_run_ids()
    processes = [
        process_id
        for process_id, run_id in run_processes()
        if run_id not in alive and process_id != os.getpid()
    ]
    for process_id in processes:
        kill(process_id)
    containers = _stray_containers(alive)
    for container in containers:
        remove_container(container)
    folders = dead_runs()
    for lock in folders:
        shutil.rmtree(lock.folder, ignore_errors=True)
    return Removed(len(folders), len(processes), len(containers))


def _stray_containers(alive: frozenset[str]) -> list[Container]:
    """Containers labeled with the id of a dead run; none without a Docker Engine."""
    try:
        client = docker_client()
    except NotReady:
        return []
    labeled = client.containers.list(all=True, filters={"label": RUN_LABEL}, ignore_removed=True)
    return [container for container in labeled if container.labels[RUN_LABEL] not in alive]
