"""Captures, by a process of their own, on the links that a run's user named."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from execution.cases.emulation import Experiment
from linux.files.program_files import ROOT
from linux.files.user_files import make_folder
from linux.processes.lifetime import Watch, running, wait_until_begun, wait_until_ended
from model.errors import EmulationError, InputError, Problem
from model.fabric.build import build_topology
from model.fabric.topology import Link
from scenarios.scenario import Scenario

NAME = "the capture"
PROGRAM = "testbed.instruments.capture_program"
DEADLINE_S = 10
# Largest size of a file: about a hundred thousand frames.
MOST_BYTES = 16 * 2**20


def require_links(scenario: Scenario, names: Sequence[str]) -> None:
    """Raise `InputError` with all names that no fabric of the scenario has."""
    known = {link.name for spec in scenario.fabrics for link in build_topology(spec).links}
    hint = "such as d0g0--hb0, d0g0--rail0 or rail0--spine0"
    if unknown := [name for name in names if name not in known]:
        raise InputError(*(Problem("--capture", f"unknown link {n!r}", hint) for n in unknown))


@contextmanager
def captured(fabric: Experiment, names: Sequence[str], folder: Path) -> Iterator[None]:
    """Capture on the links of a fabric that have these names, while the context lasts."""
    links = [fabric.topology.link_by_name[n] for n in names if n in fabric.topology.link_by_name]
    with capturing(links, folder, fabric.bed.watch) if links else nullcontext():
        yield


@contextmanager
def capturing(links: Sequence[Link], folder: Path, watch: Watch) -> Iterator[None]:
    """Capture frames on links while the context lasts; call this in the switches' namespace.

    Writes two pcap files a link of at most `MOST_BYTES` each, and `capture.json`. A part that dies
    meanwhile ends the run.
    """
    make_folder(folder)
    log = folder / "capture.log"
    named = [f"{link.name}={link.upper.interface}" for link in links]
    command = [sys.executable, "-P", "-m", PROGRAM, str(folder), str(MOST_BYTES), *named]
    with running(command, log, {"PYTHONPATH": str(ROOT)}) as process:
        wait_until_begun(
            process, lambda: "capturing" in log.read_text(errors="replace"), NAME, log, DEADLINE_S
        )
        watch.add(NAME, process.pid, log)
        try:
            yield
        except BaseException:
            with suppress(EmulationError):  # the error that ended the run is to be reported
                _end(process, log, watch)
            raise
        _end(process, log, watch)


def _end(process: "subprocess.Popen[bytes]", log: Path, watch: Watch) -> None:
    """Let the program write its remaining frames."""
    watch.forget(NAME)
    process.terminate()
    wait_until_ended(process, NAME, log, DEADLINE_S)
