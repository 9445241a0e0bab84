"""The machine's processor, as /proc/cpuinfo describes it (proc_cpuinfo(5))."""

import platform
from itertools import takewhile
from pathlib import Path

PLACE = Path("/proc/cpuinfo")


def first_processor() -> dict[str, str]:
    """Return the fields of the first processor; their names depend on the architecture."""
    lines = takewhile(str.strip, PLACE.read_text().splitlines())
    parts = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in parts}


def model_name() -> str:
    """Return the name of the processor; without one, that of the architecture."""
    return first_processor().get("model name") or platform.machine()
