"""Provisioning the engine and the proxy image, in namespaces that hide the machine's own engine.

`/run` and `/var/lib/docker` are empty there, so that the script has to start an engine
and to build the image; whatever it starts dies with the process namespace.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

REPOSITORY = Path(__file__).resolve().parents[2]
PROVISION = f"{REPOSITORY}/testbed/provision.sh"

HIDE_THE_MACHINES_ENGINE = """
mkdir -p /var/lib/docker
for folder in /run /var/lib/docker /var/log; do mount -t tmpfs none "$folder"; done
mount -t proc proc /proc
"""
POWERLESS = "--network none --read-only --cap-drop ALL --security-opt no-new-privileges"


def _run_apart(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    return subprocess.run(
        [*unshare, "bash", "-ec", HIDE_THE_MACHINES_ENGINE + script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=800,
    )


@pytest.fixture(scope="module")
def proxy_image() -> str:
    return (REPOSITORY / ".venv/railbed-proxy-image").read_text().strip()


def test_an_engine_is_started_and_the_image_built(proxy_image: str) -> None:
    run = f"docker run --rm {POWERLESS} {proxy_image} echo a proxy runs"
    done = _run_apart(f"{PROVISION}; {run}; {PROVISION}")
    assert (done.returncode, done.stdout) == (0, "a proxy runs\n"), done.stderr
    engine, image = done.stderr.splitlines()  # the second run says nothing
    assert engine.startswith("railbed: starting a Docker Engine")
    assert image.startswith(f"railbed: building the image {proxy_image}")


@pytest.fixture
def broken_engine(tmp_path: Path) -> str:
    """A PATH on which dockerd dies at once, as it does without control groups."""
    dockerd = tmp_path / "dockerd"
    dockerd.write_text("#!/bin/sh\necho 'failed to start daemon: no control groups'\nexit 1\n")
    dockerd.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


def test_a_dead_engine_is_a_warning_with_its_last_words(broken_engine: str) -> None:
    done = _run_apart(PROVISION, PATH=broken_engine)
    assert done.returncode == 0, done.stderr
    assert "Its last words: failed to start daemon: no control groups" in done.stderr
    assert "--proxies process" in done.stderr


def test_a_dead_engine_is_an_error_where_one_is_required(broken_engine: str) -> None:
    done = _run_apart(PROVISION, PATH=broken_engine, RAILBED_REQUIRE_DOCKER="1")
    assert done.returncode == 3
    assert "RAILBED_REQUIRE_DOCKER=1" in done.stderr.splitlines()[-1]


def test_an_engine_may_be_left_alone(broken_engine: str) -> None:
    done = _run_apart(PROVISION, PATH=broken_engine, RAILBED_NO_DOCKER="1")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "command",
    [
        "python3 -c 'import array,ctypes,json,mmap,os,resource,selectors,socket,struct,sys,time'",
        "iperf3 --version",
        "ip -V",
        "ping -c 1 127.0.0.1",
    ],
)
def test_a_powerless_proxy_has_what_it_needs(proxy_image: str, command: str) -> None:
    done = subprocess.run(
        ["docker", "run", "--rm", *POWERLESS.split(), proxy_image, "sh", "-c", command],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_the_image_keeps_nothing_of_this_machines_mirror(proxy_image: str) -> None:
    search = "find /etc/apt -name 'sources.list' -o -name '99mmdebstrap'; echo searched"
    done = subprocess.run(
        ["docker", "run", "--rm", *POWERLESS.split(), proxy_image, "sh", "-c", search],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "searched\n", done.stderr
