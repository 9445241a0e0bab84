"""What is refused before a fabric comes up: bad input, missing tools, too high rates."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from scenarios.planning.machine_profile import VARIABLE, keep, this_machine
from tests.unit.machines import TWO_CORES
from tests.unit.programs import AS_USER

ROOT = Path(__file__).parents[2]
RAILBED = str(ROOT / "railbed")
PROGRAM = (str(ROOT / ".venv" / "bin" / "python"), "-P", "-m", "commands")

pytestmark = pytest.mark.system


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a copy of a scenario, and no runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text((ROOT / "scenarios/library/quickstart.yaml").read_text())
    return tmp_path


def said_by(command: tuple[str, ...], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=110, env={**os.environ, **environment}
    )


def assert_refused(done: subprocess.CompletedProcess[str], code: int) -> None:
    """Nothing is printed but a sentence, and there is no folder of runs."""
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert "Traceback" not in done.stderr
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("check nowhere.yaml", "nowhere.yaml: not found"),
        ("check quickstart --set fabric.domains=0", "must be at least 1, got 0"),
        ("run quickstart --set fabric.domain=3", "did you mean 'domains'?"),
        ("run quickstart --proxies balloon", "'balloon' is not one of 'container', 'process'"),
        ("verify nowhere", "nowhere: not found"),
        ("verify quickstart --set fabric.domains=0", "must be at least 1, got 0"),
        ("verify quickstart --proxies balloon", "'balloon' is not one of 'container', 'process'"),
        ("verify", "Missing argument"),
        ("show never", "runs: has no runs"),
        ("runn", "No such command 'runn'"),
        ("run", "Missing argument"),
        ("sweep small.yaml --over seed=1,x", "point 2 (seed=x): --over seed: must be"),
        ("sweep small.yaml", "--over: needs at least one key"),
        ("sweep nowhere.yaml --over seed=1,2", "nowhere.yaml: not found"),
        ("sweep", "needs a scenario, or --resume NAME"),
        ("sweep --resume never", "runs: has no sweeps"),
        ("sweep small.yaml --over seed=[ --proxies process", "is not YAML"),
        ("sweep small.yaml --over seed=1 --proxies x", "not one of 'container', 'process'"),
        ("compare never latest", "runs: has no runs"),
        ("compare latest", "Missing argument"),
        *(
            (
                f"{command} nic-link-down --set faults.0.where=d9g0--rail0",
                "the rail-only fabric has no nic-link 'd9g0--rail0'",
            )
            for command in ("check", "run")
        ),
    ],
)
def test_bad_input_is_exit_code_2(folder: Path, arguments: str, message: str) -> None:
    done = said_by((RAILBED, *arguments.split()))
    assert_refused(done, 2)
    assert message in done.stderr


def test_a_missing_tool_is_exit_code_3(folder: Path) -> None:
    command = (*PROGRAM, "run", "quickstart", "--proxies", "process")
    done = said_by(command, PATH=str(folder), PYTHONPATH=str(ROOT))
    assert_refused(done, 3)
    assert "tool ovs-vswitchd: not found; install it with `sudo ./railbed doctor`" in done.stderr


def test_without_an_engine_it_is_exit_code_3(folder: Path) -> None:
    nowhere = {"DOCKER_HOST": "unix:///nowhere.sock", "PYTHONPATH": str(ROOT)}
    done = said_by((*PROGRAM, "run", "quickstart"), **nowhere)
    assert_refused(done, 3)
    assert "Docker Engine: no answer" in done.stderr
    assert "--proxies process" in done.stderr


@pytest.fixture
def machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs for this machine that do not depend on what else it does."""
    monkeypatch.setenv(VARIABLE, str(folder / "machine.json"))
    keep(replace(TWO_CORES, key=this_machine()))


@pytest.mark.usefixtures("machine")
def test_what_cannot_work_is_refused_with_what_would() -> None:
    too_fast = ("quickstart", "--set", "fabric.bandwidth_scale=10")
    done = said_by((RAILBED, "check", *too_fast))
    assert_refused(done, 2)
    assert "--set fabric.bandwidth_scale: " in done.stderr
    assert "of all cores in its busiest second" in done.stderr
    better = done.stderr.rpartition("(use ")[2].partition(" as `auto` does")[0]
    changed = f"fabric.bandwidth_scale={better}"
    done = said_by((RAILBED, "check", "quickstart", "--set", changed))
    assert done.returncode == 0, done.stderr
    done = said_by((RAILBED, "check", *too_fast, "--set", "allow_overload=true"))
    assert done.returncode == 0, done.stderr
    assert_refused(said_by((RAILBED, "run", *too_fast, "--proxies", "process")), 2)


def test_a_machine_that_was_never_measured_has_a_plan_too(folder: Path) -> None:
    done = said_by((RAILBED, "plan", "quickstart"), **{VARIABLE: str(folder / "nothing.json")})
    assert done.returncode == 0, done.stderr
    assert "this machine was not measured" in done.stdout


def test_check_and_list_need_no_root(folder: Path) -> None:
    for arguments in (("check", "quickstart"), ("list",)):
        done = said_by(("env", "--chdir=/", *AS_USER, RAILBED, *arguments))
        assert done.returncode == 0, done.stderr
