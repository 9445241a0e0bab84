"""A folder in which the commands of Railbed are executed, in this process, with any files."""

import io
import json
import os
import re
import reprlib
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn
from unittest.mock import patch

from commands import app as commands
from commands import sweep as sweep_command
from model.sweep import Point, Setting, Sweep
from results.store.runs import RunFolder
from results.store.sweeps import Outcome, SweepFolder, begin_sweep
from tests.unit.machines import TWO_CORES
from tests.unit.run_folders import begun_run

# What the commands of this file may end with: all as expected, a point failed, bad input.
DOCUMENTED = (0, 1, 2)
# Seconds of processor time that may be used on a machine of any speed: more is a hang.
HANGS_S = 20.0
# A gzipped trace may have 512 MiB.
MOST_BYTES = 1_000_000_000
# Seconds of processor time that a process of Railbed has used when a command begins.
START_S = 0.7
# A command that waits uses no processor time; on a busy machine, one that works may take long.
STANDSTILL_S = 300.0
SAMPLE = Path(__file__).parent / "samples" / "result.json"
GOOD = """\
fabric: {domains: 2, domain_size: 2, platform: dgx-h100, bandwidth_scale: 20000}
workloads:
  - {collective: all-to-all, algorithm: two-step, size: 8 MB}
"""


SHORT = reprlib.Repr()
SHORT.maxother = SHORT.maxstring = 2000

# The bytes of a file, what makes something else in its place, or None if nothing is there.
Content = bytes | Callable[[Path], object] | None


@dataclass(frozen=True)
class Input:
    """A command's arguments, and the files that it finds, by their paths."""

    arguments: tuple[str, ...]
    files: tuple[tuple[str, Content], ...] = ()

    def __repr__(self) -> str:
        return f"Input({SHORT.repr(self.arguments)}, {SHORT.repr(self.files)})"


class TooSlow(BaseException):
    """A command has used the processor for too long."""


# Signals whose handlers are changed while a command is executed.
HANDLED = (signal.SIGVTALRM, signal.SIGALRM, signal.SIGTERM, signal.SIGINT)


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise TooSlow


@dataclass(frozen=True)
class End:
    """How a command ended: exit code, output, and the seconds of processor time that it used."""

    exit_code: int | None
    output: str
    took_s: float

    @property
    def is_right(self) -> bool:
        """Whether the command ended as the documentation says."""
        ended = self.exit_code in DOCUMENTED and "Traceback" not in self.output
        return ended and (self.exit_code != 2 or bool(re.search(r"railbed:\s+\S", self.output)))


def execute(arguments: tuple[str, ...]) -> End:
    """Execute a command of Railbed in this process, until it hangs."""
    output = io.StringIO()
    before = {number: signal.getsignal(number) for number in HANDLED}
    for number in (signal.SIGVTALRM, signal.SIGALRM):
        signal.signal(number, _stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, HANGS_S - START_S)
    signal.setitimer(signal.ITIMER_REAL, STANDSTILL_S)
    begun_s = time.process_time()
    try:
        code = _exit_code(arguments, output)
    except TooSlow:
        code = None
        output.write("railbed hangs")
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
    return End(code, output.getvalue(), START_S + time.process_time() - begun_s)


def _exit_code(arguments: tuple[str, ...], output: io.StringIO) -> int | None:
    with redirect_stdout(output), redirect_stderr(output), patch("sys.argv", ["", *arguments]):
        try:
            commands.main()
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else None
    return None


@contextmanager
def playground() -> Iterator[Path]:
    """A working folder with two runs and a sweep, in which no command measures anything."""
    with (
        tempfile.TemporaryDirectory() as name,
        patch("os.fsync"),
        patch.object(sweep_command, "_require_machine", lambda clock, proxies: None),
        patch.object(sweep_command, "_local", lambda folder, at_once: None),
        patch.object(sweep_command, "_run_points", lambda *_, **__: None),
        patch("scenarios.planning.machine_profile.known_machine", lambda: TWO_CORES),
        patch.dict(os.environ, {"RAILBED_MACHINE": "/nowhere"}),
    ):
        folder, before = Path(name), Path.cwd()
        _stored(folder / "runs")
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)


RUN, OTHER, SWEEP = "20260101-000000-sample-0000", "20260102-000000-sample-0000", "night"
POINTS_RUN = "20260103-000000-sample-0000"
RECORDS = ("result.json", "state.json", "environment.json", "scenario.yaml")
PLACES = (
    *(f"runs/{RUN}/{name}" for name in RECORDS),
    f"runs/sweeps/{SWEEP}/sweep.json",
    *(f"runs/sweeps/{SWEEP}/001/{name}" for name in ("point.json", "scenario.yaml")),
    *(f"runs/sweeps/{SWEEP}/001/{POINTS_RUN}/{name}" for name in ("result.json", "state.json")),
)


def _stored(store: Path) -> None:
    sample = json.loads(SAMPLE.read_text())
    for run_id in (RUN, OTHER):
        begun_run(store, run_id, GOOD, {"kernel": "6.1"}).complete(sample)
    points = tuple(Point(n, (Setting("seed", str(n), n),), GOOD) for n in (1, 2))
    sweep = begin_sweep(store, SWEEP, Sweep("sample", "process", points))
    for point in points:
        _run_of(sweep, point).complete(sample)


def _run_of(sweep: SweepFolder, point: Point) -> RunFolder:
    run = begun_run(sweep.point_folder(point), POINTS_RUN, GOOD, {"kernel": "6.1"})
    sweep.end(point, Outcome(0, run.path, 1.0))
    return run


@contextmanager
def changed(folder: Path, tried: Input) -> Iterator[None]:
    """Put the files of an input in their places, and what was there back afterwards."""
    before = {name: _content(folder / name) for name, _ in tried.files}
    try:
        for name, content in tried.files:
            _put(folder / name, content)
        yield
    finally:
        for name, content in before.items():
            _put(folder / name, content)


def _content(place: Path) -> bytes | None:
    return place.read_bytes() if place.is_file() else None


def _put(place: Path, content: Content) -> None:
    if place.is_dir() and not place.is_symlink():
        place.rmdir()
    place.unlink(missing_ok=True)
    if isinstance(content, bytes):
        place.write_bytes(content)
    elif content is not None:
        content(place)


def end_of(folder: Path, tried: Input) -> End:
    """Execute the command of an input in a playground."""
    with changed(folder, tried):
        return execute(tried.arguments)
