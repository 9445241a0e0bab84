"""Kinds of hosts: what was shown on them, and what is said of the others."""

import os
import platform
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from linux.files.program_files import ROOT
from model.errors import NotReady
from testbed.host import preflight
from testbed.host.preflight import Host, known_proofs, this_host
from testbed.nodes.gpu_proxies import ProxyKind
from testbed.virtual_machine import image
from testbed.virtual_machine.image import Suite
from tests.hosts.proofs import GUIDE, table

SCRIPT = ROOT / "testbed" / "provision.sh"
DEBIAN_13 = Host("debian", "13", "x86_64", "3.13")


@pytest.fixture
def proved(tmp_path: Path) -> Path:
    place = tmp_path / "proved.csv"
    place.write_text(
        "distribution,version,architecture,python,kernel,date,command,result,duration_s\n"
        "debian,13,x86_64,3.13,6.18,2026-11-26,sudo ./railbed demo,pass,150\n"
        "debian,13,x86_64,3.13,6.12,2026-11-25,sudo ./railbed demo,pass,900\n"
    )
    return place


def test_a_host_was_shown_to_work_on_the_last_date_with_all_kernels(proved: Path) -> None:
    assert DEBIAN_13.shown(proved) == "shown to work on 2026-11-26, with Linux 6.12 and 6.18"


@pytest.mark.parametrize(
    "other",
    [
        Host("debian", "14", "x86_64", "3.13"),
        Host("debian", "13", "aarch64", "3.13"),
        Host("debian", "13", "x86_64", "3.14"),
        Host("ubuntu", "13", "x86_64", "3.13"),
    ],
)
def test_another_kind_of_host_was_not_shown_to_work(other: Host, proved: Path) -> None:
    assert other.shown(proved) == ""


def test_doctor_names_the_host_and_what_to_do_on_an_unproved_one(
    proved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = {"ID": "ubuntu", "VERSION_ID": "24.04", "PRETTY_NAME": "Ubuntu 24.04 LTS"}
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    (check,) = preflight.unneeded_checks()
    assert not check.ready
    python = ".".join(platform.python_version_tuple()[:2])
    assert str(check) == (
        f"host: Ubuntu 24.04 LTS, Linux {platform.release()}, Python {python}, "
        f"{platform.machine()}; not shown to work on such a host; "
        f"{preflight.TRY}"
    )


def test_a_host_without_a_release_file_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> dict[str, str]:
        raise OSError

    monkeypatch.setattr(platform, "freedesktop_os_release", missing)
    assert this_host().distribution == preflight.UNKNOWN


def test_the_guide_has_the_table_of_what_was_shown() -> None:
    assert "\n".join(table(known_proofs())) in GUIDE.read_text()


def test_both_releases_were_shown_to_work() -> None:
    shown = {proof.version for proof in known_proofs() if proof.command == "sudo ./railbed demo"}
    assert shown == {"12", "13"}


def provisioned_on(tmp_path: Path, words: str, release: str) -> subprocess.CompletedProcess[str]:
    """Execute functions of the provisioning script on a host with this release file."""
    (tmp_path / "os-release").write_text(release)
    script = (
        f". {SCRIPT}\n"
        f'of_host() {{ (. {tmp_path}/os-release && echo "${{!1-}}"); }}\n'
        f"log={tmp_path}/log; logged() {{ echo installed; }}\n{words}"
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environment, timeout=60
    )


FEDORA = 'ID=fedora\nVERSION_ID=43\nPRETTY_NAME="Fedora Linux 43"\n'
UBUNTU = 'ID=ubuntu\nVERSION_ID=24.04\nPRETTY_NAME="Ubuntu 24.04 LTS"\n'
TRIXIE = 'ID=debian\nVERSION_ID=13\nPRETTY_NAME="Debian GNU/Linux 13 (trixie)"\n'


def test_a_host_without_apt_is_sent_elsewhere_before_anything_is_installed(tmp_path: Path) -> None:
    without = "command() { [[ $2 != apt-get ]]; }; "
    done = provisioned_on(tmp_path, f"{without} install_with_apt mininet ethtool", FEDORA)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("railbed: Fedora Linux 43 on ")
    assert "Missing: mininet ethtool." in done.stderr
    assert "use Railbed's container or its virtual machine" in done.stderr


@pytest.mark.parametrize(("release", "warned"), [(UBUNTU, True), (TRIXIE, False)])
def test_an_unproved_host_is_tried_with_a_warning(
    tmp_path: Path, proved: Path, release: str, warned: bool
) -> None:
    words = f"uname() {{ echo x86_64; }}; proved_hosts={proved}; warn_of_unproved_host"
    done = provisioned_on(tmp_path, words, release)
    assert done.returncode == 0
    assert ("warning: Ubuntu 24.04 LTS on x86_64: not shown to work" in done.stderr) is warned
    assert bool(done.stderr) is warned


@pytest.mark.parametrize(
    ("version", "architecture", "said"),
    [
        ("3.10", "x86_64", "is Python 3.10, and Railbed needs 3.11 to 3.13"),
        ("3.14", "x86_64", "is Python 3.14, and Railbed needs 3.11 to 3.13"),
        ("3.13", "riscv64", "packages are locked for x86_64 and aarch64"),
        ("3.11", "aarch64", ""),
        ("3.12", "x86_64", ""),
    ],
)
def test_a_python_or_processor_without_locked_packages_is_refused(
    tmp_path: Path, version: str, architecture: str, said: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {version}\n")
    python.chmod(0o755)
    words = f"python={python}; uname() {{ echo {architecture}; }}; require_python"
    done = provisioned_on(tmp_path, words, TRIXIE)
    assert done.returncode == (3 if said else 0)
    assert said in done.stderr


def test_the_versions_of_python_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    least, most = re.findall(r"3\.1\[(\d)-(\d)\]", SCRIPT.read_text())[0]
    assert project["requires-python"] == f">=3.1{least},<3.1{int(most) + 1}"


def test_images_are_of_one_suite() -> None:
    (suite,) = re.findall(r"^image_suite=(\w+)$", SCRIPT.read_text(), re.MULTILINE)
    assert suite == Suite.BOOKWORM


def test_another_processor_has_no_virtual_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(NotReady, match="needs an x86_64 processor, got aarch64"):
        image.image()


def test_a_container_starts_no_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(preflight.CONTAINER_VARIABLE, "1")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(preflight, "FEATURES", ())
    monkeypatch.setattr(preflight, "_attempt", lambda what, *_: preflight.Check(what, True, "yes"))
    *_, last = preflight.checks(ProxyKind.CONTAINER)
    assert not last.ready
    assert last.remedy == "use `--proxies process`"


def test_root_without_capabilities_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(preflight, "CAPABILITIES", {"CAP_NET_ADMIN": 63, "CAP_CHOWN": 0})
    *_, last = preflight.checks(ProxyKind.PROCESS)
    assert str(last) == (
        "privileges: root without CAP_NET_ADMIN; start the container with `docker run --privileged`"
    )
