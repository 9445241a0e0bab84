"""What a killed run has left, while the Docker Engine, a container's shim or a reaper is stopped.

What needs no engine goes on; `clean` removes what it can, names the rest, and is done the next
time. Every process that a test stops goes on when the test ends.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from commands.options import ready
from execution.cases.emulation import AGENT
from linux.files.program_files import ROOT
from linux.processes.lifetime import Watch, is_stopped
from linux.processes.run_lock import run_lock
from model.errors import EmulationError, NotReady
from studies.benchmarks.soak import PROGRAM, SMALL, Command
from testbed.host.cleanup import HURRY_S, clean
from testbed.nodes import docker_engine, gpu_proxies
from testbed.nodes.docker_engine import container_name, docker_client, engine_processes, proxy_image
from testbed.nodes.gpu_proxies import ARCHIVE, NOBODY, SOCKET, ProxyKind, pack_agent, proxies
from tests.machine import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

DEAD = f"test-{os.getpid()}-dead"
FIRST, SECOND = (container_name(DEAD, gpu) for gpu in ("d0g0", "d0g1"))
VERIFY = ("verify", "quickstart", *SMALL, "--proxies")
Stop = Callable[[str], int]


@pytest.fixture
def leftovers() -> Iterator[None]:
    """Two containers of a run that is dead."""
    with closing(docker_client()) as client, run_lock(DEAD) as lock:
        folder = lock.folder / "proxies"
        for gpu in ("d0g0", "d0g1"):
            (folder / gpu).mkdir(parents=True)
            os.chown(folder / gpu, NOBODY, NOBODY)
        pack_agent(AGENT, folder / ARCHIVE)
        for gpu in ("d0g0", "d0g1"):
            gpu_proxies._start_container(client, proxy_image(client), folder / ARCHIVE, lock, gpu)
            wait_until((folder / gpu / SOCKET).exists, "its agent listens")
    yield
    assert clean().left == ""


@pytest.fixture
def stop(leftovers: None) -> Iterator[Stop]:
    """Stop the engine's process of this name, or a container's shim; all go on after the test."""

    def stop(name: str) -> int:
        (one,) = (one for one in engine_processes() if name in (one.name, one.container))
        resumed.callback(resume, one.process_id)
        os.kill(one.process_id, signal.SIGSTOP)
        wait_until(lambda: is_stopped(one.process_id), f"{name} is stopped")
        return one.process_id

    with ExitStack() as resumed:
        yield stop


def resume(process_id: int) -> None:
    """Let a stopped process go on; one that a test has resumed may have ended since."""
    with suppress(ProcessLookupError):
        os.kill(process_id, signal.SIGCONT)


def railbed(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_an_engine_inside_of_a_container_is_another_one(tmp_path: Path) -> None:
    before = {one.process_id for one in engine_processes()}
    (program := tmp_path / "dockerd").symlink_to("/bin/sleep")
    apart = ("setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child")
    with subprocess.Popen([*apart, program, "60"]) as inside:
        try:
            children = Path(f"/proc/{inside.pid}/task/{inside.pid}/children")
            wait_until(lambda: children.read_text().split() != [], "it is forked")
            comm = Path(f"/proc/{children.read_text().split()[0]}/comm")
            wait_until(lambda: comm.read_text() == "dockerd\n", "it is executed")
            assert {one.process_id for one in engine_processes()} == before
        finally:
            inside.kill()


def held_by(process: str, process_id: int) -> str:
    return f"(held by {process}, process {process_id}, state T (stopped))"


def test_processes_wait_for_no_engine(stop: Stop, tmp_path: Path) -> None:
    shim, engine = stop(FIRST), stop("dockerd")
    done = railbed(*VERIFY, "process", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (warning,) = (line for line in done.stderr.splitlines() if line.startswith("Warning:"))
    assert f"{FIRST} {held_by('containerd-shim', shim)}" in warning
    assert f"{SECOND} {held_by('dockerd', engine)}" in warning
    assert "`sudo ./railbed clean` removes them" in warning


def test_a_stopped_engine_is_waited_for_two_seconds(stop: Stop) -> None:
    stop("dockerd")
    begun_s = time.monotonic()
    assert FIRST in clean(HURRY_S).left
    assert time.monotonic() - begun_s < HURRY_S + 0.5


def test_containers_start_beside_one_that_cannot_be_removed(stop: Stop, tmp_path: Path) -> None:
    process_id = stop(FIRST)
    done = railbed(*VERIFY, "container", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{FIRST} {held_by('containerd-shim', process_id)}" in done.stderr
    assert SECOND not in done.stderr


def test_a_stopped_engine_is_refused_with_its_process_and_containers(
    stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_engine, "PING_DEADLINE_S", 0.5)
    process_id = stop("dockerd")
    with pytest.raises(NotReady) as refusal:
        ready(ProxyKind.CONTAINER)
    assert held_by("dockerd", process_id) in str(refusal.value)
    assert FIRST in str(refusal.value)
    assert SECOND in str(refusal.value)


def test_an_engine_that_is_stopped_while_containers_start_is_named(
    stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_engine, "PING_EVERY_S", 0.1)
    monkeypatch.setattr(docker_engine, "HANGS_AFTER_S", 0.5)
    start, stopped = gpu_proxies._start_container, list[int]()

    def start_beside_a_stopped_engine(*arguments: Any) -> int:
        stopped.append(stop("dockerd"))
        return start(*arguments)

    monkeypatch.setattr(gpu_proxies, "_start_container", start_beside_a_stopped_engine)
    with (
        run_lock(f"test-{os.getpid()}-new") as lock,
        pytest.raises(EmulationError) as refusal,
        proxies(ProxyKind.CONTAINER, ["d0g0"], AGENT, lock, Watch()),
    ):
        pytest.fail("the engine is stopped")
    assert docker_engine.HANGS in str(refusal.value)
    assert held_by("dockerd", stopped[0]) in str(refusal.value)
    assert FIRST in str(refusal.value)


def test_clean_removes_what_it_can_and_the_rest_the_next_time(stop: Stop, tmp_path: Path) -> None:
    process_id = stop(FIRST)
    done = railbed("clean", folder=tmp_path)
    assert done.returncode == 4
    assert done.stdout == "Removed: 1 container.\n"
    assert f"{FIRST} {held_by('containerd-shim', process_id)}" in done.stderr
    assert SECOND not in done.stderr
    os.kill(process_id, signal.SIGCONT)
    done = railbed("clean", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Removed: 1 container.\n"


def test_clean_takes_a_stopped_reaper(tmp_path: Path) -> None:
    command = Command((*VERIFY, "process"), tmp_path)
    with ExitStack() as ended:
        ended.callback(command.end)
        wait_until(lambda: "reaper" in command.parts().values(), "the reaper is there", 60)
        (reaper,) = (one for one, name in command.parts().items() if name == "reaper")
        os.kill(command.process_id, signal.SIGSTOP)  # it would end in order
        os.kill(reaper, signal.SIGSTOP)
        os.kill(command.process_id, signal.SIGKILL)
        assert command.wait(10) == -signal.SIGKILL
        assert clean().processes > 0
        wait_until(lambda: command.left() == [], "nothing is left", 5)
