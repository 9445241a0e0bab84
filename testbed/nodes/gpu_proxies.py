"""GPU proxies: a container or a bare network namespace for each GPU, with its agent inside.

Both kinds provide the same: a process id, whose network namespace holds the link ends; a Unix
socket on which the agent listens; a log. A proxy ends when the run's end of its socket closes.
"""

import json
import os
import select
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import docker

from linux.network import namespaces as namespace
from linux.processes.lifetime import (
    Watch,
    is_stopped,
    last_words,
    running,
    wait_for,
    wait_until_begun,
)
from linux.processes.run_lock import RUN_LABEL, RunLock
from linux.processes.threads import in_threads
from model.errors import EmulationError
from model.fabric.shaping import LEAST_SEGMENT_PACKETS, ROUND_TRIP_LOG
from testbed.nodes.docker_engine import (
    answering,
    container_name,
    docker_client,
    engine_watched,
    proxy_image,
    remove_containers,
)

START_DEADLINE_S = 30
END_DEADLINE_MS = 10_000
LAUNCHER = "the launcher of the agents"
SYSTEM_PYTHON = "/usr/bin/python3"
# Files in the folder that each GPU has for itself.
SOCKET, LOG = "agent.sock", "agent.log"
# The agent as one file, and its path and that of its socket's folder inside a container.
ARCHIVE = "agent.pyz"
INSIDE_AGENT, INSIDE_FOLDER = f"/opt/railbed/{ARCHIVE}", "/run/railbed"
# Limits of a container: the user and group `nobody`; more processes than an agent needs, and the
# memory for the most steps and dependencies of a trace, were they all of one rank.
NOBODY = 65534
LIMITS = {"mem_limit": "8g", "memswap_limit": "8g", "pids_limit": 32}
TMPFS = {"/tmp": "size=1m,noexec,nosuid,nodev"}

SYSCTLS = {
    "net.ipv4.ip_forward": "1",  # rail-only: peers forward cross-rail packets
    "net.ipv4.conf.all.rp_filter": "0",  # and the return path may differ
    "net.ipv4.conf.default.rp_filter": "0",
    "net.ipv4.conf.all.send_redirects": "0",
    "net.ipv4.conf.default.send_redirects": "0",
    # Unlike cubic, needs no privilege in a namespace of its own; without loss, both perform alike.
    "net.ipv4.tcp_congestion_control": "reno",
    "net.ipv4.tcp_slow_start_after_idle": "0",  # idle connections keep their window
    "net.ipv4.tcp_min_tso_segs": str(LEAST_SEGMENT_PACKETS),
    "net.ipv4.tcp_tso_rtt_log": str(ROUND_TRIP_LOG),
    # No tail loss probes (RFC 8985): they leave after two round trips, whatever TCP's least timeout
    # is, and the first segments find full buckets, so that their round trips are short.
    "net.ipv4.tcp_early_retrans": "0",
    "net.ipv6.conf.all.disable_ipv6": "1",
    "net.ipv6.conf.default.disable_ipv6": "1",
}


class ProxyKind(StrEnum):
    """How a GPU proxy is made: as a container, or as a process in a network namespace."""

    CONTAINER = "container"
    PROCESS = "process"


@dataclass(frozen=True)
class Proxy:
    """A running GPU proxy."""

    gpu: str
    process_id: int
    socket: Path
    log: Path


@contextmanager
def proxies(
    kind: ProxyKind, gpus: Sequence[str], agent: Path, lock: RunLock, watch: Watch
) -> Iterator[dict[str, Proxy]]:
    """Start a proxy for each GPU, with `agent` running in it; yield them by GPU name.

    `watch` notices meanwhile if the Docker Engine of containers ends or hangs.
    """
    folder = lock.folder / "proxies"
    for gpu in gpus:
        (folder / gpu).mkdir(parents=True)
    launch = _containers if kind is ProxyKind.CONTAINER else _processes
    with launch(gpus, agent, lock, folder, watch) as process_ids:
        started = {
            gpu: Proxy(gpu, process_ids[gpu], folder / gpu / SOCKET, folder / gpu / LOG)
            for gpu in gpus
        }
        for proxy in started.values():
            wait_for(partial(_listens, proxy), f"start of {proxy.gpu}'s agent", START_DEADLINE_S)
            _set_up(proxy)
        yield started


def _set_up(proxy: Proxy) -> None:
    try:
        with namespace.namespace_of(proxy.process_id):
            for name, value in SYSCTLS.items():
                with suppress(FileNotFoundError):  # Linux before 5.18 has no tcp_tso_rtt_log
                    namespace.set_sysctl(name, value)
    except (OSError, EmulationError) as error:
        what = f"its network cannot be set up ({error}); its log ends with:"
        raise EmulationError(f"{proxy.gpu}: {what}\n{last_words(proxy.log)}") from error


def _listens(proxy: Proxy) -> bool:
    """Whether an agent listens; raises `EmulationError` if it cannot any more."""
    if not Path(f"/proc/{proxy.process_id}").exists():
        what = f"{proxy.gpu}: its agent died; its log ends with:"
        raise EmulationError(f"{what}\n{last_words(proxy.log)}")
    if is_stopped(proxy.process_id):
        raise EmulationError(f"{proxy.gpu}: its agent is stopped by a signal (SIGSTOP)")
    return proxy.socket.exists()


@contextmanager
def _processes(
    gpus: Sequence[str], agent: Path, lock: RunLock, folder: Path, _watch: Watch
) -> Iterator[dict[str, int]]:
    """Run agents in their own network namespaces, forked by one launcher; they end with it."""
    sockets = {gpu: str(folder / gpu / SOCKET) for gpu in gpus}
    said, log = folder / "process-ids.json", folder / "agents.log"
    command = [SYSTEM_PYTHON, "-IS", str(agent.with_name("launcher.py")), str(said)]
    # The agents' exit is awaited last, after their launcher has ended.
    with (
        ExitStack() as ends,
        running([*command, *sockets.values()], log, lock.environment) as launcher,
    ):
        wait_until_begun(launcher, said.exists, LAUNCHER, log, START_DEADLINE_S)
        by_socket = json.loads(said.read_text())
        process_ids = {gpu: by_socket[place] for gpu, place in sockets.items()}
        try:
            yield process_ids
        finally:
            for process_id in process_ids.values():
                ends.enter_context(until_it_has_ended(process_id))


@contextmanager
def until_it_has_ended(process_id: int) -> Iterator[None]:
    """When the context ends, wait for the exit of a process that is not a child of this one."""
    descriptor = None
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(process_id)
    # Not within the handler: errors in the context would have this one as theirs.
    if descriptor is None:
        yield
        return
    ended = select.poll()
    ended.register(descriptor, select.POLLIN)
    try:
        yield
    finally:
        ended.poll(END_DEADLINE_MS)
        os.close(descriptor)


@contextmanager
def _containers(
    gpus: Sequence[str], agent: Path, lock: RunLock, folder: Path, watch: Watch
) -> Iterator[dict[str, int]]:
    """Run containers without network, capabilities or a writable root; yield process ids."""
    program = folder / ARCHIVE
    pack_agent(agent, program)
    for gpu in gpus:
        os.chown(folder / gpu, NOBODY, NOBODY)
    with closing(docker_client()) as client, engine_watched(watch) as engine:
        start = partial(_start_container, client, proxy_image(client), program, lock)
        try:
            with answering():
                started = in_threads(start, gpus, engine.check)
            yield dict(zip(gpus, started, strict=True))
        except BaseException:
            try:
                remove_containers(client, lock, engine.check)
            except EmulationError:  # the error that ended the run is to be reported
                _dismiss(folder / gpu / SOCKET for gpu in gpus)
            raise
        else:
            remove_containers(client, lock, engine.check)


def pack_agent(agent: Path, archive: Path) -> None:
    """Pack the agent, and the modules beside and below it, into one file that Python executes.

    Every user may read it (zipapp).
    """
    with ZipFile(archive, "w") as packed:
        packed.write(agent, "__main__.py")
        for module in (agent.parents[1] / "__init__.py", *sorted(agent.parent.rglob("*.py"))):
            packed.write(module, module.relative_to(agent.parents[2]))
    archive.chmod(0o644)


def _dismiss(sockets: Iterable[Path]) -> None:
    """End agents that wait for a client, as no Docker Engine ends their containers."""
    for place in sockets:
        with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
            client.connect(str(place))


def _start_container(
    client: docker.DockerClient, image: str, program: Path, lock: RunLock, gpu: str
) -> int:
    """Start one container and return its process id, as seen from outside of it."""
    agent = f"exec python3 -IS {INSIDE_AGENT} {INSIDE_FOLDER}/{SOCKET}"
    container = client.containers.create(
        image,
        ["sh", "-c", f"{agent} 2>{INSIDE_FOLDER}/{LOG}"],
        user=f"{NOBODY}:{NOBODY}",
        name=container_name(lock.run_id, gpu),
        hostname=gpu,
        labels={RUN_LABEL: lock.run_id},
        network_mode="none",
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        read_only=True,
        stop_signal="SIGKILL",  # an engine that is stopped does not wait for agents
        auto_remove=True,  # also when the run was killed and its agents end by themselves
        tmpfs=TMPFS,
        volumes={
            str(program.parent / gpu): {"bind": INSIDE_FOLDER, "mode": "rw"},
            str(program): {"bind": INSIDE_AGENT, "mode": "ro"},
        },
        **LIMITS,
    )
    container.start()
    container.reload()
    return int(container.attrs["State"]["Pid"])
