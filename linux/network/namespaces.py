"""Network namespaces (namespaces(7), setns(2)): entering a new one or another process's."""

import ctypes
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from model.errors import EmulationError

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, call: str) -> None:
    """Raise `OSError` if a call of the C library has failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


@contextmanager
def _returning() -> Iterator[None]:
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        checked(_libc.setns(here, CLONE_NEWNET), "setns")
        os.close(here)


@contextmanager
def private_namespace() -> Iterator[None]:
    """Put this thread, and processes that it starts, into a new network namespace until the end.

    The namespace has no name: it disappears with its last process, and with it all interfaces.
    """
    with _returning():
        checked(_libc.unshare(CLONE_NEWNET), "unshare")
        yield


@contextmanager
def namespace_of(process_id: int) -> Iterator[None]:
    """Put this thread into the network namespace of a process; leave it afterwards.

    Raises `EmulationError` if the process has ended.
    """
    with _returning():
        try:
            there = os.open(f"/proc/{process_id}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            what = f"process {process_id} has ended, and its network namespace with it"
            raise EmulationError(what) from None
        try:
            checked(_libc.setns(there, CLONE_NEWNET), "setns")
        finally:
            os.close(there)
        yield


def processes_beside(process_ids: Collection[int]) -> dict[int, list[int]]:
    """Return the other processes in the network namespace of each of these processes.

    The machine's own namespace and that of this process are left out, whoever is in them: an id may
    belong to another process by now.
    """
    left_out = {"", _namespace("1"), _namespace("self")}
    owners = {_namespace(str(owner)): owner for owner in process_ids}
    beside: dict[int, list[int]] = {owner: [] for owner in process_ids}
    for entry in os.listdir("/proc"):
        namespace = _namespace(entry) if entry.isdigit() else ""
        if namespace in owners.keys() - left_out and int(entry) not in beside:
            beside[owners[namespace]].append(int(entry))
    return beside


def _namespace(process: str) -> str:
    """The name of a process's network namespace; empty if it has ended."""
    try:
        return os.readlink(f"/proc/{process}/ns/net")
    except OSError:
        return ""


def set_sysctl(name: str, value: str) -> None:
    """Set a kernel setting of the present network namespace, such as `net.ipv4.ip_forward`."""
    Path("/proc/sys", *name.split(".")).write_text(value)
