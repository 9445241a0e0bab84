"""Memory use of a proxy, of a whole run, and of the kernel."""

import re
from collections.abc import Iterable
from pathlib import Path

from linux.processes.run_lock import RunLock, run_processes
from testbed.nodes.gpu_proxies import Proxy, ProxyKind

MIB = 2**20


def kernel_bytes() -> int:
    """Memory of the kernel itself: slab, kernel stacks, page tables and per-CPU data."""
    table = Path("/proc/meminfo").read_text()
    return sum(_field(table, name) for name in ("Slab", "KernelStack", "PageTables", "Percpu"))


def run_bytes(lock: RunLock, proxies: Iterable[Proxy], kind: ProxyKind) -> int:
    """Memory of all processes of a run except this one."""
    in_proxies = {proxy.process_id for proxy in proxies}
    everyone = {process_id for process_id, run_id in run_processes() if run_id == lock.run_id}
    others = everyone - in_proxies
    return sum(proxy_bytes(one, kind) for one in in_proxies) + sum(map(_proportional_bytes, others))


def proxy_bytes(process_id: int, kind: ProxyKind) -> int:
    """Memory of a GPU proxy; a container's includes its parent process, which is the engine's."""
    if kind is ProxyKind.PROCESS:
        return _proportional_bytes(process_id)
    status = Path(f"/proc/{process_id}/status").read_text()
    parent = re.search(r"^PPid:\s+(\d+)$", status, re.MULTILINE)
    return _proportional_bytes(process_id) + (_proportional_bytes(int(parent[1])) if parent else 0)


def _proportional_bytes(process_id: int) -> int:
    """Memory of a process; shared pages count proportionally (proc(5), Pss)."""
    return _field(Path(f"/proc/{process_id}/smaps_rollup").read_text(), "Pss")


def _field(text: str, name: str) -> int:
    """Value of one field of a proc(5) table in bytes; 0 if it is absent."""
    value = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
    return 1024 * int(value[1]) if value else 0
