"""Ends of a run: killed, stopped, hung up, out of space. Nothing is left, and the cause is told."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from linux.processes.lifetime import end
from studies.benchmarks.soak import GONE_S, SMALL, Command
from testbed.nodes.docker_engine import containers_of
from tests.machine import wait_until

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.system,
    pytest.mark.integration,
    pytest.mark.usefixtures("untouched_machine"),
]

RUN = ("run", "quickstart", *SMALL)


@pytest.fixture
def command(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Command]:
    """A run with proxies of the kind that the test asks for."""
    started = Command((*RUN, "--proxies", request.param), tmp_path)
    yield started
    started.end()


def part(command: Command, name: str) -> int:
    """Wait until a part of the run is there; return its process id."""
    found: list[int] = []

    def is_there() -> bool:
        found.extend(one for one, called in command.parts().items() if called == name)
        return bool(found)

    wait_until(is_there, f"{name} is there", 60)
    return found[0]


@pytest.mark.parametrize("command", ["container"], indirect=True)
def test_a_run_killed_while_containers_start_leaves_nothing(command: Command) -> None:
    wait_until(lambda: bool(containers_of(f"-{command.process_id}-")), "a container is there", 60)
    os.kill(command.process_id, signal.SIGKILL)
    assert command.wait(10) == -signal.SIGKILL
    _, left = command.gone_after_s(GONE_S)
    assert left == []


@pytest.mark.parametrize("command", ["process"], indirect=True)
@pytest.mark.parametrize("victim", ["agent", "ovs-vswitchd"])
def test_a_stopped_part_ends_the_run_in_words(command: Command, victim: str) -> None:
    part(command, "pause watcher")
    os.kill(part(command, victim), signal.SIGSTOP)
    assert command.wait(10) == 4
    assert "is stopped by a signal (SIGSTOP)" in command.said()
    state = json.loads(next(command.folder.glob("runs/*/state.json")).read_text())
    assert "is stopped by a signal" in state["cause"]


@pytest.mark.parametrize("command", ["process"], indirect=True)
def test_the_end_of_the_terminal_takes_everything_down(command: Command) -> None:
    part(command, "ovs-vswitchd")
    os.kill(command.process_id, signal.SIGHUP)
    os.kill(command.process_id, signal.SIGINT)  # a second signal changes nothing
    assert command.wait(20) == 130
    _, left = command.gone_after_s(GONE_S)
    assert left == []
    assert "interrupted; everything was taken down" in command.said()


def run_with(place: str, size: str) -> list[str]:
    """A run with a file system of this size, in a mount namespace in which it sees no other."""
    program = [str(ROOT / ".venv/bin/python"), "-P", "-m", "commands"]
    apart = f'mount -t tmpfs -o size={size} none {place} && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", apart, "sh", *program, *RUN, "--proxies", "process"]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "DOCKER_HOST": "unix:///nowhere.sock"}


@pytest.mark.parametrize("full", ["runs", "/run/railbed"])
def test_a_full_file_system_is_named(full: str, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    done = subprocess.run(
        run_with(full, "16k"),
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 4, done.stderr
    assert f"no space left in {tmp_path if full == 'runs' else full}" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "railbed-crash.txt").exists()


def test_a_file_system_that_fills_up_ends_a_run_in_ten_seconds(tmp_path: Path) -> None:
    """Something else fills it while the run executes its cases."""
    (tmp_path / "runs").mkdir()
    process = subprocess.Popen(
        run_with("runs", "4m"),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        inside = Path(f"/proc/{process.pid}/root{tmp_path}/runs")
        wait_until(lambda: any(inside.glob("*/*/transfers.csv")), "a case has begun", 60)
        with suppress(OSError), (inside / "other").open("wb", buffering=0) as other:
            while True:
                other.write(bytes(4096))
        _, said = process.communicate(timeout=10)
    finally:
        end(process)
    assert process.returncode == 4, said
    assert f"no space left in {tmp_path}" in said
