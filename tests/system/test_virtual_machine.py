"""Check Railbed on Debian's own kernel, in both datapaths of Open vSwitch.

One virtual machine executes all checks; the golden measurements (`test_virtual_clock`) are a run in
the kernel's datapath. The whole integration suite is a command of its own
(docs/guides/virtual-machine.md).
"""

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.virtual_machine.guest import execute_in_copy
from tests.results import assert_right

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def guest_checks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the output of each check in the virtual machine."""
    back = tmp_path_factory.mktemp("guest")
    assert execute_in_copy(ROOT, ["tests/system/virtual_machine_checks.sh"], back) == 0
    return back / "runs" / "checks"


def said(checks: Path, name: str, exit_codes: tuple[int, ...] = (0,)) -> str:
    """Output of a check, which must have ended with one of these exit codes."""
    error = (checks / f"{name}.err").read_text()
    assert int((checks / f"{name}.code").read_text()) in exit_codes, error
    return (checks / f"{name}.out").read_text()


@pytest.fixture(scope="module")
def ended_run(guest_checks: Path) -> dict[str, Any]:
    """The result of a run in user space; its agreement with the model is not asked for."""
    result: dict[str, Any] = json.loads(said(guest_checks, "run", exit_codes=(0, 1)))
    return result


def test_packets_take_the_intended_paths(ended_run: dict[str, Any]) -> None:
    found = ended_run["paths"]
    assert found["verdict"] == "pass"
    assert [fabric["as_intended"] for fabric in found["fabrics"]] == [12]


def test_a_run_ends_with_a_result(guest_checks: Path, ended_run: dict[str, Any]) -> None:
    assert len(ended_run["cases"]) == 3
    assert_right(ended_run)
    kept = guest_checks.parent / Path(ended_run["folder"]).name
    assert "in user space" in json.loads((kept / "environment.json").read_text())["datapath"]


@pytest.mark.parametrize(
    ("of", "number"),
    [
        ("unit/test_processor.py", 6),
        ("integration/test_impairments.py", 1),
        ("integration/test_switch_queues.py", 6),
        ("integration/test_ethertype_socket.py", 2),
        ("integration/test_bridges.py", 2),
        ("integration/test_controller.py", 1),
    ],
)
def test_tests_pass_in_the_kernels_datapath(guest_checks: Path, of: str, number: int) -> None:
    """Numbers are in order, links delay packets, frames are heard, gray failures are found.

    No bridge passes frames to iptables with br_netfilter loaded, which `doctor` tells.
    """
    assert said(guest_checks, "tests").count(f"PASSED tests/{of}::") == number


@pytest.mark.parametrize("module", ["sch_htb", "cls_u32", "tun", "bridge"])
def test_what_the_kernel_lacks_is_named_with_what_to_do(guest_checks: Path, module: str) -> None:
    lines = said(guest_checks, "doctor-lacking", exit_codes=(3,)).splitlines()
    assert [line for line in lines if line.startswith("missing") and f"modprobe {module}`" in line]
