"""Run a command for each rank: pass on its lines, and end all when one fails or time is up."""

import os
import selectors
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from itertools import chain

from linux.network.namespaces import namespace_of, processes_beside
from linux.processes.lifetime import dies_with_us, end, kill, wait_for

LOOK_EVERY_S = 0.1
# Longest wait for the end of an ended command's output, which another process may hold open.
LAST_LINES_S = 2.0
PIECE_BYTES = 65536
LONGEST_LINE_BYTES = 1 << 20
END_DEADLINE_S = 10
# Callback(rank, whether it is standard error, line without its end).
OnLine = Callable[[int, bool, bytes], None]


@dataclass(frozen=True)
class Command:
    """The command of a rank, in the network namespace of a process."""

    rank: int
    arguments: Sequence[str]
    environment: Mapping[str, str]
    namespace: int


@dataclass(frozen=True)
class RanksResult:
    """How the ranks ended: exit codes, negative for a signal, of ranks that ended by themselves.

    Ranks that were ended because another one failed, or time was up, are not in `codes`. `seconds`
    begin with the start of the first rank.
    """

    codes: Mapping[int, int]
    seconds: float
    timed_out: bool

    @property
    def failed(self) -> dict[int, int]:
        """The exit codes of the ranks that failed by themselves."""
        return {rank: code for rank, code in self.codes.items() if code}


@dataclass
class _Stream:
    rank: int
    is_error: bool
    pipe: FileIO
    rest: bytes = b""

    def lines(self) -> Iterator[bytes]:
        """Yield the whole lines that can be read; at the end of the output, the last line, too."""
        piece = self.pipe.read(PIECE_BYTES)
        if piece is None:
            return
        *whole, self.rest = (self.rest + piece).split(b"\n")
        yield from whole
        if self.rest and (not piece or len(self.rest) > LONGEST_LINE_BYTES):
            yield self.rest
            self.rest = b""
        if not piece:
            self.pipe.close()


class Ranks:
    """Running commands and their outputs."""

    def __init__(self, namespaces: Sequence[int], on_line: OnLine) -> None:
        self._namespaces, self._on_line = namespaces, on_line
        self._processes = dict[int, "subprocess.Popen[bytes]"]()
        self._selector = selectors.DefaultSelector()
        self._begun_s = time.monotonic()

    def start(self, command: Command) -> None:
        """Start a rank's command."""
        (output, its_output), (errors, its_errors) = _pipe(), _pipe()
        with its_output, its_errors, namespace_of(command.namespace):
            self._processes[command.rank] = subprocess.Popen(
                dies_with_us(command.arguments),
                stdin=subprocess.DEVNULL,
                stdout=its_output,
                stderr=its_errors,
                env=dict(command.environment),
                start_new_session=True,
            )
        for is_error, pipe in ((False, output), (True, errors)):
            stream = _Stream(command.rank, is_error, pipe)
            self._selector.register(pipe, selectors.EVENT_READ, stream)

    def wait(self, timeout_s: float, check: Callable[[], None]) -> RanksResult:
        """Wait until all ranks have ended, one has failed, or time is up; end the others."""
        while not self._are_over(self._seconds() > timeout_s):
            self._read(LOOK_EVERY_S)
            check()
        codes = {
            rank: code
            for rank, process in self._processes.items()
            if (code := process.returncode) is not None
        }
        seconds = self._seconds()
        self.end()
        end_s = time.monotonic() + LAST_LINES_S
        while self._selector.get_map() and time.monotonic() < end_s:
            self._read(LOOK_EVERY_S)
        left = len(codes) < len(self._processes)
        return RanksResult(codes, seconds, timed_out=left and not any(codes.values()))

    def _seconds(self) -> float:
        return time.monotonic() - self._begun_s

    def _are_over(self, time_is_up: bool) -> bool:
        codes = [process.poll() for process in self._processes.values()]
        return time_is_up or None not in codes or any(codes)

    def _read(self, timeout_s: float) -> None:
        if not self._selector.get_map():
            time.sleep(timeout_s)
        for key, _ in self._selector.select(timeout_s):
            stream: _Stream = key.data
            for line in stream.lines():
                self._on_line(stream.rank, stream.is_error, line)
            if stream.pipe.closed:
                self._selector.unregister(stream.pipe)

    def end(self) -> None:
        """Kill all commands and their processes: all in the proxies' networks but the proxies."""
        wait_for(self._is_ended, "end of the ranks' processes", END_DEADLINE_S)
        for process in self._processes.values():
            end(process)

    def _is_ended(self) -> bool:
        left = list(chain.from_iterable(processes_beside(self._namespaces).values()))
        for process_id in left:
            kill(process_id)
        return not left

    def close(self) -> None:
        """End all commands, and close their outputs."""
        self.end()
        for key in list(self._selector.get_map().values()):
            key.data.pipe.close()
        self._selector.close()


def _pipe() -> tuple[FileIO, FileIO]:
    """A pipe: its end to read from, which never blocks, and its end to write to."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(read_end, False)
    return FileIO(read_end, "r"), FileIO(write_end, "w")


@contextmanager
def running_ranks(
    commands: Sequence[Command], namespaces: Sequence[int], on_line: OnLine
) -> Iterator[Ranks]:
    """Start all commands; kill those that still run when the context ends.

    `namespaces` are the process ids of all proxies. All other processes in the proxies' network
    namespaces belong to the ranks, and are killed, too.
    """
    ranks = Ranks(namespaces, on_line)
    try:
        for command in commands:
            ranks.start(command)
        yield ranks
    finally:
        ranks.close()
