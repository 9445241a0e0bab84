"""The number of virtual machines that a host executes at once: one a core, if memory suffices."""

import os
import re
from pathlib import Path

from testbed.virtual_machine.guest import Guest

# Memory of QEMU beside the guest's: translated code, and the results that are handed back.
OVERHEAD_MIB = 512
MACHINE_MIB = Guest.memory_mib + OVERHEAD_MIB


def machines_at_once() -> int:
    """The number for this host, by the cores of this process and the memory available now."""
    return fitting(len(os.sched_getaffinity(0)), available_mib())


def fitting(cores: int, memory_mib: float) -> int:
    """The number for `cores` cores and `memory_mib` of memory; at least one."""
    return max(1, min(cores, int(memory_mib // MACHINE_MIB)))


def available_mib() -> float:
    """Memory that processes can have without swapping (proc(5), MemAvailable)."""
    found = re.search(
        r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE
    )
    return int(found[1]) / 1024 if found else 0.0
