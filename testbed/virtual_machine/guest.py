"""A virtual machine with stock Debian 12 and its kernel, to run one command in a copy of a tree.

QEMU's clock counts instructions (`-icount shift=0,sleep=off`: one nanosecond each, idle time is
skipped), so no deadline inside is missed because the processor is slow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from tempfile import TemporaryDirectory

from linux.processes import dies_with_us, last_words
from model.errors import EmulationError
from testbed.virtual_machine.exchange import Exchange
from testbed.virtual_machine.image import TOOLS, Image

QEMU = TOOLS[0]
KERNEL_COMMAND_LINE = (
    "console=ttyS0 quiet loglevel=3 panic=-1 rdinit=/sbin/railbed-init tsc=reliable clocksource=tsc"
)
STDERR = 2


@dataclass(frozen=True)
class Guest:
    """A virtual machine, which `execute` boots."""

    image: Image
    memory_mib: int = 4096
    # The root of the proxies' image, for a Docker Engine inside.
    proxy_root: Path | None = None

    def execute(self, tree: Path, command: Sequence[str], back: Path) -> int:
        """Boot, execute a command in a copy of `tree`, print its output; return its exit code.

        The copy has the same path inside; its folder `runs` is extracted into `back` afterwards.
        Raises `EmulationError` if the machine ends before the command does.
        """
        with TemporaryDirectory(prefix="railbed-guest-") as folder:
            exchange, console = Exchange(Path(folder)), Path(folder, "console.log")
            exchange.put(self.image.system, tree, command, self.proxy_root)
            # The guest's output goes through `cat`, which writes to streams of any kind.
            with (
                Popen(["cat"], stdin=PIPE) as out,
                Popen(["cat"], stdin=PIPE, stdout=STDERR) as err,
            ):
                streams = {"stdout": _descriptor(out), "stderr": _descriptor(err)}
                self._boot(exchange, console, streams)
            exit_code = exchange.take(back)
            if exit_code is None:
                said = last_words(console)
                raise EmulationError(f"virtual machine: it ended before its command did:\n{said}")
            return exit_code

    def _boot(self, exchange: Exchange, console: Path, streams: dict[str, int]) -> None:
        """Start the machine and wait until it shuts down by itself."""
        command = dies_with_us(self._qemu(exchange, console, streams))
        with Popen(command, stdin=DEVNULL, pass_fds=streams.values()) as machine:
            try:
                machine.wait()
            finally:
                machine.kill()

    def _qemu(self, exchange: Exchange, console: Path, streams: dict[str, int]) -> list[str]:
        handed = (f"name=opt/railbed/{name},file={file}" for name, file in exchange.handed.items())
        return [
            QEMU,
            *("-accel", "tcg", "-icount", "shift=0,sleep=off", "-smp", "1", "-cpu", "max"),
            *("-m", str(self.memory_mib), "-no-reboot", "-nodefaults", "-no-user-config"),
            *("-display", "none", "-nic", "none", "-serial", f"file:{console}"),
            *("-kernel", str(self.image.kernel), "-initrd", str(exchange.initrd)),
            *("-append", KERNEL_COMMAND_LINE),
            *("-device", "virtio-serial"),
            *(word for stream in streams.items() for word in _port(*stream)),
            *("-drive", f"file={exchange.results},if=virtio,format=raw"),
            *(word for file in handed for word in ("-fw_cfg", file)),
        ]


def _descriptor(process: "Popen[bytes]") -> int:
    """The descriptor of a process's standard input."""
    if process.stdin is None:
        raise EmulationError("virtual machine: nobody reads what it says")
    return process.stdin.fileno()


def _port(stream: str, descriptor: int) -> tuple[str, ...]:
    """QEMU options for a serial port of the guest, named for the stream that it writes to."""
    back = f"file,id={stream},path=/dev/fd/{descriptor},append=on"
    return "-chardev", back, "-device", f"virtserialport,chardev={stream},name={stream}"
