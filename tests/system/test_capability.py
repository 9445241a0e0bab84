"""The machine is measured once; scenarios that it cannot carry are refused before a run."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RAILBED = str(ROOT / "railbed")

pytestmark = [
    pytest.mark.system,
    pytest.mark.integration,
    pytest.mark.usefixtures("untouched_machine"),
]


def railbed(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the machine's measurement kept in the file `place`."""
    environment = {**os.environ, "RAILBED_MACHINE": str(place)}
    return subprocess.run(
        [RAILBED, *arguments], capture_output=True, text=True, timeout=110, env=environment
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Measure the machine; return the file with the measurement."""
    place = tmp_path_factory.mktemp("machine") / "machine.json"
    done = railbed(place, "doctor", "--proxies", "process")
    assert done.returncode == 0, done.stderr
    assert "Measuring this machine" in done.stderr
    assert "forwarding GPU" in done.stdout
    assert "This machine is " in done.stdout
    return place


@pytest.fixture
def known(measured: Path, tmp_path: Path) -> Path:
    """The same machine with costs that do not depend on what else it did while it was measured."""
    found = json.loads(measured.read_text())
    for cost in (*found["hops"].values(), found["threads"]["cost"]):
        cost.update(packet_s=5e-6, byte_s=3e-10)
    place = tmp_path / "machine.json"
    place.write_text(json.dumps(found))
    return place


def test_doctor_measures_once(measured: Path) -> None:
    found = json.loads(measured.read_text())
    assert found["schema"] == "railbed.machine/2"
    assert 0 <= found["pauses"]["lost"] <= 1
    assert found["key"]["cores"] == os.cpu_count()
    assert found["hops"]["sender and receiver"]["packet_s"] >= 0
    assert 0 < found["timer_median_s"] <= found["timer_p99_s"]
    again = railbed(measured, "doctor", "--proxies", "process")
    assert again.returncode == 0
    assert "Measuring" not in again.stderr
    assert json.loads(measured.read_text()) == found


def test_what_cannot_work_is_refused_with_what_would(known: Path) -> None:
    too_fast = "fabric.bandwidth_scale=10"
    done = railbed(known, "check", "quickstart", "--set", too_fast)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--set fabric.bandwidth_scale: " in done.stderr
    assert "cores here in its busiest second" in done.stderr
    better = done.stderr.rpartition("(use ")[2].strip().rstrip(")")
    done = railbed(known, "check", "quickstart", "--set", f"fabric.bandwidth_scale={better}")
    assert done.returncode == 0, done.stderr
    options = ("--set", too_fast, "--set", "allow_overload=true")
    assert railbed(known, "check", "quickstart", *options).returncode == 0


def test_a_run_is_refused_as_a_check_is(known: Path) -> None:
    too_fast = ("--set", "fabric.bandwidth_scale=10", "--proxies", "process")
    done = railbed(known, "run", "quickstart", *too_fast)
    assert (done.returncode, done.stdout) == (2, "")


def test_plan_and_check_say_why_auto_is_what_it_is(measured: Path) -> None:
    auto = ("quickstart", "--set", "fabric.bandwidth_scale=auto")
    planned, checked = railbed(measured, "plan", *auto), railbed(measured, "check", *auto)
    for done in (planned, checked):
        assert done.returncode == 0, done.stderr
        assert "bandwidth_scale: auto is " in done.stdout
    assert "HB switch" in planned.stdout
    assert "not known" not in planned.stdout


def test_a_machine_that_was_never_measured_has_a_plan_too(tmp_path: Path) -> None:
    done = railbed(tmp_path / "nothing.json", "plan", "quickstart")
    assert done.returncode == 0, done.stderr
    assert "this machine was not measured" in done.stdout
