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
COMMAND = (str(ROOT / ".venv" / "bin" / "python"), "-P", "-m", "scenarios")
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
    """Starts the sweep and waits until its second point is under way; kills it after the test."""
    processes: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        processes.append(
            subprocess.Popen(
                [*COMMAND, *SWEEP], stdout=pipe, stderr=pipe, text=True, env=ENVIRONMENT
            )
        )
        wait_until(lambda: bool(runs_of(2)), "the second point is under way", 30)
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def runs_of(number: int) -> list[Path]:
    return [place.parent for place in Path("runs").glob(f"sweeps/*/{number:03}/*/state.json")]


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
    assert result["schema"] == "railbed.sweep/1"
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


def test_a_point_that_dies_stops_nothing_and_is_tried_again(started: Started) -> None:
    process = started()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    table, said = process.communicate(timeout=30)
    assert process.returncode == 1
    cause = "point 2 (seed=2): its run was killed by signal 9 (Killed)"
    assert f"fail: {cause}" in table
    assert "point 3 of 3 (seed=3): " in said
    before = [runs_of(number) for number in (1, 3)]
    assert len(run_ids(finished(*SWEEP))) == 3
    assert [runs_of(number) for number in (1, 3)] == before
    assert len(runs_of(2)) == 2


def test_a_point_that_fails_its_expectations_is_named() -> None:
    # Timers are too coarse for such a limit: without `allow_overload` the point is refused.
    changes = ("expect.ratio_within=1e-9", "allow_overload=true")
    strict = ("--over", "expect.ratio_limit=10,1e-9", "--set", changes[0], "--set", changes[1])
    done = railbed("sweep", "small.yaml", "--proxies", "process", *strict)
    assert done.returncode == 1
    assert "fail: point 2 (expect.ratio_limit=1e-09): rail-only/all-to-all/two-step" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_after_kill_9_a_sweep_goes_on_where_it_was(started: Started) -> None:
    before = machine_state().processes
    process = started()
    process.kill()
    process.communicate()
    wait_until(lambda: machine_state().processes <= before, "its point is gone, too")
    first = [run.name for run in runs_of(1)]
    assert len(runs_of(3)) == 0
    result = finished("sweep", "--resume", "latest")
    assert len(run_ids(result)) == 3
    assert [run_ids(result)[0]] == first == [run.name for run in runs_of(1)]
    assert len(runs_of(2)) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_is_run_by_one_process_and_takes_its_point_down_when_interrupted(
    started: Started, number: signal.Signals
) -> None:
    before = machine_state().processes
    process = started()
    second = railbed("sweep", "--resume", "latest")
    assert second.returncode == 2
    assert "another process runs this sweep already" in second.stderr
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert machine_state().processes <= before
    assert "The sweep goes on with `railbed sweep --resume small-" in said
    assert "Traceback" not in said
    point = (runs_of(3) or runs_of(2))[0]
    assert json.loads((point / "state.json").read_text())["state"] == "incomplete"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sweep", "small.yaml", "--over", "seed=1,x"), "point 2 (seed=x): --set seed: must be"),
        (("sweep", "small.yaml"), "--over: needs at least one key"),
        (("sweep", "nowhere.yaml", "--over", "seed=1,2"), "nowhere.yaml: no such file"),
        (("sweep",), "needs a scenario, or --resume NAME"),
        (("sweep", "--resume", "never"), "no sweep called 'never'"),
        (("sweep", "small.yaml", "--over", "seed=[", "--proxies", "process"), "is not YAML"),
        (("sweep", "small.yaml", "--over", "seed=1", "--proxies", "x"), "container or process"),
        (("compare", "never", "latest"), "no run called 'never'"),
        (("compare", "latest"), "Missing argument"),
    ],
)
def test_bad_input_is_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    done = railbed(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not Path("runs").exists()
