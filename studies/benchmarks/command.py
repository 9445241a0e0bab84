"""A Railbed command as a process of its own: its processes, output and leftovers."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from linux.files.program_files import ROOT
from linux.processes.lifetime import dies_with_us, end, kill
from linux.processes.run_lock import RUNS
from testbed.nodes.docker_engine import containers_of

PROGRAM = (sys.executable, "-P", "-m", "commands")
MARK = "RAILBED_SOAK"
LOOK_AGAIN_S = 0.1
INTERFACES = Path("/sys/class/net")
# Kinds of processes by a word of their command line.
KINDS = {
    "controller": "controller",
    "traffic_gen.probes.prober": "prober",
    "testbed.host.cleanup": "reaper",
    "launcher.py": "launcher",
    "agent.pyz": "agent",
    "pause_watcher.py": "pause watcher",
    "noise_maker.py": "noise maker",
}


@dataclass
class Command:
    """A command under way: every process that it starts inherits its mark."""

    arguments: Sequence[str]
    folder: Path
    begun_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        """Start the command in `folder`, with its outputs in files there."""
        self._mark = f"{os.getpid()}-{self.begun_s}"
        self.log = self.folder / "said.txt"
        self._interfaces = _interfaces()
        with self.log.open("wb") as said:
            self._process = subprocess.Popen(
                # Where the soak ignores SIGHUP, as under nohup(1), the command does not.
                dies_with_us(["env", "--default-signal", *PROGRAM, *self.arguments]),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), MARK: self._mark},
            )

    @property
    def process_id(self) -> int:
        """The process id of the program."""
        return self._process.pid

    def wait(self, seconds: float) -> int | None:
        """Wait for the program's exit code; `None` if it does not end in time."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def wait_for_a_part(self, seconds: float) -> None:
        """Wait until the program has started a process, or has ended."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s and not _marked(self._mark)[1:]:
            if self.wait(LOOK_AGAIN_S) is not None:
                return

    def parts(self) -> dict[int, str]:
        """All other processes of the command that have not ended, by id, with their names."""
        names = {one: _name(one) for one in _marked(self._mark) if one != self.process_id}
        return {one: name for one, name in (names | self._in_containers()).items() if name}

    def _in_containers(self) -> dict[int, str]:
        pids = containers_of(f"-{self.process_id}-").values()
        return {pid: f"{_name(pid)} in a container" for pid in pids if pid and _name(pid)}

    def end(self) -> None:
        """Kill what has not ended by itself."""
        for process_id in (self.process_id, *self.parts()):
            kill(process_id)
        end(self._process)

    def left(self) -> list[str]:
        """Leftovers of the command: processes, containers, interfaces of the machine."""
        containers = [f"container {name}" for name in containers_of(f"-{self.process_id}-")]
        processes = [f"process {name}" for name in self.parts().values()]
        interfaces = [f"interface {name}" for name in _interfaces() - self._interfaces]
        return containers + processes + interfaces

    def gone_after_s(self, at_most_s: float) -> tuple[float, list[str]]:
        """Wait until the command has no leftovers; return the seconds, and the last leftovers."""
        begun_s = time.monotonic()
        while (left := self.left()) and time.monotonic() - begun_s < at_most_s:
            time.sleep(LOOK_AGAIN_S)
        return time.monotonic() - begun_s, left

    def folders(self) -> list[str]:
        """The command's leftovers in the folder of runs."""
        return [entry.name for entry in RUNS.iterdir() if f"-{self.process_id}-" in entry.name]

    def said(self) -> str:
        """The whole output of the command."""
        return self.log.read_text(errors="replace")

    def last_line(self) -> str:
        """The last line that the command has printed."""
        return (self.said().strip().splitlines() or [""])[-1]


def _interfaces() -> frozenset[str]:
    return frozenset(entry.name for entry in INTERFACES.iterdir())


def _marked(mark: str) -> list[int]:
    wanted, marked = f"{MARK}={mark}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                marked.append(int(entry.name))
    return marked


def _name(process_id: int) -> str:
    """Return the name of a process; empty if it has ended or is a zombie."""
    place = Path(f"/proc/{process_id}")
    try:
        if (place / "stat").read_text().rpartition(") ")[2].startswith("Z"):
            return ""
        name = (place / "comm").read_text().strip()
        words = (place / "cmdline").read_text().split("\0")
    except OSError:
        return ""
    kinds = (KINDS.get(word, KINDS.get(Path(word).name)) for word in words)
    kind = next(filter(None, kinds), name)
    # An agent is forked by the launcher, and has its command line, but the name of a GPU.
    return "agent" if kind == "launcher" and not name.startswith("python") else kind
