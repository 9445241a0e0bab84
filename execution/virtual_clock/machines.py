"""The number of virtual machines that a host executes at once: one a core, if memory suffices."""

import os
import re
from pathlib import Path

from testbed.virtual_machine.guest import Guest

# Memory of QEMU beside the guest's: translated code, and the results that are handed back.
OVERHEAD_MIB = 512
# GPUs for which the guest's usual memory suffices, and the memory of each further GPU: 12 MiB were
# too little for a ring of 1024 with its records.
USUAL_GPUS, MIB_A_GPU = 256, 20


def guest_mib(gpus: int) -> int:
    """The memory of a guest with a fabric of `gpus` GPUs."""
    return Guest.memory_mib + MIB_A_GPU * max(0, gpus - USUAL_GPUS)


def machine_mib(gpus: int) -> int:
    """The memory of the host that a virtual machine with a fabric of `gpus` GPUs needs."""
    return guest_mib(gpus) + OVERHEAD_MIB


def machines_at_once(gpus: int) -> int:
    """The number for this process's cores and the free memory, each with at most `gpus` GPUs."""
    return fitting(len(os.sched_getaffinity(0)), available_mib(), gpus)


def fitting(cores: int, memory_mib: float, gpus: int) -> int:
    """The number for `cores` cores and `memory_mib` of memory; at least one."""
    return max(1, min(cores, int(memory_mib // machine_mib(gpus))))


def available_mib() -> float:
    """Memory that processes can have without swapping (proc(5), MemAvailable)."""
    line = re.search(r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(line[1]) / 1024 if line else 0.0
