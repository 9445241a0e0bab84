"""GPU proxies as processes: forked by one program, and independent of each other."""

import json
import os
from pathlib import Path
from typing import cast

import pytest
from docker.errors import APIError, NotFound
from docker.models.containers import Container

from linux.processes import kill, output_of
from linux.run_lock import run_lock
from model.errors import EmulationError
from scenarios.execution.emulation import AGENT
from testbed.nodes.docker_engine import answering, remove_container
from testbed.nodes.gpu_proxies import ProxyKind, proxies
from tests.machine import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

GPUS = ["d0g0", "d0g1", "d1g0"]


def run_id(name: str) -> str:
    return f"test-{os.getpid()}-proxies-{name}"


def is_alive(process_id: int) -> bool:
    return Path(f"/proc/{process_id}").exists()


def test_each_has_a_network_of_its_own_and_the_name_of_its_gpu() -> None:
    with (
        run_lock(run_id("own")) as lock,
        proxies(ProxyKind.PROCESS, GPUS, AGENT, lock) as started,
    ):
        places = [Path(f"/proc/{proxy.process_id}") for proxy in started.values()]
        networks = {os.readlink(place / "ns/net") for place in places}
        assert len(networks - {os.readlink("/proc/self/ns/net")}) == len(GPUS)
        assert [(place / "comm").read_text().strip() for place in places] == GPUS
    wait_until(lambda: not any(map(Path.exists, places)), "all have ended")


def test_the_death_of_one_is_no_matter_to_the_others() -> None:
    with (
        run_lock(run_id("one")) as lock,
        proxies(ProxyKind.PROCESS, GPUS, AGENT, lock) as started,
    ):
        first, *others = (proxy.process_id for proxy in started.values())
        kill(first)
        wait_until(lambda: not is_alive(first), "it is gone, and nobody had to bury it")
        assert all(map(is_alive, others))


def test_all_end_with_the_one_that_forked_them() -> None:
    with (
        run_lock(run_id("all")) as lock,
        proxies(ProxyKind.PROCESS, GPUS, AGENT, lock) as started,
    ):
        ids = [proxy.process_id for proxy in started.values()]
        status = Path(f"/proc/{ids[0]}/status").read_text()
        kill(int(status.split("PPid:")[1].split()[0]))
        wait_until(lambda: not any(map(is_alive, ids)), "all agents have ended")


def test_a_program_that_cannot_start_them_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    with (
        run_lock(run_id("none")) as lock,
        pytest.raises(EmulationError, match=r"the agents: died; last words:\n.*No such file"),
        proxies(ProxyKind.PROCESS, GPUS, tmp_path / "agent.py", lock),
    ):
        pytest.fail("there is no such program")


def test_a_container_is_bounded_and_sees_its_own_folder_alone() -> None:
    with (
        run_lock(run_id("bounded")) as lock,
        proxies(ProxyKind.CONTAINER, GPUS[:2], AGENT, lock) as started,
    ):
        for gpu, proxy in started.items():
            words = ("docker", "inspect", f"railbed-{lock.run_id}-{gpu}")
            (container,) = json.loads(output_of(*words))
            asked = container["HostConfig"]
            assert (asked["Memory"], asked["PidsLimit"]) == (512 * 2**20, 32)
            assert "size=1m" in asked["Tmpfs"]["/tmp"]
            places = {bind.partition(":")[0] for bind in asked["Binds"]}
            assert places == {str(proxy.socket.parent), str(lock.folder / "proxies/agent.py")}
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
    said = r"Docker Engine: no answer any more \(Read timed out"
    with pytest.raises(EmulationError, match=said), answering():
        raise TimeoutError("Read timed out.")
