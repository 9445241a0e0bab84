"""The provisioning script in bare Debian roots: a forgotten package shows here.

On the developer's machine everything is installed already. So the script runs in `minbase` roots of
each Debian release, made from the machine's own mirror, in namespaces that vanish with them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from testbed.virtual_machine.image import Suite
from tests.hosts.root import REPOSITORY, HostRoot, host_root, make_archive

pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]

PROVISION = "/railbed/testbed/provision.sh"
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", ".tools", "runs", "*_cache", "__pycache__")


@dataclass(frozen=True)
class Provisioned:
    root: HostRoot
    first_run: subprocess.CompletedProcess[str]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return self.root.run(*command, RAILBED_NO_DOCKER="1")

    def import_in_python(self, code: str) -> subprocess.CompletedProcess[str]:
        return self.run("/railbed/.venv/bin/python", "-W", "ignore", "-c", code)


@pytest.fixture(scope="module", params=list(Suite))
def provisioned(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Provisioned]:
    folder = tmp_path_factory.mktemp("bare")
    make_archive(request.param, folder / "root.tar")
    with host_root(folder / "root.tar", folder / "root") as root:
        shutil.copytree(REPOSITORY, root.folder / "railbed", ignore=NOT_COPIED)
        yield Provisioned(root, root.run(PROVISION, RAILBED_REQUIRE_DOCKER="1"))


def test_a_bare_debian_is_provisioned(provisioned: Provisioned) -> None:
    first = provisioned.first_run
    assert first.returncode == 0, first.stderr
    assert first.stdout == ""
    packages, environment, engine, image = first.stderr.splitlines()
    assert packages.startswith("railbed: installing Debian packages: ca-certificates docker.io")
    assert environment.startswith("railbed: installing the locked Python environment")
    assert engine.startswith("railbed: starting a Docker Engine")
    assert image.startswith("railbed: building the image railbed-proxy:")


def test_a_second_run_does_and_says_nothing(provisioned: Provisioned) -> None:
    second = provisioned.run(PROVISION)
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
    done = provisioned.run(*command.split())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["docker", "pydantic", "pyroute2", "scapy.all", "mininet.net"])
def test_the_libraries_import(provisioned: Provisioned, module: str) -> None:
    done = provisioned.import_in_python(f"import {module}")
    assert done.returncode == 0, done.stderr


def test_ryu_imports_once_eventlet_has_its_lost_attribute(provisioned: Provisioned) -> None:
    done = provisioned.import_in_python(
        "import eventlet.wsgi; eventlet.wsgi.ALREADY_HANDLED = object();"
        "import ryu.cmd.manager, ryu.base.app_manager, ryu.ofproto.ofproto_v1_3_parser"
    )
    assert done.returncode == 0, done.stderr


def test_the_image_name_is_published(provisioned: Provisioned) -> None:
    name = (provisioned.root.folder / "railbed/.venv/railbed-proxy-image").read_text().strip()
    assert re.fullmatch("railbed-proxy:[0-9a-f]{12}", name)
