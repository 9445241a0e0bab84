"""GPU proxies as processes: forked by one program, and independent of each other."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import pytest
from docker.errors import APIError, NotFound
from docker.models.containers import Container

from execution.cases.emulation import AGENT
from linux.network.namespaces import namespace_of
from linux.processes.lifetime import Watch, kill, output_of
from linux.processes.run_lock import run_lock
from model.errors import EmulationError
from model.fabric.build import build_topology
from model.fabric.spec import FabricKind
from model.fabric.topology import Topology
from testbed import testbed
from testbed.fabric.links import Links, open_links
from testbed.host.cleanup import clean
from testbed.nodes import docker_engine, gpu_proxies
from testbed.nodes.docker_engine import answering, remove_container
from testbed.nodes.gpu_proxies import Proxy, ProxyKind, proxies
from tests.machine import wait_until
from tests.unit.fabrics import spec

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

GPUS = ["d0g0", "d0g1", "d1g0"]


def run_id(name: str) -> str:
    return f"test-{os.getpid()}-proxies-{name}"


def is_alive(process_id: int) -> bool:
    return Path(f"/proc/{process_id}").exists()


def test_each_has_a_network_of_its_own_and_the_name_of_its_gpu() -> None:
    with (
        run_lock(run_id("own")) as lock,
        proxies(ProxyKind.PROCESS, GPUS, AGENT, lock, Watch()) as started,
    ):
        places = [Path(f"/proc/{proxy.process_id}") for proxy in started.values()]
        networks = {os.readlink(place / "ns/net") for place in places}
        assert len(networks - {os.readlink("/proc/self/ns/net")}) == len(GPUS)
        assert [(place / "comm").read_text().strip() for place in places] == GPUS
    wait_until(lambda: not any(map(Path.exists, places)), "all have ended")


def test_the_death_of_one_is_no_matter_to_the_others() -> None:
    with (
        run_lock(run_id("one")) as lock,
        proxies(ProxyKind.PROCESS, GPUS, AGENT, lock, Watch()) as started,
    ):
        first, *others = (proxy.process_id for proxy in started.values())
        kill(first)
        wait_until(lambda: not is_alive(first), "it is gone, and nobody had to bury it")
        assert all(map(is_alive, others))
        with pytest.raises(EmulationError, match="has ended, and its network"), namespace_of(first):
            pytest.fail("its network is gone")


def test_one_that_dies_before_its_links_are_made_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_dead(hosts: Mapping[str, Proxy], topology: Topology) -> AbstractContextManager[Links]:
        first = next(iter(hosts.values()))
        kill(first.process_id)
        wait_until(lambda: not is_alive(first.process_id), "it is gone")
        return open_links(hosts, topology)

    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 2))
    monkeypatch.setattr(testbed, "open_links", one_dead)
    with (
        run_lock(run_id("early")) as lock,
        pytest.raises(EmulationError, match=r"d0g0 \(GPU proxy\) .*died"),
        testbed.testbed(topology, ProxyKind.PROCESS, AGENT, lock),
    ):
        pytest.fail("a GPU is dead")


def test_all_end_with_the_one_that_forked_them() -> None:
    with (
        run_lock(run_id("all")) as lock,
        proxies(ProxyKind.PROCESS, GPUS, AGENT, lock, Watch()) as started,
    ):
        ids = [proxy.process_id for proxy in started.values()]
        status = Path(f"/proc/{ids[0]}/status").read_text()
        kill(int(status.split("PPid:")[1].split()[0]))
        wait_until(lambda: not any(map(is_alive, ids)), "all agents have ended")


def test_a_program_that_cannot_start_them_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    with (
        run_lock(run_id("none")) as lock,
        pytest.raises(
            EmulationError,
            match=r"the launcher of the agents: did not start; its log ends with:\n.*No such file",
        ),
        proxies(ProxyKind.PROCESS, GPUS, tmp_path / "agent.py", lock, Watch()),
    ):
        pytest.fail("there is no such program")


def test_a_container_is_bounded_and_sees_its_own_folder_alone() -> None:
    with (
        run_lock(run_id("bounded")) as lock,
        proxies(ProxyKind.CONTAINER, GPUS[:2], AGENT, lock, Watch()) as started,
    ):
        for gpu, proxy in started.items():
            words = ("docker", "inspect", f"railbed-{lock.run_id}-{gpu}")
            (container,) = json.loads(output_of(*words))
            asked = container["HostConfig"]
            assert (asked["Memory"], asked["PidsLimit"]) == (8 * 2**30, 32)
            assert "size=1m" in asked["Tmpfs"]["/tmp"]
            places = {bind.partition(":")[0] for bind in asked["Binds"]}
            assert places == {str(proxy.socket.parent), str(lock.folder / "proxies/agent.pyz")}
            status = Path(f"/proc/{proxy.process_id}/status").read_text().splitlines()
            assert "Uid:\t65534\t65534\t65534\t65534" in status


def test_a_container_is_removed_though_another_removes_it() -> None:
    class Contested:
        """A container that the engine removes at the third request, as others are at it."""

        def __init__(self) -> None:
            self.refusals = [APIError("removal is in progress"), APIError("cannot kill it")]

        def remove(self, **_: bool) -> None:
            if self.refusals:
                raise self.refusals.pop()
            raise NotFound("no such container")

    contested = Contested()
    remove_container(cast(Container, contested))
    assert contested.refusals == []


def test_an_engine_that_does_not_answer_is_named() -> None:
    said = r"Docker Engine: no answer during the run \(Read timed out"
    with pytest.raises(EmulationError, match=said), answering():
        raise TimeoutError("Read timed out.")


# Passes connections to a Unix socket on to another: an engine that can be stopped.
RELAY = """
import socketserver, sys, threading
from socket import AF_UNIX, SHUT_WR, socket

class Connection(socketserver.StreamRequestHandler):
    def handle(self):
        with socket(AF_UNIX) as engine:
            engine.connect(sys.argv[2])
            answers = threading.Thread(target=pass_on, args=(engine, self.request), daemon=True)
            answers.start()
            pass_on(self.request, engine)
            answers.join()

def pass_on(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(SHUT_WR)

socketserver.ThreadingUnixStreamServer(sys.argv[1], Connection).serve_forever()
"""


@pytest.fixture
def relay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The process id of a relay to the Docker Engine; leftovers are removed after its end."""
    place = tmp_path / "docker.sock"
    engine = "/var/run/docker.sock"
    with subprocess.Popen([sys.executable, "-c", RELAY, str(place), engine]) as process:
        wait_until(place.exists, "the relay listens")
        monkeypatch.setenv("DOCKER_HOST", f"unix://{place}")
        yield process.pid
        process.kill()
    monkeypatch.undo()
    clean()


@pytest.mark.parametrize("when", ["while containers start", "beside running containers"])
def test_an_engine_that_hangs_ends_the_run_at_once(
    when: str, relay: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_engine, "PING_EVERY_S", 0.1)
    monkeypatch.setattr(docker_engine, "HANGS_AFTER_S", 0.5)
    start, watch, running = gpu_proxies._start_container, Watch(), list[int]()

    def start_beside_a_stopped_engine(*arguments: Any) -> int:
        os.kill(relay, signal.SIGSTOP)
        return start(*arguments)

    def check() -> bool:
        watch.check()
        return False

    if when == "while containers start":
        monkeypatch.setattr(gpu_proxies, "_start_container", start_beside_a_stopped_engine)

    def run() -> None:
        with (
            run_lock(run_id("hung")) as lock,
            proxies(ProxyKind.CONTAINER, GPUS[:1], AGENT, lock, watch) as started,
        ):
            running.extend(proxy.process_id for proxy in started.values())
            os.kill(relay, signal.SIGSTOP)
            wait_until(check, "the check says so", 10)

    with pytest.raises(EmulationError, match=re.escape(docker_engine.HANGS)):
        run()
    wait_until(lambda: not any(map(is_alive, running)), "the agents have ended")
