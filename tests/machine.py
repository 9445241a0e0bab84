"""The state of the machine that a run must leave unchanged."""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from linux.processes.run_lock import RUN_LABEL

RUN_VARIABLE = b"RAILBED_RUN="
CONTAINERS = ("docker", "ps", "--all", "--quiet", "--filter", f"label={RUN_LABEL}")
SYSCTLS = ("net.core.wmem_default", "net.core.rmem_max", "net.ipv4.ip_forward")


@dataclass(frozen=True)
class MachineState:
    """Links, namespaces and bridges of the machine, and containers and processes of runs."""

    links: str
    namespaces: str
    addresses: str
    switches: str
    containers: frozenset[str]
    processes: frozenset[int]
    run_folders: frozenset[str]
    sysctls: str


def machine_state() -> MachineState:
    """The present state, read by the tools that an operator would use."""
    return MachineState(
        links=_output("ip", "-brief", "link"),
        namespaces=_output("ip", "netns"),
        addresses=_output("ip", "-brief", "address"),
        switches=_output("ovs-vsctl", "--timeout=1", "show"),
        containers=frozenset(_output(*CONTAINERS).split()),
        processes=frozenset(_run_processes()),
        run_folders=frozenset(entry.name for entry in Path("/run/railbed").glob("*")),
        sysctls=_output("sysctl", *SYSCTLS),
    )


@contextmanager
def untouched() -> Iterator[None]:
    """Require that soon after the context, the machine is as it was before."""
    before = machine_state()
    yield
    wait_until(lambda: nothing_is_left(before), f"the machine is again as before: {before}")


def nothing_is_left(before: MachineState) -> bool:
    """Whether the machine is as before; what another test had begun may have ended meanwhile."""
    now = machine_state()
    ended = replace(
        now,
        containers=now.containers | before.containers,
        processes=now.processes | before.processes,
        run_folders=now.run_folders | before.run_folders,
    )
    return ended == before


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    return done.stdout + done.stderr


def _run_processes() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if RUN_VARIABLE in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = 20) -> None:
    """Wait for a condition; fail with `what` after the deadline."""
    pause = threading.Event()
    end_s = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end_s, f"not within {deadline_s} s: {what}"
        pause.wait(0.02)
