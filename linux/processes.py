"""Processes of a run: they die with the run, however it ends, and a death is detected."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from model.errors import EmulationError

LAST_WORDS_LINES = 12
# Niceness: real switches and controllers have their own processors, so proxies must not delay them.
BEFORE_PROXIES = -10


def start(
    command: Sequence[str], log: Path, environment: Mapping[str, str], niceness: int = 0
) -> subprocess.Popen[bytes]:
    """Start a process that the kernel kills when this one ends (prctl(2), PR_SET_PDEATHSIG).

    It has its own session: Ctrl-C at the terminal goes to this process, which takes down in order.
    A lower `niceness` is a higher priority (nice(1)).
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            dies_with_us(["nice", "-n", str(niceness), *command]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **environment},
            start_new_session=True,
        )


def dies_with_us(command: Sequence[str]) -> list[str]:
    """A command whose process the kernel kills when the thread that starts it ends."""
    return ["setpriv", "--pdeathsig", "KILL", "--", *command]


def output_of(*command: str, timeout_s: float = 60) -> str:
    """Return the output of a short command; raises `EmulationError` if it failed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode != 0:
        raise EmulationError(f"{command[0]} failed: {done.stderr.strip()}")
    return done.stdout


def first_line(*command: str) -> str:
    """The first line that a command prints, or "not installed"."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except FileNotFoundError:
        return "not installed"
    return done.stdout.partition("\n")[0]


@contextmanager
def running(
    command: Sequence[str], log: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process for as long as the context lasts."""
    process = start(command, log, environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(condition: Callable[[], bool], what: str, deadline_s: float) -> None:
    """Wait until a condition holds; raise `EmulationError` with `what` after the deadline."""
    end_s = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end_s:
            raise EmulationError(f"{what}: not within {deadline_s:g} s")
        time.sleep(0.005)


def last_words(log: Path) -> str:
    """The last lines of a log."""
    if not log.exists():
        return "(it said nothing)"
    lines = log.read_text(errors="replace").splitlines()[-LAST_WORDS_LINES:]
    return "\n".join(lines) or "(it said nothing)"


@dataclass(frozen=True)
class _Watched:
    what: str
    process_id: int
    log: Path


class Watch:
    """Notices when a process of the run dies."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._watched: dict[int, _Watched] = {}

    def add(self, what: str, process_id: int, log: Path) -> None:
        """Watch a process; `what` names it in the message, `log` holds its last words."""
        try:
            descriptor = os.pidfd_open(process_id)
        except ProcessLookupError:
            raise EmulationError(_obituary(_Watched(what, process_id, log))) from None
        self._watched[descriptor] = _Watched(what, process_id, log)
        self._poll.register(descriptor, select.POLLIN)

    def forget(self, what: str) -> None:
        """Stop watching a process that is to be killed; unknown names are ignored."""
        for descriptor, watched in list(self._watched.items()):
            if watched.what == what:
                self._poll.unregister(descriptor)
                os.close(descriptor)
                del self._watched[descriptor]

    def process_id(self, what: str) -> int:
        """The id of the process that is watched under this name."""
        return next(w.process_id for w in self._watched.values() if w.what == what)

    def check(self) -> None:
        """Raise `EmulationError` if a watched process has died."""
        dead = [self._watched[descriptor] for descriptor, _ in self._poll.poll(0)]
        if dead:
            raise EmulationError("\n".join(_obituary(watched) for watched in dead))

    def close(self) -> None:
        """Stop watching."""
        for descriptor in self._watched:
            os.close(descriptor)
        self._watched.clear()
        self._poll = select.poll()


def _obituary(dead: _Watched) -> str:
    return f"{dead.what} (process {dead.process_id}) died; its last words:\n{last_words(dead.log)}"


def kill(process_id: int) -> None:
    """Kill a process that may have ended already."""
    with suppress(ProcessLookupError):
        os.kill(process_id, signal.SIGKILL)
