"""A snapshot: a machine that has booted, and waits for its job.

Its first process stops it before the host's files are read (`init`), by a byte to the port of a
pvpanic device (docs/specs/pvpanic.txt of QEMU), so it is stopped at the same instruction wherever
it is made, and two snapshots of the same machine are the same. The machine's memory is a file, and
all else a "snapshot" of QEMU within an empty disk that the machine does not see. A machine that
goes on from there maps the memory, and keeps its changes to itself.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from subprocess import DEVNULL, Popen, run

from linux.processes import last_words
from model.errors import EmulationError
from testbed.virtual_machine import monitor
from testbed.virtual_machine.exchange import Exchange
from testbed.virtual_machine.machine import MEMORY_MIB, Boot, Machine
from testbed.virtual_machine.monitor import Monitor
from testbed.virtual_machine.work_folder import work_folder

NAME = "ready"
# The device is there when the machine goes on, too: a snapshot has all devices of its machine.
STOPPER = ("-device", "pvpanic,ioport=0x505", "-action", "panic=pause")
# The first cluster of a disk in the format qcow2 is its header, followed by the table of reference
# counts, their first block, and the table L1 (docs/interop/qcow2.txt of QEMU).
HEADER, TABLE, COUNTS = struct.Struct(">4sIQIIQIIQQIIQ"), struct.Struct(">Q"), struct.Struct(">4H")
CLUSTER_BITS, DISK_BYTES = 16, 2**20
CLUSTER_BYTES = 2**CLUSTER_BITS


@dataclass(frozen=True)
class Snapshot:
    """The files of a snapshot; also a machine's beginning."""

    folder: Path

    @property
    def memory(self) -> Path:
        """The machine's memory."""
        return self.folder / "memory"

    @property
    def state(self) -> Path:
        """The state of all else, in an empty disk."""
        return self.folder / "state.qcow2"

    def options(self, folder: Path) -> Sequence[str]:
        """The memory, to be changed in this machine alone, and a copy of the state."""
        copyfile(self.state, folder / self.state.name)
        return ("-S", *_options(self.memory, folder / self.state.name, shared=False))

    def begin(self, process: "Popen[bytes]") -> None:
        """Load the state, and let the machine go on."""
        told = _monitor(process)
        told.command_line(f"loadvm {NAME}")
        told.execute("cont")


@dataclass(frozen=True)
class _Making:
    """A boot whose memory is the file of a snapshot."""

    boot: Boot
    snapshot: Snapshot

    def options(self, folder: Path) -> Sequence[str]:
        files = _options(self.snapshot.memory, self.snapshot.state, shared=True)
        return (*self.boot.options(folder), *files)

    def begin(self, process: "Popen[bytes]") -> None:
        told = _monitor(process)
        told.wait_for("STOP")
        told.command_line(f"savevm {NAME}")
        told.execute("quit")


def make_snapshot(kernel: Path, initrd: Path, tree: Path, target: Path) -> None:
    """Boot a machine, and write its snapshot into a folder."""
    snapshot = Snapshot(target)
    write_empty_disk(snapshot.state)
    with work_folder() as folder:
        exchange = Exchange(folder)
        exchange.put({})
        making = Machine(kernel, _Making(Boot(initrd), snapshot), tree)
        try:
            with making.running(exchange) as process:
                process.wait()
        except EmulationError as error:
            raise EmulationError(f"{error}:\n{last_words(exchange.stderr)}") from error
    # On a file system without holes, the zeros stay.
    run(["fallocate", "--dig-holes", snapshot.memory], stderr=DEVNULL, check=False)


def _options(memory: Path, state: Path, *, shared: bool) -> Sequence[str]:
    backend = f"memory-backend-file,id=memory,mem-path={memory},size={MEMORY_MIB}M"
    return (
        *STOPPER,
        *monitor.OPTIONS,
        *("-object", f"{backend},share={'on' if shared else 'off'}"),
        *("-machine", "memory-backend=memory"),
        *("-drive", f"file={state},if=none,id=state"),
    )


def _monitor(process: "Popen[bytes]") -> Monitor:
    """A monitor whose snapshots leave memory out that is a shared file."""
    told = Monitor(process)
    without_memory = {"capability": "x-ignore-shared", "state": True}
    told.execute("migrate-set-capabilities", capabilities=[without_memory])
    return told


def write_empty_disk(place: Path) -> None:
    """Write a disk of the format qcow2 that has nothing in it."""
    table_at, counts_at, l1_at = (cluster * CLUSTER_BYTES for cluster in (1, 2, 3))
    sizes = (CLUSTER_BITS, DISK_BYTES, 0, 1, l1_at, table_at, 1, 0, 0)
    with place.open("wb") as disk:
        disk.write(HEADER.pack(b"QFI\xfb", 2, 0, 0, *sizes))
        disk.seek(table_at)
        disk.write(TABLE.pack(counts_at))
        disk.seek(counts_at)
        disk.write(COUNTS.pack(1, 1, 1, 1))
        disk.truncate(l1_at + CLUSTER_BYTES)
