"""Memory: what the machine has left, and what a proxy takes."""

import re
from pathlib import Path

from testbed.proxies import ProxyKind

MIB = 2**20


def available_bytes() -> int:
    """What is free, or can be freed at once (proc(5), MemAvailable)."""
    return _field(Path("/proc/meminfo").read_text(), "MemAvailable")


def proxy_bytes(process_id: int, kind: ProxyKind) -> int:
    """The memory of a GPU proxy; that of a container includes the engine's process beside it."""
    if kind is ProxyKind.PROCESS:
        return _proportional_bytes(process_id)
    status = Path(f"/proc/{process_id}/status").read_text()
    found = re.search(r"^PPid:\s+(\d+)$", status, re.MULTILINE)
    return _proportional_bytes(process_id) + (_proportional_bytes(int(found[1])) if found else 0)


def _proportional_bytes(process_id: int) -> int:
    """A process's memory; what it shares with others counts in parts (proc(5), Pss)."""
    return _field(Path(f"/proc/{process_id}/smaps_rollup").read_text(), "Pss")


def _field(text: str, name: str) -> int:
    """The bytes of one line of a table of proc(5)."""
    found = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
    return 1024 * int(found[1]) if found else 0
