"""Host scripts of the Vagrantfile: whether KVM works, and which package mirrors to use."""

import os
import platform
import pwd
import subprocess
from pathlib import Path

import pytest

from testbed.virtual_machine.image import Suite

# Root may write to any file, unless it gives that right up.
OBEYING_MODES = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
DEADLINE_S = 20
SCRIPTS = Path(__file__).parents[2] / "testbed" / "virtual_machine"


def program(folder: Path, name: str, script: str) -> None:
    """Write a shell script to be found first on PATH under a program's name."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def executed(script: str, folder: Path, *words: str, **variables: str) -> tuple[int, str]:
    """The exit code and output of one of the scripts, which must end in time."""
    environment = {"PATH": f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin", **variables}
    command = [*OBEYING_MODES, str(SCRIPTS / script), *words]
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("qemu", "limit_s", "exit_code"),
    [("exit 33", "5", 0), ("exec sleep 60", "0.2", 1), ("exit 1", "5", 1)],
    ids=["a guest runs", "a guest hangs", "KVM is refused"],
)
def test_kvm_is_used_only_where_a_guest_runs(
    tmp_path: Path, qemu: str, limit_s: str, exit_code: int
) -> None:
    device = tmp_path / "kvm"
    device.touch()
    program(tmp_path, "qemu-system-x86_64", qemu)
    assert executed("kvm_works.sh", tmp_path, str(device), limit_s) == (exit_code, "")


@pytest.mark.parametrize(("sudo", "exit_code"), [("exit 33", 0), ("exit 1", 1)])
def test_who_may_not_try_kvm_asks_sudo_and_does_without(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], sudo: str, exit_code: int
) -> None:
    device = tmp_path / "kvm"
    device.touch(0o444)
    program(tmp_path, "qemu-system-x86_64", "exit 33")
    program(tmp_path, "sudo", sudo)
    assert executed("kvm_works.sh", tmp_path, str(device)) == (exit_code, "")
    user = pwd.getpwuid(os.geteuid()).pw_name
    assert (f"'sudo adduser {user} kvm'" in capfd.readouterr().err) == (exit_code == 1)


def test_there_is_no_kvm_without_its_device(tmp_path: Path) -> None:
    assert executed("kvm_works.sh", tmp_path, str(tmp_path / "kvm")) == (1, "")


@pytest.fixture
def apt(tmp_path: Path) -> Path:
    """A machine with two package mirrors, one of them on its loopback address."""
    own = platform.freedesktop_os_release()["VERSION_CODENAME"]
    sources = f"deb http://mirror.example/debian {own} main\ndeb http://localhost/d {own} main"
    program(tmp_path, "apt-get", f"echo '{sources}'")
    program(tmp_path, "apt-config", """echo 'Acquire::http::Proxy "http://proxy.example:3142";'""")
    return tmp_path


@pytest.mark.parametrize("suite", Suite)
def test_a_guest_gets_this_machines_ways_to_packages(apt: Path, suite: str) -> None:
    ways = {"PIP_INDEX_URL": "https://index.example/simple", "https_proxy": "http://proxy.example"}
    exit_code, script = executed("mirrors.sh", apt, suite, **ways)
    assert exit_code == 0
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=True).returncode == 0
    assert f"deb http://mirror.example/debian {suite} main" in script
    assert 'Acquire::http::Proxy "http://proxy.example:3142";' in script
    assert "index-url = https://index.example/simple" in script
    assert "https_proxy=http://proxy.example" in script


def test_a_guest_does_not_get_what_is_on_this_machines_loopback_address(apt: Path) -> None:
    script = executed("mirrors.sh", apt, http_proxy="http://127.0.0.1:3128")[1]
    assert "localhost" not in script
    assert "127.0.0.1" not in script


def test_a_guest_asks_without_a_proxy_whom_this_machine_asks_so(apt: Path) -> None:
    """A mirror of one's own is most often listed behind the machine itself."""
    without = {"no_proxy": "localhost,127.0.0.1,mirror.corp", "NO_PROXY": "localhost"}
    script = executed("mirrors.sh", apt, https_proxy="http://proxy.example", **without)[1]
    written = script.partition("cat >'/etc/environment'")[2].splitlines()[1:4]
    assert set(written) == {
        "https_proxy=http://proxy.example",
        "no_proxy=localhost,127.0.0.1,mirror.corp",
        "NO_PROXY=localhost",
    }


def test_no_system_is_built_without_the_ways_to_packages(tmp_path: Path) -> None:
    """`set -e` does not hold where a failure is asked for."""
    program(tmp_path, "mirrors.sh", "echo half; exit 1")
    words = f"""
. {SCRIPTS}/image.sh
here={tmp_path} log=/dev/null
debian_root() {{ echo built >{tmp_path}/built; }}
build_system {tmp_path} || echo failed
"""
    assert subprocess.check_output(["bash", "-c", words], text=True) == "failed\n"
    assert not (tmp_path / "built").exists()


@pytest.mark.parametrize(
    ("extra", "line"),
    [
        ("https://more.example/simple", "https://more.example/simple"),
        (
            "https://a.example\n http://localhost:3141\tfile:///here https://b.example",
            "https://a.example https://b.example",
        ),
    ],
)
def test_a_guest_gets_all_indexes_of_pip_that_are_elsewhere(
    apt: Path, extra: str, line: str
) -> None:
    ways = {"PIP_INDEX_URL": "https://index.example/simple", "PIP_EXTRA_INDEX_URL": extra}
    script = executed("mirrors.sh", apt, **ways)[1]
    written = script.partition("cat >'/etc/pip.conf'")[2].splitlines()[1:4]
    index = "index-url = https://index.example/simple"
    assert written == ["[global]", index, f"extra-index-url = {line}"]
