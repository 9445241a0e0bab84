"""Records the machine's pauses, on every core, for as long as a context lasts.

One watcher per core (`pause_watcher.py`) writes its records into memory that this process reads,
which wakes up no process. Waking up every 2 ms takes 1.5 % of a core, and finds every pause of 3 ms
and half of those of 1 to 3 ms; a pause is up to 2 ms longer than its record.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from linux.processes.lifetime import dies_with_us, end
from model.measurement.pauses import NOT_WATCHED, SHORTEST_PAUSE_S, Pause, PauseLog
from testbed.instruments.pause_watcher import RECORD

WATCHER = Path(__file__).with_name("pause_watcher.py")
PERIOD_NS = 2_000_000
SHORTEST_NS = round(SHORTEST_PAUSE_S * 1e9)
# Longest wait for a watcher's records before it counts as not watching.
PATIENCE_S = 1.0
ASK_AGAIN_S = 0.01


class _Watcher:
    """The watcher of one core, and the file in memory that it writes."""

    def __init__(self, core: int) -> None:
        self.core, self.records = core, os.memfd_create(f"pauses-{core}")
        program = [sys.executable, "-I", "-S", str(WATCHER)]
        command = dies_with_us([*program, str(core), str(PERIOD_NS), str(SHORTEST_NS)])
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.records, start_new_session=True
        )

    def spans(self) -> list[tuple[int, int]]:
        """All recorded spans in ns; the first begins, and the last ends, the watched time."""
        content = os.pread(self.records, os.fstat(self.records).st_size, 0)
        whole = len(content) // RECORD.size * RECORD.size
        return list(RECORD.iter_unpack(content[:whole]))

    def stop(self) -> None:
        try:
            end(self.process)
        finally:
            os.close(self.records)


class PauseWatch:
    """The watchers of all cores that this process may use."""

    def __init__(self, watchers: Sequence[_Watcher]) -> None:
        self._watchers = watchers

    @property
    def process_ids(self) -> tuple[int, ...]:
        """Process ids of the watchers, one per core."""
        return tuple(watcher.process.pid for watcher in self._watchers)

    def log(self) -> PauseLog:
        """Return all pauses so far; `NOT_WATCHED` if a watcher has recorded nothing."""
        spans = {watcher.core: watcher.spans() for watcher in self._watchers}
        if not spans or not all(spans.values()):
            return NOT_WATCHED
        return PauseLog(
            cores=len(spans),
            begin_ns=max(noted[0][0] for noted in spans.values()),
            end_ns=min(noted[-1][1] for noted in spans.values()),
            pauses=tuple(
                sorted(
                    Pause(begin_ns, end_ns, core)
                    for core, noted in spans.items()
                    for begin_ns, end_ns in noted
                    if begin_ns < end_ns
                )
            ),
        )

    def log_until(self, moment_ns: int) -> PauseLog:
        """Return all pauses until `moment_ns` or later; wait for the watchers for at most 1 s."""
        give_up_s = time.monotonic() + PATIENCE_S
        while (log := self.log()).end_ns < moment_ns and time.monotonic() < give_up_s:
            time.sleep(ASK_AGAIN_S)
        return log


@contextmanager
def watching_pauses() -> Iterator[PauseWatch]:
    """Watch all cores that this process may use; watchers end with the context or this process."""
    watchers: list[_Watcher] = []
    try:
        for core in sorted(os.sched_getaffinity(0)):
            watchers.append(_Watcher(core))
        watch = PauseWatch(watchers)
        watch.log_until(time.monotonic_ns())
        yield watch
    finally:
        for watcher in watchers:
            watcher.stop()
