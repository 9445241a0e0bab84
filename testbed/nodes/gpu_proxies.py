"""GPU proxies: a container or a bare network namespace for each GPU, with its agent inside.

Both kinds provide the same: a process id, whose network namespace holds the link ends; a Unix
socket on which the agent listens; a log. A proxy ends when the run's end of its socket closes.
"""

import json
import os
import select
import socket
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container

from linux import namespaces as namespace
from linux.processes import last_words, running, wait_for
from linux.run_lock import RUN_LABEL, RunLock
from model.errors import EmulationError, NotReady
from model.fabric.shaping import SEGMENT_PACKETS

START_DEADLINE_S = 30
REMOVE_DEADLINE_S = 30
END_DEADLINE_MS = 10_000
AGENTS = "the agents"
DOCKER_SOCKET = "unix:///var/run/docker.sock"
PARALLEL_STARTS = 8
# Starting sixteen containers at once takes a minute on a machine without KVM.
ANSWER_DEADLINE_S = 180
SYSTEM_PYTHON = "/usr/bin/python3"
# Paths of the agent and of its socket's folder inside a container.
INSIDE_AGENT, INSIDE_FOLDER = "/opt/railbed/agent.py", "/run/railbed"
IMAGE_FILE = Path(sys.prefix) / "railbed-proxy-image"

SYSCTLS = {
    "net.ipv4.ip_forward": "1",  # rail-only: peers forward cross-rail packets
    "net.ipv4.conf.all.rp_filter": "0",  # and the return path may differ
    "net.ipv4.conf.default.rp_filter": "0",
    "net.ipv4.conf.all.send_redirects": "0",
    "net.ipv4.conf.default.send_redirects": "0",
    # Unlike cubic, needs no privilege in a namespace of its own; without loss, both perform alike.
    "net.ipv4.tcp_congestion_control": "reno",
    "net.ipv4.tcp_slow_start_after_idle": "0",  # idle connections keep their window
    "net.ipv4.tcp_min_tso_segs": str(SEGMENT_PACKETS),
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
    kind: ProxyKind, gpus: Sequence[str], agent: Path, lock: RunLock
) -> Iterator[dict[str, Proxy]]:
    """Start a proxy for each GPU, with `agent` running in it; yield them by GPU name."""
    folder = lock.folder / "proxies"
    folder.mkdir()
    launch = _containers if kind is ProxyKind.CONTAINER else _processes
    with launch(gpus, agent, lock, folder) as process_ids:
        started = {
            gpu: Proxy(gpu, process_ids[gpu], folder / f"{gpu}.sock", folder / f"{gpu}.log")
            for gpu in gpus
        }
        for proxy in started.values():
            wait_for(proxy.socket.exists, f"{proxy.gpu}: its agent starts", START_DEADLINE_S)
            with namespace.namespace_of(proxy.process_id):
                for name, value in SYSCTLS.items():
                    namespace.set_sysctl(name, value)
        yield started


@contextmanager
def _processes(
    gpus: Sequence[str], agent: Path, lock: RunLock, folder: Path
) -> Iterator[dict[str, int]]:
    """Run agents in their own network namespaces, forked by one launcher; they end with it."""
    sockets = {gpu: str(folder / f"{gpu}.sock") for gpu in gpus}
    said, log = folder / "process-ids.json", folder / "agents.log"
    command = [SYSTEM_PYTHON, "-IS", str(agent.with_name("launcher.py")), str(said)]
    # The agents' exit is awaited last, after their launcher has ended.
    with (
        ExitStack() as ends,
        running([*command, *sockets.values()], log, lock.environment) as launcher,
    ):
        wait_for(lambda: said.exists() or launcher.poll() is not None, AGENTS, START_DEADLINE_S)
        if not said.exists():
            raise EmulationError(f"{AGENTS}: died; last words:\n{last_words(log)}")
        by_socket = json.loads(said.read_text())
        process_ids = {gpu: by_socket[socket] for gpu, socket in sockets.items()}
        for gpu, process_id in process_ids.items():
            ends.enter_context(_until_it_has_ended(process_id, folder / f"{gpu}.log"))
        yield process_ids


@contextmanager
def _until_it_has_ended(process_id: int, log: Path) -> Iterator[None]:
    """When the context ends, wait for the exit of a process that is not a child of this one."""
    try:
        descriptor = os.pidfd_open(process_id)
    except ProcessLookupError:
        raise EmulationError(f"{AGENTS}: one died; last words:\n{last_words(log)}") from None
    ended = select.poll()
    ended.register(descriptor, select.POLLIN)
    try:
        yield
    finally:
        ended.poll(END_DEADLINE_MS)
        os.close(descriptor)


@contextmanager
def _containers(
    gpus: Sequence[str], agent: Path, lock: RunLock, folder: Path
) -> Iterator[dict[str, int]]:
    """Run containers without network, capabilities or a writable root; yield process ids."""
    client = docker_client()
    image = proxy_image(client)
    try:
        with ThreadPoolExecutor(PARALLEL_STARTS) as pool:
            started = pool.map(
                lambda gpu: _start_container(client, image, gpu, agent, lock, folder), gpus
            )
            with answering():
                launched = dict(zip(gpus, started, strict=True))
            yield launched
    finally:
        remove_containers(client, lock)
        client.close()


@contextmanager
def answering() -> Iterator[None]:
    """Raise `EmulationError` if the Docker Engine does not answer any more."""
    try:
        yield
    except OSError as error:  # the SDK's timeouts among them
        raise EmulationError(
            f"Docker Engine: no answer any more ({error}); is it overloaded, or was it stopped?"
        ) from error


def _start_container(
    client: docker.DockerClient, image: str, gpu: str, agent: Path, lock: RunLock, folder: Path
) -> int:
    """Start one container and return its process id, as seen from outside of it."""
    program = f"exec python3 -IS {INSIDE_AGENT} {INSIDE_FOLDER}/{gpu}.sock"
    container = client.containers.create(
        image,
        ["sh", "-c", f"{program} 2>{INSIDE_FOLDER}/{gpu}.log"],
        name=f"railbed-{lock.run_id}-{gpu}",
        hostname=gpu,
        labels={RUN_LABEL: lock.run_id},
        network_mode="none",
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        read_only=True,
        auto_remove=True,  # also when the run was killed and its agents end by themselves
        tmpfs={"/tmp": ""},
        volumes={
            str(folder): {"bind": INSIDE_FOLDER, "mode": "rw"},
            str(agent): {"bind": INSIDE_AGENT, "mode": "ro"},
        },
    )
    container.start()
    container.reload()
    return int(container.attrs["State"]["Pid"])


def docker_client() -> docker.DockerClient:
    """Connect to the Docker Engine; raise `NotReady`, with the remedy, if it does not answer."""
    try:
        _require_listener()
        client = docker.from_env(timeout=ANSWER_DEADLINE_S)
        client.ping()
    except (DockerException, OSError) as error:
        raise NotReady(
            f"Docker Engine: no answer ({error}); start it with `sudo ./railbed doctor`, "
            "or use `--proxies process`, which needs none"
        ) from error
    return client


def _require_listener() -> None:
    """Raise `OSError` if nothing listens on the engine's socket; the SDK would leak a socket."""
    scheme, _, path = os.environ.get("DOCKER_HOST", DOCKER_SOCKET).partition("://")
    if scheme == "unix":
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(path)


def proxy_image(client: docker.DockerClient) -> str:
    """The name of the proxies' image; raises `NotReady` if it is not there."""
    try:
        name = IMAGE_FILE.read_text().strip()
        client.images.get(name)
    except (FileNotFoundError, NotFound) as error:
        raise NotReady(
            f"the proxies' image: not there ({error}); `sudo ./railbed doctor` builds it"
        ) from error
    return name


def remove_containers(client: docker.DockerClient, lock: RunLock) -> None:
    """Remove all containers labeled with the run's id."""
    label = {"label": f"{RUN_LABEL}={lock.run_id}"}
    with answering(), ThreadPoolExecutor(PARALLEL_STARTS) as pool:
        found = client.containers.list(all=True, filters=label, ignore_removed=True)
        list(pool.map(remove_container, found))


def remove_container(container: Container) -> None:
    """Remove a container that may be gone already, or is being removed."""
    try:
        container.remove(force=True, v=True)
    except NotFound:
        return
    except APIError as error:
        if error.status_code != HTTPStatus.CONFLICT:
            raise
        with suppress(NotFound):
            container.wait(condition="removed", timeout=REMOVE_DEADLINE_S)
