"""Interfaces, TCP counters and sockets of a network namespace, from /proc/PID/net (proc(5))."""

from collections.abc import Iterable, Iterator
from pathlib import Path

# Columns of /proc/PID/net/dev behind the interface's name: received and sent.
BYTES, PACKETS = (0, 8), (1, 9)
# The state of a socket, in /proc/PID/net/tcp.
ESTABLISHED, LISTEN = "01", "0A"


def parse_carried(text: str, columns: tuple[int, int] = BYTES) -> dict[str, tuple[int, int]]:
    """Return received and sent bytes, or packets, of each interface, from /proc/PID/net/dev."""
    carried, (received, sent) = {}, columns
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        figures = rest.split()
        carried[name.strip()] = int(figures[received]), int(figures[sent])
    return carried


def retransmitted_segments(process_ids: Iterable[int]) -> list[int]:
    """Return the segments that the namespace of each process has retransmitted (RFC 4022)."""
    return [_counter(one, "snmp", "Tcp:", "RetransSegs") for one in process_ids]


def packets_out_of_order(process_ids: Iterable[int]) -> list[int]:
    """Return the packets that came before an earlier one in the namespace of each process."""
    return [_counter(one, "netstat", "TcpExt:", "TCPOFOQueue") for one in process_ids]


def _counter(process_id: int, file: str, group: str, name: str) -> int:
    """Return one counter: a group's first line has all names, the next one all values."""
    lines = Path(f"/proc/{process_id}/net/{file}").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith(group))
    return int(values[names.index(name)])


def listens(process_id: int, port: int) -> bool:
    """Whether anything in the network namespace of a process listens at a TCP port."""
    return any(state == LISTEN for state, _ in _sockets(process_id, port))


def connections(process_id: int, port: int) -> int:
    """Count the connections to a TCP port, in the network namespace of a process."""
    return sum(state == ESTABLISHED for state, _ in _sockets(process_id, port))


def inodes_of_connections(process_id: int, port: int) -> list[str]:
    """Return the inodes of the connections to a TCP port; 0 of one that is not accepted yet."""
    return [inode for state, inode in _sockets(process_id, port) if state == ESTABLISHED]


def _sockets(process_id: int, port: int) -> Iterator[tuple[str, str]]:
    """Yield state and inode of each socket of a TCP port, in the namespace of a process."""
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process_id}/net/{name}").read_text().splitlines()[1:]:
            _, local_address, _, state, _, _, _, _, _, inode, *_ = line.split()
            if local_address.endswith(f":{port:04X}"):
                yield state, inode
