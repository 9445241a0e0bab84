"""The Docker Engine: its errors in words, and its processes as /proc shows them."""

import json
from pathlib import Path
from typing import Any

import pytest
from docker.errors import NotFound
from requests.exceptions import ReadTimeout

from linux.processes.run_lock import RUNS
from model.errors import EmulationError, NotReady
from testbed.nodes import docker_engine

TMPFS = {"destination": "/tmp", "type": "tmpfs"}


@pytest.mark.parametrize(
    ("mounts", "said"),
    [
        ([], ("f00",)),
        ([TMPFS, {"destination": "/data", "source": "/srv/data"}], ("f00",)),
        (
            [TMPFS, {"destination": "/run", "source": str(RUNS / "run-7-rail-only/proxies/d0g0")}],
            ("f00", "run-7-rail-only", "railbed-run-7-rail-only-d0g0"),
        ),
    ],
)
def test_only_containers_of_runs_are_ours(
    tmp_path: Path, mounts: list[dict[str, Any]], said: tuple[str, ...]
) -> None:
    """A mount needs no source (OCI runtime specification, "Mounts")."""
    (tmp_path / "f00").mkdir()
    configuration = {"hostname": "d0g0", "mounts": mounts}
    (tmp_path / "f00" / "config.json").write_text(json.dumps(configuration))
    (tmp_path / "cwd").symlink_to(tmp_path / "f00")
    assert docker_engine._container(tmp_path / "cwd") == said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NotFound("404 Client Error: no such container"), "request refused: 404 Client Error"),
        (ReadTimeout("Read timed out."), r"no answer during the run \(Read timed out"),
    ],
)
def test_a_refusal_is_told_from_a_missing_answer(error: Exception, said: str) -> None:
    """Both are errors of the operating system to Python: the SDK's are of HTTP's library."""
    with pytest.raises(EmulationError, match=f"Docker Engine: {said}"), docker_engine.answering():
        raise error


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("tcp://localhost:x", "Port could not be cast to integer value as 'x'"),
        ("tcp://localhost", "port is required"),
        ("tcp://[::1]:9", "refused|Cannot assign|unreachable"),
    ],
)
def test_a_place_without_an_engine_is_told(
    monkeypatch: pytest.MonkeyPatch, place: str, why: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", place)
    with pytest.raises(NotReady, match=rf"Docker Engine: no answer \(.*({why}).*; start it"):
        docker_engine.docker_client()
