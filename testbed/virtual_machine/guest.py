"""A virtual machine with stock Debian and its kernel, which executes one job, a shell script.

QEMU's clock counts instructions (`-icount shift=0,sleep=off,rr=record`: one nanosecond each, idle
time is skipped, one of QEMU's threads runs at a time), so no deadline inside is missed because the
processor is slow. Nothing that the guest sees depends on the host: its random numbers are the same
each time, its clock starts at the same date, its files are in memory, it writes its output to
serial ports, which take each byte at once, and its results to memory that the host sees as a file.
Two executions of the same job are the same.
"""

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired

from linux.files.user_files import work_folder
from linux.machine.resources import full
from linux.processes.lifetime import dies_with_us, end, first_line, last_message
from model.errors import EmulationError
from model.sweep import CLOCK_VARIABLE
from testbed.virtual_machine.image import Suite, append, image, proxy_root, write_initrd

QEMU = "qemu-system-x86_64"
# A recording that nobody reads: without it, QEMU's threads race. The main thread lets idle time
# pass when the processor halts (icount_start_warp_timer in softmmu/icount.c), sometimes before the
# processor's thread has counted its last instructions. While recording, one of them runs at a time
# (replay_mutex_lock).
CLOCK = "shift=0,sleep=off,rr=record,rrfile=/dev/null"
# The processor's own random numbers would come from the host. Without ERMS, copies take an
# instruction for each 8 bytes, not for each one (rep movsq in arch/x86/lib/memcpy_64.S). FSRM,
# which newer releases of QEMU have, is left out, too: with FSRM alone, Linux 6.1 does not boot.
PROCESSOR = "max,-rdrand,-rdseed,-erms,-fsrm"
# Debian's kernel clears memory that it allocates (init_on_alloc): a quarter of the cost of sending.
# With huge pages, khugepaged collapses pages every 10 s, for up to 10 ms, and proxies wait.
KERNEL_OPTIONS = (
    "console=ttyS0 quiet loglevel=3 panic=-1 tsc=reliable clocksource=tsc nokaslr norandmaps"
    " init_on_alloc=0 transparent_hugepage=never"
)
DATE = "2026-01-01"
POLL_S = 0.1
# Size of the memory to which the guest writes its results; docs/guides/virtual-machine.md has it.
RESULTS_MIB = 1024
# The slowest commands of the documentation take hours.
MOST_S = 24 * 3600
# Kernel modules that a machine with udev loads by itself.
MODULES = ("tun", "openvswitch", "sch_htb", "cls_u32", "veth", "bridge")
# Open vSwitch does not count the processors before the machine is up for ten seconds: a daemon that
# starts earlier has no thread for packets that its kernel part does not know (count_total_cores in
# lib/ovs-thread.c of Open vSwitch 3.1). Idle time costs nothing.
UP_FOR_A_WHILE = "sleep 10"
# The image's environment stands where the program looks for its own.
ENVIRONMENT = "[ -e .venv ] || ln -s /railbed/.venv ."
LOAD_MODULES = f"modprobe -a {' '.join(MODULES)}"


def version() -> str:
    """QEMU's version, in a line; "not installed" if it is missing."""
    return first_line(QEMU, "--version")


class Exchange:
    """Files exchanged with the guest: a job as input; output, exit code and runs come out.

    `handed` are the files that the guest gets, by name: the shell script `job`, and `files` with
    these texts. `results` is memory of the guest, as a file, to which it writes a tar archive.
    `stderr` has the kernel's last words, too.
    """

    def __init__(self, folder: Path, job: str, files: Mapping[str, str]) -> None:
        self.folder = folder
        self.results = folder / "results"
        self.stdout, self.stderr = folder / "stdout", folder / "stderr"
        texts = {"job": job, **files}
        self.handed = {name: folder / "handed" / name for name in sorted(texts)}
        (folder / "handed").mkdir()
        for name, file in self.handed.items():
            file.write_text(texts[name])
        for stream in (self.stdout, self.stderr):
            stream.touch()
        with self.results.open("wb") as results:
            results.truncate(RESULTS_MIB * 2**20)

    def take(self, back: Path) -> int | None:
        """Extract the runs into the folder `back`; return the exit code, None without a result.

        Raises `EmulationError` if the runs are too large, or cannot be written.
        """
        tar = ["tar", "--warning=no-timestamp", "--file", str(self.results)]
        into = ["--extract", "--directory", str(self.folder)]
        if subprocess.run([*tar, *into, "--occurrence", "exit-code"], stderr=DEVNULL).returncode:
            return None
        exit_code = int((self.folder / "exit-code").read_text())
        listed = subprocess.run([*tar, "--list"], stdout=subprocess.PIPE, stderr=DEVNULL).stdout
        if listed.splitlines()[-1] != b"exit-code":
            raise _lost(f"they have more than {RESULTS_MIB} MiB", exit_code)
        runs = [*tar, "--extract", "--no-same-owner", "--directory", str(back), "runs"]
        extracted = subprocess.run(runs, stderr=subprocess.PIPE, text=True, errors="replace")
        if extracted.returncode != 0:
            raise _lost(extracted.stderr.strip(), exit_code)
        return exit_code


def _lost(why: str, exit_code: int) -> EmulationError:
    ended = f"its job ended with exit code {exit_code}"
    return EmulationError(f"virtual machine: its runs are lost: {why}; {ended}")


@dataclass(frozen=True)
class Ended:
    """How a job has ended: its exit code, its standard output, its last message on the other."""

    exit_code: int
    output: bytes
    message: str


@dataclass(frozen=True)
class Guest:
    """A virtual machine: its kernel, its initrd, and Railbed's folder inside."""

    kernel: Path
    initrd: Path
    tree: Path
    memory_mib: int = 4096

    def execute(
        self,
        job: str,
        files: Mapping[str, str],
        back: Path,
        *,
        shows_output: bool = True,
        silent: Collection[int] = (),
    ) -> Ended:
        """Boot, execute a shell script in the tree; return how it has ended.

        Standard output is passed on while the job runs if `shows_output`. Standard error is, too;
        with `silent` exit codes, it is shown at the end, unless the job ends with one of these. The
        folder `runs` of the tree is extracted into `back` afterwards. Raises `EmulationError` if
        the machine ends before the job does, and `BrokenPipeError` if nobody reads what is passed
        on.
        """
        with work_folder() as folder:
            exchange = Exchange(folder, job, files)
            with self._machine(exchange) as machine:
                streams = ((exchange.stderr, 2, not silent), (exchange.stdout, 1, shows_output))
                followers = [_follow(file, to, machine) for file, to, shown in streams if shown]
                _await_end(machine, followers)
            for follower in followers:
                follower.wait()
            # What a killed machine has written of its results may lack some.
            exit_code = exchange.take(back) if machine.returncode >= 0 else None
            if silent and exit_code not in silent:
                sys.stderr.write(exchange.stderr.read_text(errors="replace"))
            if exit_code is None:
                what = f"virtual machine: {_early_end(machine.returncode)}"
                raise EmulationError(": ".join(filter(None, (what, full([folder.parent])))))
            return Ended(exit_code, exchange.stdout.read_bytes(), last_message(exchange.stderr))

    @contextmanager
    def _machine(self, exchange: Exchange) -> Iterator["Popen[bytes]"]:
        """The running machine, which ends with the context at the latest.

        It has its own session: Ctrl-C at the terminal is for Railbed, which ends the machine.
        """
        command = dies_with_us(self._qemu(exchange))
        machine = Popen(command, stdin=DEVNULL, start_new_session=True)
        try:
            yield machine
        finally:
            end(machine)

    def _qemu(self, exchange: Exchange) -> list[str]:
        files = exchange.handed.items()
        handed = (f"name=opt/railbed/{name},file={_value(file)}" for name, file in files)
        # The kernel takes the quotes away, and a space inside for a part of the path (next_arg).
        init = f'rdinit="{self.tree}/testbed/virtual_machine/init"'
        return [
            QEMU,
            *("-accel", "tcg", "-icount", CLOCK, "-smp", "1", "-cpu", PROCESSOR),
            *("-seed", "0", "-rtc", f"base={DATE},clock=vm"),
            *("-m", f"{self.memory_mib}M,slots=1,maxmem={self.memory_mib + RESULTS_MIB}M"),
            *("-no-reboot", "-nodefaults", "-no-user-config"),
            *("-device", "isa-debug-exit,iobase=0xf4,iosize=4"),
            *("-display", "none", "-nic", "none"),
            *("-kernel", str(self.kernel), "-initrd", str(self.initrd)),
            *("-append", f"{KERNEL_OPTIONS} {init}"),
            *("-serial", f"file:{exchange.stderr}", "-serial", f"file:{exchange.stdout}"),
            # A disk would answer when the host does, and the BIOS would wait for it.
            *("-machine", "pc,nvdimm=on", "-device", "nvdimm,memdev=results"),
            "-object",
            f"memory-backend-file,id=results,share=on,mem-path={_value(exchange.results)},"
            f"size={RESULTS_MIB}M",
            *(word for file in handed for word in ("-fw_cfg", file)),
        ]


def _value(path: Path) -> str:
    """A path as the value of a key, in which QEMU takes two commas for one."""
    return str(path).replace(",", ",,")


def _await_end(machine: "Popen[bytes]", followers: Sequence["Popen[bytes]"]) -> None:
    """Wait until the machine has ended; raise `EmulationError` after `MOST_S`."""
    end_s = time.monotonic() + MOST_S
    while machine.poll() is None:
        if any(follower.poll() == -signal.SIGPIPE for follower in followers):
            raise BrokenPipeError("nobody reads the output of the virtual machine")
        if time.monotonic() > end_s:
            raise EmulationError(f"virtual machine: did not end within {MOST_S / 3600:g} h")
        with suppress(TimeoutExpired):
            machine.wait(POLL_S)


def _early_end(exit_code: int) -> str:
    """How a machine without a result has ended; a process that a signal ends is below zero."""
    if exit_code < 0:
        return f"was killed by signal {-exit_code} ({signal.strsignal(-exit_code)})"
    return "ended before its job"


def _follow(file: Path, stream: int, machine: "Popen[bytes]") -> "Popen[bytes]":
    """Copy a growing file to a stream of this process until the machine has ended."""
    tail = ["tail", "--bytes=+1", "--follow", f"--sleep-interval={POLL_S}", f"--pid={machine.pid}"]
    return Popen(dies_with_us([*tail, str(file)]), stdin=DEVNULL, stdout=stream)


def command_job(command: Sequence[str], proxy_root: Path | None = None) -> str:
    """A job that executes a command; with the proxies' root, beside a Docker Engine."""
    docker = (
        "export RAILBED_NO_DOCKER=1"
        if proxy_root is None
        else f"RAILBED_PROXY_ROOT={shlex.quote(str(proxy_root))} testbed/provision.sh"
    )
    return f"{LOAD_MODULES}\n{UP_FOR_A_WHILE}\n{ENVIRONMENT}\n{docker}\n{shlex.join(command)}\n"


def program_job(arguments: Sequence[str], seed: int) -> str:
    """A job that executes Railbed with arguments; `$RAILBED_HANDED` may be a part of one.

    `seed` is that of the machine's random numbers. Addresses and hashes are the same in every
    execution, so that memory is used in the same way.
    """
    words = " ".join(f'"{argument}"' for argument in arguments)
    return (
        f"{LOAD_MODULES}\n{UP_FOR_A_WHILE}\n"
        "echo 0 >/proc/sys/kernel/randomize_va_space\n"
        f"export RAILBED_NO_DOCKER=1 PYTHONHASHSEED=0 PYTHONPATH=$PWD {CLOCK_VARIABLE}=virtual\n"
        f"python3 testbed/virtual_machine/seed.py {seed}\n"
        f".venv/bin/python -P -m commands {words}\n"
    )


def execute_in_copy(
    tree: Path,
    command: Sequence[str],
    back: Path,
    *,
    suite: Suite = Suite.BOOKWORM,
    memory_mib: int = 4096,
    docker: bool = False,
) -> int:
    """Execute a command in a copy of Railbed's folder `tree`; return its exit code.

    The copy has the same path inside, and the Python environment of Debian's `suite`; its folder
    `runs` is extracted into `back` afterwards. With `docker` a Docker Engine runs inside.
    """
    system = image(suite)
    proxies = proxy_root() if docker else None
    with work_folder() as folder:
        initrd = folder / "initrd"
        if proxies is None:
            write_initrd(initrd, [system.archive], [tree])
        else:
            write_initrd(initrd, [system.archive, system.engine], [tree, proxies.parent])
        with initrd.open("ab") as archive:
            append(archive, system.python, system.environment)
        guest = Guest(system.kernel, initrd, tree, memory_mib)
        return guest.execute(command_job(command, proxies), {}, back).exit_code
