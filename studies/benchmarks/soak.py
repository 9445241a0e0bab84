"""Soak: fabrics come up and go down for minutes, are killed, broken and asked for nonsense.

After each round, the machine is searched for leftovers.
"""

import gc
import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from linux.files.program_files import MODULES_HERE, module_command
from linux.processes.lifetime import dies_with_us, end, kill
from linux.processes.run_lock import RUNS
from model.errors import EXIT_INTERRUPTED, InputError
from model.fabric.spec import COMPARED
from studies.benchmarks.costs import MIB
from studies.benchmarks.fabrics import bench_fabric
from studies.benchmarks.rows import Row, sized
from testbed.nodes.docker_engine import containers_of
from testbed.nodes.gpu_proxies import ProxyKind


def _settings(*settings: str) -> tuple[str, ...]:
    return tuple(word for setting in settings for word in ("--set", setting))


TINY = ("fabric.kinds=rail-only", "fabric.domains=2", "fabric.domain_size=2")
ONCE = ("repeats=1", "warmup=0")
SHORT = (f"workloads.{number}.size_scale={scale}" for number, scale in enumerate((4000, 40, 40)))
SMALL = _settings(*TINY, *ONCE, *SHORT)
FAULTY = _settings(*TINY, *ONCE, "workloads.0.size_scale=1600")
SHORT_RUNS = {"quickstart": SMALL, "nic-link-down": FAULTY}
BAD_INPUT = (
    ("check", "nowhere.yaml"),
    ("check", "quickstart", "--set", "fabric.domains=0"),
    ("run", "quickstart", "--set", "fabric.domain=3"),
    ("run", "quickstart", "--proxies", "balloon"),
    ("check", "quickstart", "--set", "workloads=["),
    ("show", "never"),
    ("runn",),
)
# Findings of a round, in the order in which it looks for them.
SOUGHT = (
    "hangs",
    "tracebacks",
    "wrong exit codes",
    "rounds with something left",
    "folders left after the next command",
    "next commands that failed",
)
# Nothing may be left after `GONE_S`; a program that has not ended `END_S` after a signal hangs.
GONE_S, END_S, WHOLE_S = 10.0, 25.0, 180.0
# Latest moment of a signal, in seconds since the run's start or since its first process.
MOMENTS_S = 8.0
# Signals that take a program down in order.
IN_ORDER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PROGRAM = module_command("commands")
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
                env={**os.environ, **MODULES_HERE, MARK: self._mark},
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


@dataclass
class Soak:
    """A soak under way: its random numbers, and counts of its actions and findings."""

    random: random.Random
    folder: Path
    counts: Counter[str] = field(default_factory=Counter)
    under_way: Command | None = None

    def rounds(self, end_s: float) -> Iterator[Row]:
        """Yield a row for each round until the end, or an interruption."""
        try:
            while time.monotonic() < end_s:
                yield self._round()
        except KeyboardInterrupt:
            if self.under_way:
                self.under_way.end()

    def _round(self) -> Row:
        """Do something; kills are the most frequent, as their moments are many."""
        (what,) = self.random.choices(
            [self._kill, self._whole, self._bad_input, self._up_and_down], [20, 1, 1, 1]
        )
        return what()

    def _whole(self) -> Row:
        command, run = self._run()
        return self._looked_at(command, run, command.wait(WHOLE_S), wanted=(0, 1, 4))

    def _run(self) -> tuple[Command, str]:
        """Start any run; return its name, too."""
        run = self.random.choice(["quickstart", "quickstart", "nic-link-down"])
        proxies = self.random.choice([kind.value for kind in ProxyKind])
        command = self._started("run", run, *SHORT_RUNS[run], "--proxies", proxies)
        return command, f"{run}, {proxies}"

    def _started(self, *arguments: str) -> Command:
        self.under_way = Command(arguments, self.folder)
        return self.under_way

    def _kill(self) -> Row:
        """Send a signal to a process of a run at a random moment."""
        command, run = self._run()
        # A busy machine imports the program for seconds, in which there is nothing to leave behind.
        since = self.random.choice(["the start", "the first part", "the first part"])
        if since == "the first part":
            command.wait_for_a_part(WHOLE_S)
        moment_s = self.random.uniform(0, MOMENTS_S)
        code = command.wait(moment_s)
        victim, name = self._victim(command)
        is_program = victim == command.process_id
        number = self.random.choice(
            [signal.SIGKILL] * 4 + ([*IN_ORDER] if is_program else [signal.SIGSTOP])
        )
        if code is None:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(victim, number)
            self.counts[f"{number.name} to {name}"] += 1
            code = command.wait(END_S)
        wanted = _codes(number) if is_program else (0, 1, 4)
        what = f"{number.name} to {name} {moment_s:.2f} s after {since} of {run}"
        return self._looked_at(command, what, code, (*wanted, 0, 1))

    def _victim(self, command: Command) -> tuple[int, str]:
        """Half of the time the program, else one of its parts, each kind as likely."""
        parts = command.parts()
        if not parts or self.random.random() < 0.5:
            return command.process_id, "program"
        name = self.random.choice(sorted(set(parts.values())))
        return self.random.choice(sorted(one for one in parts if parts[one] == name)), name

    def _bad_input(self) -> Row:
        arguments = self.random.choice(BAD_INPUT)
        command = self._started(*arguments)
        return self._looked_at(
            command, " ".join(arguments), command.wait(END_S), (InputError.exit_code,)
        )

    def _up_and_down(self) -> Row:
        """Bring a fabric up and down in this very process."""
        kind, proxies = self.random.choice(COMPARED), self.random.choice(list(ProxyKind))
        begun_s = time.monotonic()
        with bench_fabric(kind.value, sized(2, 4), proxies):
            pass
        self.counts["rounds"] += 1
        took_s = time.monotonic() - begun_s
        return {"did": f"{kind}, {proxies}, up and down", "took_s": took_s, **own_size()}

    def _looked_at(
        self, command: Command, did: str, code: int | None, wanted: tuple[int, ...]
    ) -> Row:
        """Look at the machine, execute the next command, and look at the folder of runs."""
        took_s = time.monotonic() - command.begun_s
        gone_s, left = (0.0, ["all of it"]) if code is None else command.gone_after_s(GONE_S)
        command.end()
        said, last = command.said(), command.last_line()
        following = self._started("clean")
        next_code = following.wait(END_S)
        states = (
            code is None,
            "Traceback" in said or "a bug in Railbed" in said,
            code is not None and code not in wanted,
            bool(left),
            bool(command.folders()),
            next_code != 0,
        )
        wrong = [name for name, is_so in zip(SOUGHT, states, strict=True) if is_so]
        self.counts.update(["rounds", *wrong])
        row = {"did": did, "took_s": took_s, "exit": code, "gone_s": gone_s}
        seen = {"wrong": wrong, "left": left, "said": last, "next": following.last_line()}
        return row | seen if wrong else row


def _codes(number: int) -> tuple[int, ...]:
    """The exit codes of a program that got a signal: before it listens, the kernel's.

    Interrupted in an `eval`, Python ends itself by SIGINT after all, which shells call 130, too.
    """
    return (-number,) if number == signal.SIGKILL else (EXIT_INTERRUPTED, -signal.SIGINT, -number)


def own_size() -> Row:
    """Memory and descriptors of this process, which has brought fabrics up and down."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "resident_mib": pages * os.sysconf("SC_PAGE_SIZE") / MIB,
        "descriptors": len(list(Path("/proc/self/fd").iterdir())) - 1,
    }


def soak(_store: Path, minutes: float, seed: int) -> Iterator[Row]:
    """Soak for minutes, or until Ctrl-C; the last row counts actions and findings."""
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="railbed-soak-") as folder:
        soaked = Soak(random.Random(seed), Path(folder))
        yield from soaked.rounds(begun_s + 60 * minutes)
    yield summary(soaked.counts, (time.monotonic() - begun_s) / 60, seed)


def summary(counts: Counter[str], minutes: float, seed: int) -> Row:
    """The last row: signals sent, everything sought, and the size of this process."""
    signals = {name: count for name, count in sorted(counts.items()) if name.startswith("SIG")}
    sought = {name: counts[name] for name in SOUGHT}
    return {
        "minutes": minutes,
        "seed": seed,
        "rounds": counts["rounds"],
        "signals": sum(signals.values()),
        **signals,
        **sought,
        **own_size(),
        "judged_right": not any(sought.values()),
    }
