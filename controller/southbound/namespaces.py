"""The network namespaces of the proxies, entered to open a socket there (setns(2))."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

CLONE_NEWNET = 0x40000000


@contextmanager
def entering(process_id: int) -> Iterator[None]:
    """Be in the network namespace of a process; `OSError` if it has ended."""
    libc = ctypes.CDLL(None, use_errno=True)
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.open(f"/proc/{process_id}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if libc.setns(there, CLONE_NEWNET) != 0:
                number = ctypes.get_errno()
                raise OSError(number, f"setns: {os.strerror(number)}")
        finally:
            os.close(there)
        yield
    finally:
        libc.setns(here, CLONE_NEWNET)
        os.close(here)
