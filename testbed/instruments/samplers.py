"""Threads of the run that sample while a schedule is executed: CPU times, links, switches' queues.

The run otherwise only waits. Queues are read where the scenario gives them a length.
"""

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import fields
from itertools import pairwise, starmap
from pathlib import Path
from typing import Self

from linux.files.user_files import write_table
from linux.machine.processor import idle_and_steal_s
from linux.network.counters import parse_carried
from linux.network.netlink import NetlinkSocket, Queue, read_queues
from linux.processes.lifetime import BEFORE_PROXIES
from model.fabric.topology import Link
from model.measurement.cpu_windows import Reading, ThreadTime, Window, window
from model.measurement.records import LinkSample, QueueSample
from testbed.nodes.openvswitch import OpenVSwitch

WINDOW_S = 0.1
PRESSURE = Path("/proc/pressure/cpu")
EVERY_S = 0.01
# The pause after a sample, as a multiple of the processor time that it took.
PAUSE = 50
# Of the thread that reads it, in the namespace of the switches, which has the upper ends of links.
COUNTERS = Path("/proc/thread-self/net/dev")


class _Sampler(ABC):
    """A thread that samples for as long as the context lasts."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    @abstractmethod
    def _run(self) -> None:
        """Sample until `_stopped` is set."""


class CpuMonitor(_Sampler):
    """Takes readings of CPU times every `WINDOW_S`."""

    def __init__(self, switch: OpenVSwitch) -> None:
        super().__init__()
        self._switch = switch
        self._readings: list[Reading] = []

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows between successive readings so far."""
        return tuple(starmap(window, pairwise(tuple(self._readings))))

    def _run(self) -> None:
        # Run before the proxies, to keep sampling where processors are scarce.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BEFORE_PROXIES)
        due_s = time.monotonic()
        self._read()
        while not self._stopped.wait(max(0.0, due_s + WINDOW_S - time.monotonic())):
            due_s = max(due_s + WINDOW_S, time.monotonic() - WINDOW_S / 2)
            self._read()

    def _read(self) -> None:
        """Take a reading; none once the daemon has ended."""
        idle_s, steal_s = idle_and_steal_s(Path("/proc/stat").read_text())
        with suppress(FileNotFoundError, ProcessLookupError):
            reading = Reading(
                ns=time.monotonic_ns(),
                cores=os.cpu_count() or 1,
                idle_s=idle_s,
                steal_s=steal_s,
                stalled_s=read_stalled_s(),
                switch=main_thread_time(self._switch.process_id),
            )
            self._readings.append(reading)


def thread_times(process_ids: tuple[int, ...]) -> Mapping[int, ThreadTime]:
    """CPU times of processes' main threads, by process id; dead processes are left out."""
    times = {}
    for process_id in process_ids:
        with suppress(FileNotFoundError, ProcessLookupError):
            times[process_id] = main_thread_time(process_id)
    return times


def main_thread_time(process_id: int) -> ThreadTime:
    """CPU time of a process's main thread."""
    place = Path(f"/proc/{process_id}/task/{process_id}")
    return thread_time((place / "schedstat").read_text(), (place / "status").read_text())


def thread_time(schedstat: str, status: str) -> ThreadTime:
    """The thread's times, from schedstat (sched-stats.rst) and status of /proc/PID/task/TID."""
    busy_ns, delay_ns, _slices = schedstat.split()
    lines = status.splitlines()
    rests = next(line for line in lines if line.startswith("voluntary_ctxt_switches:"))
    return ThreadTime(int(busy_ns), int(delay_ns), int(rests.split()[1]))


def read_stalled_s() -> float | None:
    """Total seconds in which some process waited for a processor; `None` if not counted."""
    try:
        return stalled_s(PRESSURE.read_text())
    except OSError:
        return None


def stalled_s(pressure: str) -> float:
    """Seconds in which some process waited for a core, from /proc/pressure/cpu (psi.rst)."""
    some = next(line for line in pressure.splitlines() if line.startswith("some "))
    total_us = next(word for word in some.split() if word.startswith("total="))
    return int(total_us.removeprefix("total=")) / 1e6


class _Recorder(_Sampler):
    """Writes its samples as a CSV file when the context ends, even after an error."""

    def __init__(self, record: type, file: Path) -> None:
        super().__init__()
        self._record, self._file = record, file

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        columns = [field.name for field in fields(self._record)]
        write_table(self._file, columns, (vars(sample).values() for sample in self.samples()))

    @abstractmethod
    def samples(self) -> Iterable[object]:
        """Return the samples so far."""


class LinkSampler(_Recorder):
    """Samples the bytes that all links have carried, about a hundred times a second.

    The more links there are, the longer a sample takes, and the longer is the pause behind it:
    sampling costs at most 2 % of a core.
    """

    def __init__(self, links: Sequence[Link], folder: Path) -> None:
        super().__init__(LinkSample, folder / "links.csv")
        self._names = {link.upper.interface: link.name for link in links}
        self._samples: list[tuple[int, dict[str, tuple[int, int]]]] = []

    def _run(self) -> None:
        pause_s = 0.0
        while not self._stopped.wait(pause_s):
            begun_s = time.thread_time()
            self._samples.append((time.monotonic_ns(), parse_carried(COUNTERS.read_text())))
            pause_s = max(EVERY_S, PAUSE * (time.thread_time() - begun_s))

    def samples(self) -> Iterator[LinkSample]:
        """Yield the bytes that each link had carried at each sample; gone links are left out."""
        for ns, carried in self._samples:
            for interface, (received, sent) in carried.items():
                if interface in self._names:
                    yield LinkSample(self._names[interface], ns, sent, received)


class QueueSampler(_Recorder):
    """Samples the queues of switches' ports, ten times a second; `ports` are by interface index.

    A port is named by its link, and the node that the link leads to. A sample that repeats the one
    before of its port is left out.
    """

    def __init__(self, ports: Mapping[int, tuple[str, str]], folder: Path) -> None:
        super().__init__(QueueSample, folder / "queues.csv")
        self._ports, self._samples = ports, list[QueueSample]()

    def _run(self) -> None:
        before: dict[int, Queue] = {}
        with closing(NetlinkSocket()) as netlink:
            while not self._stopped.wait(WINDOW_S):
                ns = time.monotonic_ns()
                for queue in read_queues(netlink):
                    if queue.interface in self._ports and queue != before.get(queue.interface):
                        place, before[queue.interface] = self._ports[queue.interface], queue
                        counts = queue.backlog_bytes, queue.dropped_packets, queue.marked_packets
                        self._samples.append(QueueSample(*place, ns, *counts))

    def samples(self) -> Sequence[QueueSample]:
        """Return the samples so far."""
        return self._samples
