"""A QEMU process whose clock counts instructions, and in which nothing of the host is seen.

QEMU's clock counts instructions (`-icount shift=0,sleep=off`: one nanosecond each, idle time is
skipped), so no deadline inside is missed because the processor is slow. Nothing that the guest sees
depends on the host: its random numbers are the same each time, its clock starts at the same date,
its files are in memory, its output goes to serial ports, which take each byte at once, and its
results to memory that the host sees as a file. Two executions of the same job are the same.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Protocol

from linux.processes import dies_with_us, first_line
from testbed.virtual_machine.exchange import RESULTS_MIB, Exchange

QEMU = "qemu-system-x86_64"
MEMORY_MIB = 4096
# A recording that nobody reads. Without it QEMU's threads race: the main thread lets idle time pass
# when the processor halts (icount_start_warp_timer in softmmu/icount.c), sometimes before the
# processor's thread has counted its last instructions. While recording, one of them runs at a time
# (replay_mutex_lock).
CLOCK = "shift=0,sleep=off,rr=record,rrfile=/dev/null"
# The processor's own random numbers would come from the host. Without ERMS, copies take an
# instruction for each 8 bytes, not for each one (rep movsq in arch/x86/lib/memcpy_64.S).
PROCESSOR = "max,-rdrand,-rdseed,-erms"
KERNEL_OPTIONS = (
    "console=ttyS0 quiet loglevel=3 panic=-1 tsc=reliable clocksource=tsc nokaslr norandmaps"
)
DATE = "2026-01-01"


def version() -> str:
    """QEMU's version, in a line; "not installed" if it is missing."""
    return first_line(QEMU, "--version")


class Beginning(Protocol):
    """How a machine begins."""

    def options(self, folder: Path) -> Sequence[str]:
        """QEMU's options for it; `folder` is for files of this execution."""

    def begin(self, process: "Popen[bytes]") -> None:
        """Do what is to be done when QEMU has started."""


@dataclass(frozen=True)
class Boot:
    """The kernel unpacks an initrd into memory, and starts its first process."""

    initrd: Path

    def options(self, folder: Path) -> Sequence[str]:
        """The initrd."""
        return ("-initrd", str(self.initrd))

    def begin(self, process: "Popen[bytes]") -> None:
        """Do nothing: the machine runs."""


@dataclass(frozen=True)
class Machine:
    """A virtual machine: its kernel, how it begins, Railbed's folder inside, its memory."""

    kernel: Path
    beginning: Beginning
    tree: Path
    memory_mib: int = MEMORY_MIB

    @contextmanager
    def running(self, exchange: Exchange) -> Iterator["Popen[bytes]"]:
        """The running machine, which ends with the context at the latest.

        It has its own session: Ctrl-C at the terminal is for Railbed, which ends the machine.
        """
        command = dies_with_us(self.qemu(exchange))
        with Popen(command, 0, stdin=PIPE, stdout=PIPE, start_new_session=True) as process:
            try:
                self.beginning.begin(process)
                yield process
            finally:
                process.kill()

    def qemu(self, exchange: Exchange) -> list[str]:
        """QEMU's command line."""
        files = exchange.handed.items()
        handed = (f"name=opt/railbed/{name},file={file}" for name, file in files)
        init = f"rdinit={self.tree}/testbed/virtual_machine/init"
        return [
            QEMU,
            *("-accel", "tcg", "-icount", CLOCK, "-smp", "1", "-cpu", PROCESSOR),
            *("-seed", "0", "-rtc", f"base={DATE},clock=vm"),
            *("-m", f"{self.memory_mib}M,slots=1,maxmem={self.memory_mib + RESULTS_MIB}M"),
            *("-no-reboot", "-nodefaults", "-no-user-config"),
            *("-device", "isa-debug-exit,iobase=0xf4,iosize=4"),
            *("-display", "none", "-nic", "none"),
            *("-kernel", str(self.kernel), "-append", f"{KERNEL_OPTIONS} {init}"),
            *("-serial", f"file:{exchange.stderr}", "-serial", f"file:{exchange.stdout}"),
            # A disk would answer when the host does, and the BIOS would wait for it.
            *("-machine", "pc,nvdimm=on", "-device", "nvdimm,memdev=results"),
            "-object",
            f"memory-backend-file,id=results,share=on,mem-path={exchange.results},"
            f"size={RESULTS_MIB}M",
            *(word for file in handed for word in ("-fw_cfg", file)),
            *self.beginning.options(exchange.folder),
        ]
