"""The provisioning script in a bare Debian root: a forgotten package shows here.

On the developer's machine everything is installed already. So the script runs in a
`minbase` root made from the machine's own Debian mirror, in namespaces that vanish
with it. No Docker Engine runs there: `test_provision_docker.py` has that half.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]

REPOSITORY = Path(__file__).resolve().parents[2]
PROVISION = "/railbed/testbed/provision.sh"
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", ".tools", "runs", "*_cache", "__pycache__")

# Settings by which this machine reaches its package index and mirror; copied unchanged.
CLIENT_FILES = (
    "/etc/apt/auth.conf",
    "/etc/apt/auth.conf.d",
    "/etc/apt/trusted.gpg.d",
    "/etc/hosts",
    "/etc/pip.conf",
    "/etc/resolv.conf",
    "/etc/uv/uv.toml",
    "~/.config/pip/pip.conf",
    "~/.config/uv/uv.toml",
)
CLIENT_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy", "pip_", "uv_")
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
# Installing ca-certificates rewrites the root's own bundle: the machine's is a second file.
MACHINE_CERTIFICATES = "/etc/ssl/machine-certificates.crt"

ENTER = """
root=$1; shift
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
exec chroot "$root" "$@"
"""


@dataclass(frozen=True)
class BareRoot:
    folder: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command inside; its mounts and processes end with it."""
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        return subprocess.run(
            [*unshare, "bash", "-ec", ENTER, "enter", str(self.folder), *command],
            env=_client_environment() | {"RAILBED_NO_DOCKER": "1"},
            capture_output=True,
            text=True,
            timeout=900,
        )

    def import_in_python(self, code: str) -> subprocess.CompletedProcess[str]:
        return self.run("/railbed/.venv/bin/python", "-W", "ignore", "-c", code)


@dataclass(frozen=True)
class Provisioned:
    root: BareRoot
    first_run: subprocess.CompletedProcess[str]


def _client_environment() -> dict[str, str]:
    taken = {k: v for k, v in os.environ.items() if k.lower().startswith(CLIENT_VARIABLES)}
    base = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    names = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT")
    trust = dict.fromkeys(names, MACHINE_CERTIFICATES) if Path(CERTIFICATES).exists() else {}
    return base | taken | trust


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif source.exists():
        shutil.copy(source, target)


def _take_over_client_files(folder: Path) -> None:
    _copy(Path(CERTIFICATES), folder / MACHINE_CERTIFICATES[1:])
    for name in CLIENT_FILES:
        inside = name.replace("~", "/root", 1)[1:]
        _copy(Path(name).expanduser(), folder / inside)


def _keep_daemons_from_starting(folder: Path) -> None:
    policy = folder / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)


def _do_without_syncs(folder: Path) -> None:
    """Let dpkg not wait for the disk: nobody needs this root after a crash."""
    (folder / "etc/dpkg/dpkg.cfg.d/unsafe-io").write_text("force-unsafe-io\n")


def _debootstrap(folder: Path) -> None:
    script = f". {REPOSITORY}/testbed/provision.sh; debian_root {folder} --variant=minbase"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def provisioned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provisioned]:
    folder = tmp_path_factory.mktemp("bare") / "root"
    _debootstrap(folder)
    _take_over_client_files(folder)
    _keep_daemons_from_starting(folder)
    _do_without_syncs(folder)
    shutil.copytree(REPOSITORY, folder / "railbed", ignore=NOT_COPIED)
    root = BareRoot(folder)
    yield Provisioned(root, root.run(PROVISION))
    shutil.rmtree(folder)  # a gigabyte


def test_a_bare_debian_is_provisioned_in_two_steps(provisioned: Provisioned) -> None:
    first = provisioned.first_run
    assert first.returncode == 0, first.stderr
    assert first.stdout == ""
    packages, environment = first.stderr.splitlines()
    assert packages.startswith("railbed: installing Debian packages: ca-certificates docker.io")
    assert environment.startswith("railbed: installing the locked Python environment")


def test_a_second_run_does_and_says_nothing(provisioned: Provisioned) -> None:
    second = provisioned.root.run(PROVISION)
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "command",
    [
        "ovs-vsctl --version",
        "ovs-vswitchd --version",
        "ovsdb-server --version",
        "ovs-ofctl --version",
        "mnexec true",
        "ip -V",
        "tc -V",
        "iperf3 --version",
        "ping -V",
        "ethtool --version",
        "nsenter --version",
        "unshare --version",
        "sysctl --version",
        "mmdebstrap --version",
        "dockerd --version",
        "docker --version",
    ],
)
def test_the_tools_are_there(provisioned: Provisioned, command: str) -> None:
    done = provisioned.root.run(*command.split())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["docker", "pydantic", "pyroute2", "scapy.all", "mininet.net"])
def test_the_libraries_import(provisioned: Provisioned, module: str) -> None:
    done = provisioned.root.import_in_python(f"import {module}")
    assert done.returncode == 0, done.stderr


def test_ryu_imports_once_eventlet_has_its_lost_attribute(provisioned: Provisioned) -> None:
    done = provisioned.root.import_in_python(
        "import eventlet.wsgi; eventlet.wsgi.ALREADY_HANDLED = object();"
        "import ryu.cmd.manager, ryu.base.app_manager, ryu.ofproto.ofproto_v1_3_parser"
    )
    assert done.returncode == 0, done.stderr


def test_the_image_name_is_published(provisioned: Provisioned) -> None:
    name = (provisioned.root.folder / "railbed/.venv/railbed-proxy-image").read_text().strip()
    assert re.fullmatch("railbed-proxy:[0-9a-f]{12}", name)
