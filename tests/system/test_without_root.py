"""The entry script for a user without root: it runs what is installed and installs nothing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from tempfile import gettempdir

import pytest

pytestmark = pytest.mark.system

REPOSITORY = Path(__file__).resolve().parents[2]
NOBODY = 65534
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", ".tools", "runs", "*_cache", "__pycache__")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    # pytest closes its folders to other users
    depth = len(tmp_path.relative_to(gettempdir()).parts)
    for folder in (tmp_path, *tmp_path.parents[: depth - 1]):
        folder.chmod(0o755)
    return Path(shutil.copytree(REPOSITORY, tmp_path / "clone", ignore=NOT_COPIED))


def _run_as_nobody(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, command)],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
    )


@pytest.mark.parametrize("state", ["absent", "empty", "unfinished", "outdated"])
def test_an_incomplete_environment_is_one_sentence(clone: Path, state: str) -> None:
    environment = clone / ".venv"
    if state != "absent":
        environment.mkdir()
    if state in ("unfinished", "outdated"):
        (environment / "bin").mkdir()
        (environment / "bin/python").symlink_to("/usr/bin/python3")
    if state == "outdated":
        (environment / "railbed-lock").write_text("0123456789ab\n")
    done = _run_as_nobody(clone / "railbed", "list", cwd=clone)
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == 1
    assert f"sudo {clone}/railbed doctor" in done.stderr


@pytest.fixture
def program(clone: Path) -> Path:
    """A complete environment whose program prints how it was called."""
    shutil.rmtree(clone / "commands", ignore_errors=True)
    (clone / "commands").mkdir()
    (clone / "commands/__main__.py").write_text(
        "import os, sys\nprint(os.path.dirname(__file__), os.getcwd(), sys.argv[1:], sep='|')\n"
    )
    (clone / ".venv/bin").mkdir(parents=True)
    (clone / ".venv/bin/python").symlink_to("/usr/bin/python3")
    script = f". {clone}/testbed/provision.sh; environment_hash > {clone}/.venv/railbed-lock"
    subprocess.run(["bash", "-c", script], check=True)
    return clone


def test_the_entry_works_from_anywhere_through_a_link(program: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    # A package of the same name in the user's folder must not be run instead of Railbed's.
    (elsewhere / "commands").mkdir(parents=True)
    (elsewhere / "commands/__main__.py").write_text("print('the wrong one')\n")
    (elsewhere / "railbed").symlink_to(program / "railbed")
    done = _run_as_nobody(elsewhere / "railbed", "show", "a run", cwd=elsewhere)
    assert done.stdout == f"{program}/commands|{elsewhere}|['show', 'a run']\n", done.stderr
    assert done.returncode == 0


def test_the_tests_ask_for_root(program: Path) -> None:
    done = _run_as_nobody(program / "railbed", "test", cwd=program)
    assert done.returncode == 3
    assert f"sudo {program}/railbed test" in done.stderr


def test_provisioning_asks_for_root(clone: Path) -> None:
    done = _run_as_nobody(clone / "testbed/provision.sh", cwd=clone)
    assert done.returncode == 3
    assert "needs root: run 'sudo " in done.stderr


def test_an_unknown_argument_is_bad_input(clone: Path) -> None:
    done = _run_as_nobody(clone / "testbed/provision.sh", "--everything", cwd=clone)
    assert done.returncode == 2
    assert "unknown argument '--everything'" in done.stderr
