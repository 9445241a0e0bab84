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
from threading import RLock
from typing import Any

from linux.files.user_files import unfollowed
from model.errors import EmulationError

LAST_WORDS_LINES = 12
# Niceness: real switches and controllers have their own processors, so proxies must not delay them.
BEFORE_PROXIES = -10
# A process of a session of its own also needs its session's niceness (sched(7), autogroup).
NICE = 'echo "$0" 2>/dev/null >/proc/self/autogroup; exec nice -n "$0" "$@"'
CHECK_EVERY_S = 0.2
END_DEADLINE_S = 10
ANSWER_S = 10
# Number of watched processes that one check examines for being stopped.
LOOKED_AT_ONCE = 8
# The shell waits for the end of its input, whose other end this process alone has.
PROGRAM = 'read -r _; exec "$@"'
# Likewise, a shell beside a command interrupts the command and its children, as Ctrl-C does.
INTERRUPTED = 'exec 3<&0 </dev/null; { read -r _; kill -INT 0; } <&3 & exec 3<&-; exec "$@"'
INTERRUPTED_S = 60


def start(
    command: Sequence[str], log: Path, environment: Mapping[str, str], niceness: int = 0
) -> subprocess.Popen[bytes]:
    """Start a process that the kernel kills when this one ends (prctl(2), PR_SET_PDEATHSIG).

    It has its own session: Ctrl-C at the terminal reaches this process, which takes down in order.
    A lower `niceness` is a higher priority (nice(1)).
    """
    with open(log, "ab", opener=unfollowed) as output:
        return subprocess.Popen(
            dies_with_us(["sh", "-c", NICE, str(niceness), *command]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **environment},
            start_new_session=True,
        )


def dies_with_us(command: Sequence[str]) -> list[str]:
    """A command whose process the kernel kills when the thread that starts it ends.

    The shell asks whether this process has ended before the kernel was told (prctl(2)).
    """
    unless_orphaned = ["sh", "-c", 'test "$PPID" = "$0" && exec "$@"', str(os.getpid())]
    return ["setpriv", "--pdeathsig", "KILL", "--", *unless_orphaned, *command]


def output_of(
    *command: str, timeout_s: float = 60, check: Callable[[], None] = lambda: None
) -> str:
    """Return the output of a short command; raises `EmulationError` if it failed or never ends.

    `check` is called during the wait, and may raise the cause.
    """
    pipe, end_s = subprocess.PIPE, time.monotonic() + timeout_s
    process = subprocess.Popen(dies_with_us(command), stdout=pipe, stderr=pipe, text=True)
    said = None
    try:
        while said is None:
            with suppress(subprocess.TimeoutExpired):
                said = process.communicate(timeout=CHECK_EVERY_S)
                continue
            check()
            require_not_stopped(process.pid, command[0])
            if time.monotonic() > end_s:
                raise EmulationError(f"{command[0]}: did not end within {timeout_s:g} s")
    finally:
        end(process)
    output, errors = said
    if process.returncode != 0:
        number = process.returncode
        how = f"exit code {number}" if number > 0 else f"died of {signal.Signals(-number).name}"
        raise EmulationError(f"{command[0]} failed: {errors.strip() or how}")
    return output


def exit_code_of(*command: str | Path) -> int:
    """Return the exit code of a command that has children, which may take minutes.

    All are interrupted (SIGINT) if this process ends meanwhile, however it ends.
    """
    shell = ["sh", "-c", INTERRUPTED, "command", *command]
    process = subprocess.Popen(shell, stdin=subprocess.PIPE, start_new_session=True)
    try:
        return process.wait()
    except BaseException:
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=INTERRUPTED_S)
        raise
    finally:
        end(process)


def first_line(*command: str) -> str:
    """Return the first line of a command's output, or why the command gave no answer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S)
    except FileNotFoundError:
        return "not installed"
    except subprocess.TimeoutExpired:
        return f"no answer within {ANSWER_S} s"
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
        end(process)


def end(process: "subprocess.Popen[Any]") -> None:
    """Kill a child, wait for its end and close its pipes.

    Raises `EmulationError` if the kernel does not end it.
    """
    process.kill()
    try:
        process.wait(END_DEADLINE_S)
    except subprocess.TimeoutExpired:
        what = f"process {process.pid}: did not end within {END_DEADLINE_S} s of SIGKILL"
        raise EmulationError(what) from None
    finally:
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def wait_for(
    condition: Callable[[], bool],
    what: str,
    deadline_s: float,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Wait until a condition holds; raise `EmulationError` with `what` after the deadline.

    `check` is called before each look, and may raise why the condition will never hold.
    """
    end_s = time.monotonic() + deadline_s
    while True:
        check()
        if condition():
            return
        if time.monotonic() > end_s:
            raise EmulationError(f"{what}: timed out after {deadline_s:g} s")
        time.sleep(0.005)


def wait_until_begun(
    process: "subprocess.Popen[bytes]",
    has_begun: Callable[[], bool],
    what: str,
    log: Path,
    deadline_s: float,
) -> None:
    """Wait until a child has begun its work; raise `EmulationError` if it ends or is stopped."""

    def check() -> None:
        if process.poll() is not None:
            raise EmulationError(f"{what}: did not start; its log ends with:\n{last_words(log)}")
        require_not_stopped(process.pid, what)

    wait_for(has_begun, f"start of {what}", deadline_s, check)


def wait_until_ended(
    process: "subprocess.Popen[bytes]", what: str, log: Path, deadline_s: float
) -> None:
    """Wait until a child has ended well; raise `EmulationError` if it does not, or is stopped."""
    wait_for(
        lambda: process.poll() is not None,
        f"end of {what}",
        deadline_s,
        check=lambda: require_not_stopped(process.pid, what),
    )
    if process.returncode != 0:
        raise EmulationError(f"{what}: failed; its log ends with:\n{last_words(log)}")


def last_words(log: Path) -> str:
    """The last lines of a log."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join(lines[-LAST_WORDS_LINES:]) or "(an empty log)"


def last_message(log: Path) -> str:
    """Railbed's last message among the last lines of a log; all of them without one."""
    return last_words(log).rpartition("railbed: ")[2]


@dataclass(frozen=True)
class _Watched:
    what: str
    process_id: int
    log: Path


class Watch:
    """Notices when a process of the run dies or is stopped; threads may share it."""

    def __init__(self) -> None:
        # A poll object refuses a second thread while the first one is in it.
        self._lock = RLock()
        self._poll = select.poll()
        self._watched: dict[int, _Watched] = {}
        self._looked_at = 0
        self._others: list[Callable[[], None]] = []

    def add(self, what: str, process_id: int, log: Path) -> None:
        """Watch a process; `what` names it in the message, `log` holds its last words."""
        try:
            descriptor = os.pidfd_open(process_id)
        except ProcessLookupError:
            raise EmulationError(_obituary(_Watched(what, process_id, log))) from None
        with self._lock:
            self._watched[descriptor] = _Watched(what, process_id, log)
            self._poll.register(descriptor, select.POLLIN)

    def forget(self, what: str) -> None:
        """Stop watching a process that is to be killed; unknown names are ignored."""
        with self._lock:
            for descriptor, watched in list(self._watched.items()):
                if watched.what == what:
                    self._poll.unregister(descriptor)
                    os.close(descriptor)
                    del self._watched[descriptor]

    def process_id(self, what: str) -> int:
        """The id of the process that is watched under this name."""
        return next(w.process_id for w in self._watched.values() if w.what == what)

    def add_check(self, check: Callable[[], None]) -> None:
        """Call this with every check; it raises `EmulationError` if a part does not work."""
        self._others.append(check)

    def check(self) -> None:
        """Raise `EmulationError` if a watched process has died, or is found stopped."""
        with self._lock:
            for check in self._others:
                check()
            dead = [self._watched[descriptor] for descriptor, _ in self._poll.poll(0)]
            if dead:
                raise EmulationError("\n".join(_obituary(watched) for watched in dead))
            # Some of them, in turn: a look at hundreds would disturb them.
            everyone = list(self._watched.values())
            begin = self._looked_at if self._looked_at < len(everyone) else 0
            self._looked_at = begin + LOOKED_AT_ONCE
            for watched in everyone[begin : self._looked_at]:
                require_not_stopped(watched.process_id, watched.what)

    def close(self) -> None:
        """Stop watching."""
        with self._lock:
            for watched in list(self._watched.values()):
                self.forget(watched.what)
            self._others.clear()


def is_stopped(process_id: int) -> bool:
    """Whether a process is stopped by a signal (proc(5), state T)."""
    try:
        status = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return False  # it has ended
    return status.rpartition(") ")[2].startswith("T")


def require_not_stopped(process_id: int, what: str) -> None:
    """Raise `EmulationError` that names a process if it is stopped by a signal."""
    if is_stopped(process_id):
        raise EmulationError(f"{what} (process {process_id}) is stopped by a signal (SIGSTOP)")


def _obituary(dead: _Watched) -> str:
    what = f"{dead.what} (process {dead.process_id})"
    return f"{what} died{_cause(dead.process_id)}; its log ends with:\n{last_words(dead.log)}"


def _cause(process_id: int) -> str:
    """Name the signal that a child of this process died of; empty without one, or if unknown."""
    try:
        ended = os.waitid(os.P_PID, process_id, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # another's child, or awaited already
        return ""
    if ended is None or ended.si_code == os.CLD_EXITED:
        return ""
    return f" of {signal.Signals(ended.si_status).name}"


def kill(process_id: int) -> None:
    """Kill a process that may have ended already."""
    with suppress(ProcessLookupError):
        os.kill(process_id, signal.SIGKILL)


@contextmanager
def reaper(
    command: Sequence[str], log: Path, environment: Mapping[str, str], watch: Watch
) -> Iterator[None]:
    """Execute a command if this process ends within the context; `watch` notices its own end.

    Neither the kernel nor the run's own end removes, for example, a container that was requested
    but has not started yet.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            ["sh", "-c", PROGRAM, "reaper", *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd="/",
            env={**os.environ, **environment},
            start_new_session=True,
        )
    try:
        watch.add("the reaper", process.pid, log)
        yield
    finally:
        end(process)
