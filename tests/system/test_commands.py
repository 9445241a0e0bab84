"""The command line as users meet it: results, mistakes, interruptions, kills."""

import csv
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from model.fabric.spec import FabricKind
from scenarios.library_files import LIBRARY
from scenarios.load import load
from tests.machine import machine_state, wait_until
from tests.results import assert_right, printed

ROOT = Path(__file__).parents[2]
RAILBED = str(ROOT / "railbed")
QUICK = ("--set", "repeats=1", "--set", "warmup=0", "--proxies", "process")
# The quickstart on one small fabric, a tenth of a second for each case.
SMALL = (
    *("--set", "fabric.kinds=rail-only", "--set", "fabric.domains=2"),
    *("--set", "workloads.0.size_scale=4000", "--set", "expect.ratio_limit=0.5"),
    *("--set", "workloads.1.size_scale=40", "--set", "workloads.2.size_scale=40"),
)

pytestmark = [
    pytest.mark.system,
    pytest.mark.integration,
    pytest.mark.usefixtures("untouched_machine"),
]

# Executions of half a second each, for half a minute.
LASTING = (
    *("--set", "fabric.kinds=rail-only", "--set", "fabric.domains=2"),
    *("--set", "workloads.0.size_scale=1600", "--set", "repeats=50"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, in which runs are kept."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def railbed(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([RAILBED, *arguments], capture_output=True, text=True, timeout=110)


Started = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def started(folder: Path) -> Iterator[Started]:
    """Starts a run and waits until its first case is under way; kills it after the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [RAILBED, "run", "quickstart", *LASTING, *arguments]
        pipe = subprocess.PIPE
        processes.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True))
        wait_until_it_runs()
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def wait_until_it_runs() -> None:
    wait_until(
        lambda: any(map(_has_records, Path("runs").glob("*/*/transfers.csv"))), "it runs", 60
    )


def _has_records(transfers: Path) -> bool:
    return len(transfers.read_text().splitlines()) > 1


def test_a_run_gives_one_json_object_and_a_folder(folder: Path) -> None:
    grid = ("--set", "fabric.domains=2", "--set", "fabric.domain_size=2")
    size = ("--set", "workloads.0.size_scale=1600", "--set", "workloads.1.size_scale=16")
    limits = ("--set", "workloads.2.size_scale=16", "--set", "expect.ratio_limit=0.5")
    containers = ("--proxies", "container")
    small = (*grid, *size, *limits)
    result = printed(railbed("run", "quickstart", "--json", *QUICK, *containers, *small))
    assert result["schema"] == "railbed.run/2"
    assert [case["case"] for case in result["cases"]] == [
        f"{kind}/{rest}"
        for kind in ("rail-only", "rail-optimized")
        for rest in ("all-reduce/hierarchical", "all-to-all/two-step", "all-to-all/direct")
    ]
    kept = Path(result["folder"])
    assert json.loads((kept / "result.json").read_text()) == result
    assert (kept / "environment.json").exists()
    assert (kept / "controller-rail-only.jsonl").exists()
    shown = railbed("show", "latest", "--json")
    assert json.loads(shown.stdout) == result
    assert result["run_id"] in railbed("list").stdout
    assert "two-step" in railbed("show", result["run_id"][:20]).stdout


def test_every_element_of_every_collective_is_right(folder: Path) -> None:
    small = ("--set", "fabric.kinds=rail-only", "--set", "fabric.domains=2")
    result = printed(railbed("run", "check-data", "--json", "--proxies", "process", *small))
    scenario = load(LIBRARY / "check-data.yaml")
    named = [case.name for case in scenario.cases_on(FabricKind.RAIL_ONLY)]
    assert [case["case"] for case in result["cases"]] == named
    assert all(case["data_is_right"] for case in result["cases"])
    assert_right(result)


def test_verify_finds_all_paths_as_intended(folder: Path) -> None:
    result = printed(railbed("verify", "quickstart", "--json", "--proxies", "container"))
    assert (result["schema"], result["scenario"]) == ("railbed.verify/1", "quickstart")
    assert result["verdict"] == "pass"
    rail_only, rail_optimized = result["fabrics"]
    assert (rail_only["kind"], rail_optimized["kind"]) == ("rail-only", "rail-optimized")
    for fabric in result["fabrics"]:
        assert (fabric["pairs"], fabric["as_intended"], fabric["mismatches"]) == (240, 240, [])
    assert rail_only["rail_isolation"]["foreign_bytes"] == 0
    assert rail_only["rail_isolation"]["verdict"] == "pass"
    assert rail_optimized["rail_isolation"]["verdict"] == "not applicable"
    assert not (folder / "runs").exists()


def test_verify_prints_a_table(folder: Path) -> None:
    only = ("--set", "fabric.kinds=rail-only", "--set", "fabric.domains=2")
    done = railbed("verify", "quickstart", "--proxies", "process", *only)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == ["rail-only", "56", "56", "pass", "0", "pass"]


def test_a_run_behind_sudo_belongs_to_the_user_and_checks_paths_on_request(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    done = railbed("run", "quickstart", "--json", *QUICK, *SMALL, "--set", "check_paths=true")
    result = printed(done)
    assert_right(result)
    assert result["paths"]["verdict"] == "pass"
    assert [fabric["as_intended"] for fabric in result["paths"]["fabrics"]] == [56]
    assert json.loads((Path(result["folder"]) / "paths.json").read_text()) == result["paths"]
    assert "The paths that packets took" in railbed("show", "latest").stdout
    runs = folder / "runs"
    assert {place.stat().st_uid for place in (runs, *runs.rglob("*"))} == {65534}


def test_a_failed_expectation_is_exit_code_1(folder: Path) -> None:
    strict = ("--set", "expect.ratio_within=1e-9", "--set", "expect.ratio_limit=1e-9")
    anyway = ("--set", "allow_overload=true")
    done = railbed("run", "quickstart", *QUICK, *SMALL, *strict, *anyway)
    assert done.returncode == 1
    assert "away from the model" in done.stdout


def test_ctrl_c_takes_everything_down(started: Started) -> None:
    process = started("--proxies", "container")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "interrupted; everything was taken down" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("proxies", ["process", "container"])
def test_after_kill_9_everything_goes_by_itself_or_with_clean(
    started: Started, proxies: str
) -> None:
    before = machine_state()
    process = started("--proxies", proxies)
    process.kill()
    process.communicate(timeout=30)
    assert railbed("clean").returncode == 0
    wait_until(lambda: machine_state().processes <= before.processes, "all processes are gone")
    state = next(Path("runs").glob("*/state.json")).read_text()
    assert json.loads(state)["state"] == "running"
    assert railbed("show", "latest").returncode == 2


def test_a_death_is_exit_code_4_with_last_words(started: Started) -> None:
    before = machine_state().processes
    # Of several seconds each: none ends while the busy machine looks for processes.
    process = started("--proxies", "process", "--set", "workloads.0.size_scale=200")
    switch = run_process("ovs-vswitchd", before)
    wait_until_an_execution_begins(run_process("d0g1", before))
    os.kill(switch, signal.SIGKILL)
    _, said = process.communicate(timeout=15)
    assert process.returncode == 4
    assert "; its log ends with" in said
    state = json.loads(next(Path("runs").glob("*/state.json")).read_text())
    assert state["state"] == "incomplete"
    assert "died" in state["cause"]
    repeats = json.loads(next(Path("runs").glob("*/*/repeats.json")).read_text())
    assert repeats[-1]["complete"] is False
    assert unfinished_records(), "survivors' records of the broken execution are kept"


def wait_until_an_execution_begins(agent: int) -> None:
    """Wait until an agent receives data: between two executions, no agent sends."""
    so_far = received_bytes(agent)
    wait_until(lambda: received_bytes(agent) > so_far + 100_000, "the next execution is under way")


def received_bytes(process_id: int) -> int:
    """Bytes that all interfaces in a process's network namespace have received."""
    interfaces = Path(f"/proc/{process_id}/net/dev").read_text().splitlines()[2:]
    return sum(int(line.split(":")[1].split()[0]) for line in interfaces)


def unfinished_records() -> list[dict[str, str]]:
    """Transfers that had begun in the last execution."""
    with next(Path("runs").glob("*/*/transfers.csv")).open() as file:
        rows = list(csv.DictReader(file))
    return [row for row in rows if row["repeat"] == rows[-1]["repeat"] and row["started_ns"] != "0"]


def run_process(name: str, before: frozenset[int]) -> int:
    """Id of a run's process not in `before`, by its name or a word of its command line."""
    for process_id in machine_state().processes - before:
        process = Path(f"/proc/{process_id}")
        with suppress(OSError):  # it has ended meanwhile
            words = (process / "cmdline").read_bytes().decode().split("\0")
            known = {(process / "comm").read_text().strip(), *words}
            if name in known and words[0] != "setpriv":
                return process_id
    raise AssertionError(f"no process of the run is called {name}")


def test_two_runs_at_once(started: Started) -> None:
    other = started("--proxies", "process")
    done = railbed("run", "quickstart", "--json", *QUICK, *SMALL)
    printed(done)
    assert f"other runs disturb this one, and it disturbs them: run-{other.pid}-" in done.stderr
    assert other.poll() is None
    other.send_signal(signal.SIGINT)
    other.communicate(timeout=30)
