"""Receive packet steering (networking/scaling.rst of the kernel): packets of a flow stay in order.

An end of a veth pair gives each packet to the core that sent it. If several cores send packets of
one flow, those of a busy core are overtaken. Packet steering gives all packets of an interface to
one core.
"""

import ctypes
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from linux.network.namespaces import checked, namespace_of
from model.errors import EmulationError

CLONE_NEWNS = 0x20000
MS_REMOUNT, MS_REC, MS_PRIVATE, MNT_DETACH = 32, 0x4000, 1 << 18, 2
SYSFS = Path("/sys")
WORD_BITS = 32
_libc = ctypes.CDLL(None, use_errno=True)


def steer_packets(cores: Mapping[int, Mapping[str, int]]) -> None:
    """Give all packets that arrive at an interface to one core.

    `cores` has the core of each interface, by a process in its network namespace; one that has
    ended is left out. A kernel without packet steering has no such setting.
    """
    # The thread has mounts of its own, and ends with them.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(_steer, cores).result()


def _steer(cores: Mapping[int, Mapping[str, int]]) -> None:
    checked(_libc.unshare(CLONE_NEWNS), "unshare")
    checked(_libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "mount")
    for process_id, of_interfaces in cores.items():
        with suppress(EmulationError), namespace_of(process_id), _own_sysfs():
            for name, core in of_interfaces.items():
                for setting in (SYSFS / "class/net" / name).glob("queues/rx-*/rps_cpus"):
                    setting.write_text(core_mask(core))


@contextmanager
def _own_sysfs() -> Iterator[None]:
    """Mount sysfs(5) with the interfaces of the present network namespace."""
    place = bytes(SYSFS)
    checked(_libc.mount(b"sysfs", place, b"sysfs", 0, None), "mount")
    try:
        # A container's own mount made the file system read-only, and remains so itself.
        checked(_libc.mount(None, place, None, MS_REMOUNT, None), "mount")
        yield
    finally:
        checked(_libc.umount2(place, MNT_DETACH), "umount2")


def core_mask(core: int) -> str:
    """Return a set of one core as the kernel writes it: words of 32 bits, the highest first."""
    word, bit = divmod(core, WORD_BITS)
    return ",".join([f"{1 << bit:08x}", *["00000000"] * word])
