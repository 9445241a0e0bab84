"""Listeners and connections of a TCP port, from the kernel's socket table."""

from collections.abc import Iterator
from pathlib import Path

# The state of a socket, in /proc/net/tcp of proc(5).
ESTABLISHED, LISTEN = "01", "0A"


def listens(process_id: int, port: int) -> bool:
    """Whether anything in the network namespace of a process listens at a port."""
    return LISTEN in _states(process_id, port)


def connections(process_id: int, port: int) -> int:
    """How many connections there are to a port, in the network namespace of a process."""
    return list(_states(process_id, port)).count(ESTABLISHED)


def _states(process_id: int, port: int) -> Iterator[str]:
    """The states of all sockets with this local port."""
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process_id}/net/{name}").read_text().splitlines()[1:]:
            _, local_address, _, state, *_ = line.split()
            if local_address.endswith(f":{port:04X}"):
                yield state
