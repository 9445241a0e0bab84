"""The machine is measured once; plans and checks use what was found."""

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


def test_doctor_measures_once_and_finds_this_machine_ready(measured: Path) -> None:
    found = json.loads(measured.read_text())
    assert found["schema"] == "railbed.machine/2"
    assert 0 <= found["pauses"]["lost"] <= 1
    assert found["key"]["cores"] == os.cpu_count()
    assert found["hops"]["sender and receiver"]["packet_s"] >= 0
    assert 0 < found["timer_median_s"] <= found["timer_p99_s"]
    again = railbed(measured, "doctor")
    assert again.returncode == 0, again.stdout
    assert "missing" not in again.stdout
    assert "Measuring" not in again.stderr
    assert json.loads(measured.read_text()) == found


def test_plan_and_check_say_why_auto_is_what_it_is(measured: Path) -> None:
    auto = ("quickstart", "--set", "fabric.bandwidth_scale=auto")
    planned, checked = railbed(measured, "plan", *auto), railbed(measured, "check", *auto)
    for done in (planned, checked):
        assert done.returncode == 0, done.stderr
        assert "bandwidth_scale: auto is " in done.stdout
    assert "HB switch" in planned.stdout
    assert "not known" not in planned.stdout
