"""Duplicates of other processes' sockets (pidfd_getfd(2)), without changing system settings."""

import ctypes
import os
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from linux.machine.resources import provide_more_files
from model.errors import NotReady

SYS_PIDFD_GETFD = 438
INTERNET = (socket.AF_INET, socket.AF_INET6)
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

    A connection stays open as long as one of its duplicates.
    """
    accepted = []
    for borrowed in [socket.socket(fileno=number) for number in borrowed_sockets(process_id)]:
        of_port = borrowed.family in INTERNET and borrowed.getsockname()[1] == port
        if of_port and _has_peer(borrowed):
            accepted.append(borrowed)
        else:
            borrowed.close()
    return accepted


def _has_peer(borrowed: socket.socket) -> bool:
    try:
        borrowed.getpeername()
    except OSError:
        return False
    return True


def received_bytes(connection: socket.socket) -> int:
    """Bytes that have come to a TCP connection in order, read by its process or not (RFC 4898)."""
    information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    (count,) = struct.unpack_from("=Q", information, BYTES_RECEIVED)
    return int(count)


def borrowed_sockets(process_id: int) -> Iterator[int]:
    """Duplicates of all sockets of a process, in the order of their numbers."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(process_id)
    try:
        entries = Path(f"/proc/{process_id}/fd").iterdir()
        for entry in sorted(entries, key=lambda entry: int(entry.name)):
            if _is_socket(entry):
                descriptor = libc.syscall(SYS_PIDFD_GETFD, pidfd, int(entry.name), 0)
                if descriptor >= 0:
                    yield descriptor
    finally:
        os.close(pidfd)


def _is_socket(entry: Path) -> bool:
    try:
        return os.readlink(entry).startswith("socket:")
    except FileNotFoundError:
        return False
