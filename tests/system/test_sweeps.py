"""Sweeps through the command line: points that fail, interruptions, kills; and comparisons."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.machine import machine_state, wait_until
from tests.results import printed

ROOT = Path(__file__).parents[2]
COMMAND = (str(ROOT / ".venv" / "bin" / "python"), "-P", "-m", "commands")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
SCENARIO = """\
fabric:
  kinds: rail-only
  domains: 2
  domain_size: 2
  platform: dgx-h100
  bandwidth_scale: 20000
workloads:
  - {collective: all-to-all, algorithm: two-step, size: 200 kB}
repeats: 1
warmup: 0
expect: {ratio_within: 10, ratio_limit: 10}
"""
SWEEP = ("sweep", "small.yaml", "--proxies", "process", "--over", "seed=1,2,3")

pytestmark = [
    pytest.mark.system,
    pytest.mark.integration,
    pytest.mark.usefixtures("untouched_machine", "folder"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a scenario, in which runs are kept."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SCENARIO)
    return tmp_path


def railbed(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, env=ENVIRONMENT, timeout=60
    )


Started = Callable[[], subprocess.Popen[str]]


@pytest.fixture
def started(folder: Path) -> Iterator[Started]:
    """Starts the sweep; kills it after the test."""
    processes: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        processes.append(
            subprocess.Popen(
                [*COMMAND, *SWEEP], stdout=pipe, stderr=pipe, text=True, env=ENVIRONMENT
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def runs_of(number: int) -> list[Path]:
    return [place.parent for place in Path("runs").glob(f"sweeps/*/{number:03}/*/state.json")]


def wait_until_begun(point: int, runs: int) -> None:
    """Wait until a run of a point is under way, its first one or a later one."""
    wait_until(lambda: len(runs_of(point)) == runs, f"run {runs} of point {point} begins", 30)


def run_ids(result: Any) -> list[str]:
    return [point["run_id"] for point in result["points"]]


def finished(*arguments: str) -> Any:
    """Run a sweep command; return its JSON object, in which all points must have a result."""
    result = printed(railbed(*arguments, "--json"))
    assert all(point["cases"] for point in result["points"])
    return result


def test_a_sweep_gives_one_object_and_is_not_run_twice() -> None:
    sweep = ("sweep", "small.yaml", "--proxies", "process", "--set", "seed=5")
    result = finished(*sweep, "--over", "fabric.domains=2,3")
    assert result["schema"] == "railbed.sweep/2"
    assert [point["parameters"] for point in result["points"]] == [
        {"fabric.domains": 2},
        {"fabric.domains": 3},
    ]
    assert [point["cases"][0]["gpus"] for point in result["points"]] == [4, 6]
    assert finished(*sweep, "--over", "fabric.domains=2,3") == result
    assert finished("sweep", "--resume", "latest") == result
    alone = Path(result["points"][1]["folder"]) / "scenario.yaml"
    assert "3 domains x 2 GPUs" in railbed("check", str(alone)).stdout

    first, second = run_ids(result)
    done = railbed("compare", first, second)
    assert done.returncode == 0, done.stderr
    assert "the scenarios differ in fabric.domains: 2 against 3" in done.stdout
    compared = json.loads(railbed("compare", second, second, "--json").stdout)
    assert compared["schema"] == "railbed.compare/1"
    assert compared["cases"][0]["difference"] == "within the spread"


def test_a_point_that_fails_its_expectations_is_named() -> None:
    # Timers are too coarse for such a limit: without `allow_overload` the point is refused.
    changes = ("expect.ratio_within=1e-9", "allow_overload=true")
    strict = ("--over", "expect.ratio_limit=1e-9", "--set", changes[0], "--set", changes[1])
    done = railbed("sweep", "small.yaml", "--proxies", "process", *strict)
    assert done.returncode == 1
    assert "fail: point 1 (expect.ratio_limit=1e-09): rail-only/all-to-all/two-step" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_an_interrupted_a_failed_and_a_killed_sweep_go_on(started: Started) -> None:
    """The sweep has three points; its second one is hit each time, and the first is run once."""
    before = machine_state().processes
    process = started()
    wait_until_begun(1, 1)
    refused = railbed("sweep", "--resume", "latest")
    assert refused.returncode == 2
    assert "another process runs this sweep" in refused.stderr
    wait_until_begun(2, 1)
    process.send_signal(signal.SIGTERM)
    assert_interrupted(process)
    wait_until(lambda: machine_state().processes <= before, "its point is gone")

    process = started()
    wait_until_begun(2, 2)
    kill_point_of(process)
    table, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "fail: point 2 (seed=2): its run was killed by signal 9 (Killed)" in table
    assert "point 3 of 3 (seed=3): " in said

    process = started()
    wait_until_begun(2, 3)
    process.kill()
    process.communicate()
    wait_until(lambda: machine_state().processes <= before, "its point is gone, too")
    result = finished("sweep", "--resume", "latest")
    assert [len(runs_of(number)) for number in (1, 2, 3)] == [1, 4, 1]
    assert run_ids(result)[::2] == [runs_of(number)[0].name for number in (1, 3)]


def assert_interrupted(process: subprocess.Popen[str]) -> None:
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Resume the sweep with `./railbed sweep --resume small-" in said
    assert "Traceback" not in said
    (point,) = runs_of(2)
    assert json.loads((point / "state.json").read_text())["state"] == "incomplete"


def kill_point_of(process: subprocess.Popen[str]) -> None:
    """Kill the run of the point that is under way."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
