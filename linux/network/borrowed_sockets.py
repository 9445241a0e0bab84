"""Duplicates of other processes' sockets (pidfd_getfd(2)), without changing system settings."""

import ctypes
import os
import socket
import struct
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from linux.machine.resources import provide_more_files
from linux.network.counters import inodes_of_connections
from model.errors import NotReady

SYS_PIDFD_GETFD = 438
# Where `tcpi_bytes_received` is in `tcp_info` (linux/tcp.h).
BYTES_RECEIVED, TCP_INFO_BYTES = 128, 136
CLOSED_TOGETHER = 32


@contextmanager
def closing_together(process_id: int) -> Iterator[None]:
    """Close here, many at a time, the sockets that a process closes or leaves within the context.

    The kernel takes 10 to 20 ms for each packet socket (packet_release waits for synchronize_net).
    The process itself would close them one after the other, and wait each time.
    """
    borrowed: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):  # it may have ended before
        with suppress(NotReady):  # the process itself closes those that do not fit
            provide_more_files(len(os.listdir(f"/proc/{process_id}/fd")))
        borrowed += borrowed_sockets(process_id)
    try:
        yield
    finally:
        with ThreadPoolExecutor(CLOSED_TOGETHER) as pool:
            list(pool.map(os.close, borrowed))


def accepted_connections(process_id: int, port: int) -> list[socket.socket]:
    """Duplicates of a process's connections to its TCP port, in the order of their numbers.

    A connection stays open as long as one of its duplicates, and so would a listener: the process
    could not listen anew.
    """
    names = {f"socket:[{inode}]" for inode in inodes_of_connections(process_id, port)}
    return [socket.socket(fileno=number) for number in borrowed_sockets(process_id, names)]


def received_bytes(connection: socket.socket) -> int:
    """Bytes that have come to a TCP connection in order, read by its process or not (RFC 4898)."""
    information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    (count,) = struct.unpack_from("=Q", information, BYTES_RECEIVED)
    return int(count)


def borrowed_sockets(process_id: int, names: Collection[str] | None = None) -> Iterator[int]:
    """Duplicates of a process's sockets with these names, or of all, in the order of their numbers.

    A name is `socket:[INODE]` (proc_pid_fd(5)).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(process_id)
    try:
        entries = Path(f"/proc/{process_id}/fd").iterdir()
        # All names are read first: of this process itself, duplicates are further entries.
        named = [(int(entry.name), _name(entry)) for entry in entries]
        for number, name in sorted(named):
            if name.startswith("socket:") and (names is None or name in names):
                descriptor = libc.syscall(SYS_PIDFD_GETFD, pidfd, number, 0)
                if descriptor >= 0:
                    yield descriptor
    finally:
        os.close(pidfd)


def _name(entry: Path) -> str:
    try:
        return os.readlink(entry)
    except FileNotFoundError:
        return ""
