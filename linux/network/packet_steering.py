"""Receive packet steering (networking/scaling.rst of the kernel): packets of a flow stay in order.

An end of a veth pair gives each packet to the core that sent it. If several cores send packets of
one flow, those of a busy core are overtaken. With packet steering, the flow's hash selects the
core.
"""

import ctypes
import os
from collections.abc import Collection, Iterator, Mapping
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


def steer_packets(interfaces: Mapping[int, Collection[str]]) -> None:
    """Steer packets that arrive at these interfaces, over all cores that this process may use.

    Interfaces are named by a process in their network namespace. Does nothing on a single core, and
    for processes that have ended. A kernel without packet steering has no such setting.
    """
    cores = os.sched_getaffinity(0)
    if len(cores) > 1:
        # The thread has mounts of its own, and ends with them.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(_steer, interfaces, core_mask(cores)).result()


def _steer(interfaces: Mapping[int, Collection[str]], mask: str) -> None:
    checked(_libc.unshare(CLONE_NEWNS), "unshare")
    checked(_libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "mount")
    for process_id, names in interfaces.items():
        with suppress(EmulationError), namespace_of(process_id), _own_sysfs():
            for name in names:
                for setting in (SYSFS / "class/net" / name).glob("queues/rx-*/rps_cpus"):
                    setting.write_text(mask)


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


def core_mask(cores: Collection[int]) -> str:
    """Return a set of cores as the kernel writes it: words of 32 bits, the highest first."""
    bits = sum(1 << core for core in cores)
    words = range(max(cores) // WORD_BITS, -1, -1)
    return ",".join(f"{bits >> (WORD_BITS * word) & 0xFFFFFFFF:08x}" for word in words)
