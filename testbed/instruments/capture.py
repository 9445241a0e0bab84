"""Capture frames on links of a running fabric, by a process of its own."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from linux.files import make_folder
from linux.processes import Watch, last_words, running, wait_for
from linux.program_files import ROOT
from model.errors import EmulationError
from model.fabric.topology import Link

NAME = "the capture"
PROGRAM = "testbed.instruments.capture_program"
DEADLINE_S = 10
# Of a file: about a hundred thousand frames.
MOST_BYTES = 16 * 2**20


@contextmanager
def capturing(
    links: Sequence[Link], folder: Path, watch: Watch, most_bytes: int = MOST_BYTES
) -> Iterator[None]:
    """Capture on links, whose switches are in the current namespace, while the context lasts.

    Writes two pcap files a link of at most `most_bytes` each, and `capture.json`. A part that dies
    meanwhile ends the run.
    """
    make_folder(folder)
    log = folder / "capture.log"
    named = [f"{link.name}={link.upper.interface}" for link in links]
    command = [sys.executable, "-P", "-m", PROGRAM, str(folder), str(most_bytes), *named]
    with running(command, log, {"PYTHONPATH": str(ROOT)}) as process:
        wait_for(lambda: _has_begun(process, log), f"{NAME} begins", DEADLINE_S)
        watch.add(NAME, process.pid, log)
        try:
            yield
        finally:
            watch.forget(NAME)
            exit_code = _ended(process)
        if exit_code != 0:
            raise EmulationError(f"{NAME} did not end well:\n{last_words(log)}")


def _has_begun(process: "subprocess.Popen[bytes]", log: Path) -> bool:
    if process.poll() is not None:
        raise EmulationError(f"{NAME} ended at its start:\n{last_words(log)}")
    return "capturing" in log.read_text(errors="replace")


def _ended(process: "subprocess.Popen[bytes]") -> int | None:
    """Let the program write the rest; return its exit code, `None` if it does not end."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        return process.wait(DEADLINE_S)
    return None
