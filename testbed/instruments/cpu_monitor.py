"""Takes CPU samples every tenth of a second while a schedule is executed.

Runs as a thread of the run, which otherwise only waits. Queues are not read: that takes
milliseconds, in which proxies wait.
"""

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from linux.machine.cpu_time import idle_and_steal_s, stalled_s, thread_time
from linux.processes.lifetime import BEFORE_PROXIES
from model.errors import EmulationError
from model.measurement.cpu_windows import Reading, ThreadTime, Window, windows_of
from testbed.nodes.openvswitch import OpenVSwitch

WINDOW_S = 0.1
PRESSURE = Path("/proc/pressure/cpu")


class CpuMonitor:
    """A thread that takes readings for as long as the context lasts."""

    def __init__(self, switch: OpenVSwitch) -> None:
        self._switch = switch
        self._readings: list[Reading] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cpu-monitor", daemon=True)

    def __enter__(self) -> "CpuMonitor":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows between successive readings so far."""
        return windows_of(tuple(self._readings))

    def _run(self) -> None:
        # Run before the proxies, to keep sampling where processors are scarce.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BEFORE_PROXIES)
        due_s = time.monotonic()
        self._readings.append(self._read())
        while not self._stopped.wait(max(0.0, due_s + WINDOW_S - time.monotonic())):
            due_s = max(due_s + WINDOW_S, time.monotonic() - WINDOW_S / 2)
            self._readings.append(self._read())

    def _read(self) -> Reading:
        idle_s, steal_s = idle_and_steal_s(Path("/proc/stat").read_text())
        return Reading(
            ns=time.monotonic_ns(),
            cores=os.cpu_count() or 1,
            idle_s=idle_s,
            steal_s=steal_s,
            stalled_s=read_stalled_s(),
            switches=thread_times(switch_process_ids(self._switch)),
        )


def switch_process_ids(switch: OpenVSwitch) -> tuple[int, ...]:
    """The process id of the switch daemon; empty if it is not running."""
    try:
        return (switch.process_id,)
    except EmulationError:
        return ()


def thread_times(process_ids: tuple[int, ...]) -> Mapping[int, ThreadTime]:
    """CPU times of processes' main threads, by process id; dead processes are left out."""
    times = {}
    for process_id in process_ids:
        with suppress(FileNotFoundError, ProcessLookupError):
            place = Path(f"/proc/{process_id}/task/{process_id}")
            schedstat, status = place / "schedstat", place / "status"
            times[process_id] = thread_time(schedstat.read_text(), status.read_text())
    return times


def read_stalled_s() -> float | None:
    """Total seconds in which some process waited for a processor; `None` if not counted."""
    try:
        return stalled_s(PRESSURE.read_text())
    except OSError:
        return None
