"""The Docker Engine: a client, the proxies' image, the removal of containers, its own end.

And its processes, from /proc: an engine that hangs tells nothing itself.
"""

import json
import math
import os
import re
import select
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container
from docker.utils import parse_host

from linux.processes.lifetime import Watch
from linux.processes.run_lock import RUN_LABEL, RUNS, RunLock
from linux.processes.threads import in_threads
from model.errors import EmulationError, NotReady

REMOVE_DEADLINE_S, REMOVE_AGAIN_S = 30, 0.1
# Starting sixteen containers at once takes a minute on a machine without KVM.
ANSWER_DEADLINE_S = 180
PING_DEADLINE_S = 5
# An engine that is busy with containers still answers a ping at once.
PING = b"GET /_ping HTTP/1.1\r\nHost: docker\r\n\r\n"
PING_EVERY_S, HANGS_AFTER_S, ANSWER_BYTES = 1.0, 5.0, 4096
# Seconds from the end of a stopped engine's containers to the engine's own end.
ENDS_WITHIN_S = 2.0
GONE = "Docker Engine: stopped during the run"
HANGS = (
    f"Docker Engine: no answer within {HANGS_AFTER_S:g} s; "
    "is it overloaded, or stopped by a signal (SIGSTOP)? "
    "The next run, or `sudo ./railbed clean`, removes the containers that it still creates"
)
DATE_LABEL = "org.railbed.packages"
IMAGE_FILE = Path(sys.prefix) / "railbed-proxy-image"
# Processes of the engine itself; and the parent process of each container, cut to 15 characters
# (proc(5)).
DAEMONS, SHIM = ("dockerd", "containerd"), "containerd-shim"


@contextmanager
def answering() -> Iterator[None]:
    """Raise `EmulationError` if the Docker Engine refuses, or stops answering."""
    try:
        yield
    except DockerException as error:  # a refusal is an `OSError`, too
        raise EmulationError(f"Docker Engine: request refused: {error}") from error
    except OSError as error:  # the SDK's timeouts among them
        raise EmulationError(
            f"Docker Engine: no answer during the run ({error}); is it overloaded or stopped?"
            f"{stopped_processes()}"
        ) from error


def docker_client(timeout_s: int = ANSWER_DEADLINE_S) -> docker.DockerClient:
    """Connect to the Docker Engine; raise `NotReady`, with the remedy, if it does not answer."""
    try:
        _connection().close()
        client = docker.from_env(timeout=PING_DEADLINE_S)
        client.ping()
    except (DockerException, OSError, ValueError) as error:
        raise NotReady(
            f"Docker Engine: no answer ({error}){stopped_processes()}; start it with "
            "`sudo ./railbed doctor`, or use `--proxies process`, which needs none"
        ) from error
    client.api.timeout = timeout_s
    return client


def _connection() -> socket.socket:
    """Connect to the engine; raises `OSError`, where the SDK would leak a socket."""
    place = urlsplit(parse_host(os.environ.get("DOCKER_HOST")))
    if place.scheme != "http+unix":
        return socket.create_connection((place.hostname, place.port), timeout=PING_DEADLINE_S)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PING_DEADLINE_S)
    try:
        connection.connect(place.path)
    except OSError:
        connection.close()
        raise
    return connection


class EngineWatch:
    """Notices that the Docker Engine ends or hangs, by pings on a connection of its own."""

    def __init__(self) -> None:
        self._connect()

    def _connect(self) -> None:
        self._connection = _connection()
        self._answered()

    def _answered(self) -> None:
        self._next_ping_s = time.monotonic() + PING_EVERY_S
        self._give_up_s = math.inf

    def check(self) -> None:
        """Raise `EmulationError` if the engine has ended, or has not answered for long."""
        if self._connection.fileno() < 0 or self._has_ended():
            self._connect_again()
        elif time.monotonic() > self._give_up_s:
            raise EmulationError(HANGS + stopped_processes())
        elif time.monotonic() > self._next_ping_s:
            self._ping()

    def _has_ended(self) -> bool:
        """Whether the engine has closed the connection; notes an answer that has arrived."""
        if not select.select([self._connection], [], [], 0)[0]:
            return False
        with suppress(OSError):
            if self._connection.recv(ANSWER_BYTES):
                self._answered()
                return False
        return True

    def _ping(self) -> None:
        with suppress(OSError):  # the next check sees that the connection is closed
            self._connection.send(PING)
        self._next_ping_s, self._give_up_s = math.inf, time.monotonic() + HANGS_AFTER_S

    def _connect_again(self) -> None:
        """Connect to an engine that has closed the connection and lives on."""
        self.close()
        try:
            docker_client(PING_DEADLINE_S).close()
            self._connect()
        except (NotReady, OSError) as error:
            raise EmulationError(f"{GONE} ({error})") from error

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


@contextmanager
def engine_watched(watch: Watch) -> Iterator[EngineWatch]:
    """Let every check of `watch` within the context notice that the engine has ended or hangs.

    An engine that is stopped ends all containers first: their deaths are not the cause.
    """
    engine = EngineWatch()
    watch.add_check(engine.check)
    try:
        yield engine
    except EmulationError:
        end_s = time.monotonic() + ENDS_WITHIN_S
        while time.monotonic() < end_s:
            engine.check()
            time.sleep(0.05)
        raise
    finally:
        engine.close()


def proxy_image(client: docker.DockerClient) -> str:
    """The name of the proxies' image; raises `NotReady` if it is not there."""
    try:
        name = IMAGE_FILE.read_text().strip()
        client.images.get(name)
    except (FileNotFoundError, NotFound) as error:
        raise NotReady(
            f"image of the GPU proxies: not found ({error}); `sudo ./railbed doctor` builds it"
        ) from error
    return name


def packages_date(client: docker.DockerClient) -> str:
    """The date of the Debian packages in the proxies' image."""
    labels: dict[str, str] = client.images.get(proxy_image(client)).labels
    return labels.get(DATE_LABEL, "unknown")


def containers_of(part: str) -> dict[str, int]:
    """Map Railbed's containers with `part` in their names to their process ids, 0 if ended."""
    try:
        client = docker_client()
    except NotReady:
        return {}
    filters = {"label": RUN_LABEL, "name": part}
    with closing(client):
        listed = client.containers.list(all=True, filters=filters, ignore_removed=True)
        return {one.name: int(one.attrs["State"]["Pid"]) for one in listed}


def labeled(client: docker.DockerClient, label: str) -> list[Container]:
    """The containers with a label; none is inspected, which waits for its shim."""
    return list(client.containers.list(all=True, filters={"label": label}, sparse=True))


def remove_containers(
    client: docker.DockerClient, lock: RunLock, check: Callable[[], None]
) -> None:
    """Remove all containers labeled with the run's id; `check` says if the engine hangs."""
    with answering():
        (listed,) = in_threads(partial(labeled, client), [f"{RUN_LABEL}={lock.run_id}"], check)
        in_threads(remove_container, listed, check)


def remove_container(container: Container) -> None:
    """Remove a container that may be gone, starting, ending, or being removed by someone else."""
    end_s = time.monotonic() + REMOVE_DEADLINE_S
    while True:
        try:
            container.remove(force=True, v=True)
            return
        except NotFound:
            return
        except APIError:
            if time.monotonic() > end_s:
                raise
        time.sleep(REMOVE_AGAIN_S)


@dataclass(frozen=True)
class EngineProcess:
    """A process of the engine; of a shim also its container, with run and name if it is ours."""

    name: str
    process_id: int
    state: str
    container_id: str = ""
    run_id: str = ""
    container: str = ""


def container_name(run_id: str, gpu: str) -> str:
    """The name of a GPU's container."""
    return f"railbed-{run_id}-{gpu}"


def engine_processes() -> Iterator[EngineProcess]:
    """Yield the daemons of the engine, and the shims of all containers.

    An engine inside of a container is another one: its processes have a PID namespace of their own,
    so each has more than one process id (`NSpid`, proc(5)).
    """
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            status = (entry / "status").read_text()
            name, state, ids = re.findall(r"^(?:Name|State|NSpid):\t(.*)$", status, re.MULTILINE)
            if name in (*DAEMONS, SHIM) and len(ids.split()) == 1:
                container = _container(entry / "cwd") if name == SHIM else ()
                yield EngineProcess(name, int(entry.name), state, *container)


def _container(bundle: Path) -> tuple[str, ...]:
    """The id of a shim's container, and the run id and name of one of ours (OCI runtime-spec)."""
    container_id = bundle.readlink().name
    configuration = json.loads((bundle / "config.json").read_text())
    for place in (Path(mount.get("source", "")) for mount in configuration.get("mounts", ())):
        if place.is_relative_to(RUNS):
            run_id = place.relative_to(RUNS).parts[0]
            return container_id, run_id, container_name(run_id, configuration["hostname"])
    return (container_id,)


def containers_seen(but_of: Collection[str] = ()) -> dict[str, str]:
    """Map the ids of the running containers of runs, but of some, to their names."""
    shims = (one for one in engine_processes() if one.run_id and one.run_id not in but_of)
    return {one.container_id: one.container for one in shims}


def stopped_holder(container_id: str = "") -> str:
    """Name the stopped process, its shim or else a daemon, that keeps a container; may be empty."""
    stopped = [one for one in engine_processes() if one.state.startswith("T")]
    for holder in (container_id, ""):
        for one in stopped:
            if one.container_id == holder:
                return f"held by {one.name}, process {one.process_id}, state {one.state}"
    return ""


def by_holder(names: Mapping[str, str], why: str = "") -> str:
    """Say which stopped process holds these containers, given by their ids, or `why` none does."""
    held: dict[str, list[str]] = {}
    for container_id, name in names.items():
        held.setdefault(stopped_holder(container_id) or why, []).append(name)
    return "; ".join(f"{', '.join(some)} ({cause})" for cause, some in held.items() if cause)


def stopped_processes() -> str:
    """Name the stopped processes and what of runs they hold, for a message's end; may be empty."""
    said = by_holder(containers_seen() or {"": "the engine"})
    return f"; stopped: {said}" if said else ""
