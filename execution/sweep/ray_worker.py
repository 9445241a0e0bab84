"""The part of a Ray cluster's machine: one run, by the Railbed that is installed there.

Ray's worker processes get these functions with each task; they need the standard library alone.
"""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linux.files.program_files import program_version
from linux.files.user_files import work_folder
from model.sweep import HANGING

POLL_S = 0.2
END_DEADLINE_S = 60


def execute(
    program: str,
    digest: str,
    name: str,
    scenario: str,
    options: Sequence[str],
    at_most_s: float,
) -> dict[str, Any]:
    """Run a scenario with the program in a folder; return exit code, output and run folders.

    The output is that of standard error, the run folders are a tar archive. On an interruption, or
    after `at_most_s` seconds, the run is told to take itself down, and killed a minute later.
    """
    if (present := program_version(Path(program))) != digest:
        what = f"railbed: {os.uname().nodename}: {program}: must be version {digest}, got {present}"
        return {"exit_code": 3, "log": f"{what}; install the same version there\n", "runs": b""}
    with work_folder() as place:
        file = Path(place, f"{name}.yaml")
        file.write_text(scenario, encoding="utf-8")
        store, log = Path(place, "runs"), Path(place, "log.txt")
        store.mkdir()
        words = [str(file), *options, "--store", str(store)]
        exit_code = _run(program, words, log, at_most_s)
        return {"exit_code": exit_code, "log": log.read_text(), "runs": _packed(store)}


def _run(program: str, words: Sequence[str], log: Path, at_most_s: float) -> int:
    command = [f"{program}/.venv/bin/python", "-P", "-m", "commands", "run", *words]
    path = f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin:/sbin"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": program}
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    try:
        return _ended(process, at_most_s)
    finally:
        process.terminate()
        if _ended(process, END_DEADLINE_S) == HANGING:
            process.kill()
            _ended(process, END_DEADLINE_S)


def _ended(process: "subprocess.Popen[bytes]", at_most_s: float) -> int:
    """Wait for the end; Ray interrupts Python only, and never a call of the kernel."""
    end_s = time.monotonic() + at_most_s
    while time.monotonic() < end_s:
        try:
            return process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            pass
    return HANGING


def _packed(folder: Path) -> bytes:
    pack = ["tar", "--create", "--gzip", "--directory", str(folder), "."]
    return subprocess.run(pack, stdout=subprocess.PIPE, check=True).stdout
