"""Run the prober over given pairs of GPUs, with probes that pass queues of data or wait there."""

import json
import math
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linux.files.program_files import MODULES_HERE, module_command
from linux.files.user_files import make_folder, write_text
from linux.processes.lifetime import Watch, running, wait_until_begun, wait_until_ended
from model.fabric.addressing import ends
from model.fabric.topology import Gpu
from traffic_gen.probes.blackout import PairRecord, Ticks, read_records
from traffic_gen.probes.packet import (
    BACKGROUND_PORT,
    DATA_CLASS_BYTES,
    PROBE_PORT,
    SHORTEST_BYTES,
    probe_packet,
)

NAME = "the prober"
START_DEADLINE_S = 20
STOP_DEADLINE_S = 60
# RFC 6335: a dynamic port, on which no service listens.
SOURCE_PORT = 49152


class Probes:
    """A running prober, which sends probes until `stop`."""

    def __init__(
        self, process: subprocess.Popen[bytes], name: str, records: Path, log: Path, watch: Watch
    ) -> None:
        # The log's last line has the worst lateness and the processor time.
        self.process, self.log, self._records = process, log, records
        self._name, self._watch = name, watch
        watch.add(name, process.pid, log)
        self._read: list[PairRecord] | None = None
        self.ticks, self.ended_ns = Ticks(), 0

    def end(self) -> None:
        """Stop sending, at `ended_ns` of CLOCK_MONOTONIC; do not wait for probes in flight."""
        self.ended_ns = self.ended_ns or time.monotonic_ns()
        self._watch.forget(self._name)
        self.process.terminate()

    def stop(self) -> list[PairRecord]:
        """Stop sending, wait for probes in flight, and return the records of all pairs.

        From then on, `ticks` says how many ticks the prober skipped.
        """
        if self._read is None:
            self.end()
            wait_until_ended(self.process, self._name, self.log, STOP_DEADLINE_S)
            self._read, self.ticks = read_records(self._records.read_text())
        return self._read


@dataclass(frozen=True)
class Cadence:
    """The probes that a prober sends at each tick: those of the next of `groups` groups of pairs.

    Each pair belongs to one group. Two probers at a time need two UDP ports.
    """

    tick_ns: int = 1_000_000
    groups: int = 1
    size_bytes: int = SHORTEST_BYTES
    port: int = PROBE_PORT


# Short probes pass queues of data: they tell when a path works again, not how long its queue is.
EVERY_MILLISECOND = Cadence()
# A wake-up takes more processor time than a probe: with long intervals, several probes share a
# tick.
BACKGROUND_TICK_NS = 5_000_000


def affected(interval_s: float) -> Cadence:
    """Return a cadence that probes each pair once in an interval, past queues of data."""
    return Cadence(round(interval_s * 1e9))


def background(interval_s: float) -> Cadence:
    """Return a cadence that probes each pair once in an interval, on a UDP port of its own.

    These probes wait in queues of data, and are lost where data is.
    """
    groups = max(1, math.ceil(interval_s * 1e9 / BACKGROUND_TICK_NS))
    return Cadence(BACKGROUND_TICK_NS, groups, DATA_CLASS_BYTES, BACKGROUND_PORT)


@contextmanager
def probing(
    process_ids: Mapping[str, int],
    pairs: Sequence[tuple[Gpu, Gpu]],
    folder: Path,
    watch: Watch,
    cadence: Cadence = EVERY_MILLISECOND,
) -> Iterator[Probes]:
    """Probe pairs (source, destination) until the context ends; one such context a port.

    `process_ids` are those of the GPU proxies, by name. Plan, records and log are kept in `folder`.
    `watch` notices when the prober dies. An exception in the context is not replaced by an error of
    the prober.
    """
    name = f"{NAME} with UDP port {cadence.port}"
    make_folder(folder)
    plan, records, log = (folder / f for f in ("plan.json", "records.json", "prober.log"))
    for earlier in (records, log):
        earlier.unlink(missing_ok=True)
    entries = [_entry(process_ids, *pair, cadence) for pair in pairs]
    timing = {"interval_ns": cadence.tick_ns, "groups": cadence.groups}
    write_text(plan, json.dumps({**timing, "pairs": entries}))
    command = module_command("traffic_gen.probes.prober", plan, records)
    with running(command, log, MODULES_HERE) as process:
        wait_until_begun(
            process, lambda: "probing\n" in log.read_text(), name, log, START_DEADLINE_S
        )
        probes = Probes(process, name, records, log, watch)
        try:
            yield probes
        finally:
            watch.forget(name)
        probes.stop()


def _entry(
    process_ids: Mapping[str, int], source: Gpu, destination: Gpu, cadence: Cadence
) -> dict[str, Any]:
    both, size_bytes, port = ends(source, destination), cadence.size_bytes, cadence.port
    packet = probe_packet(*both, SOURCE_PORT, size_bytes=size_bytes, port=port)
    return {
        "name": pair_name(source, destination),
        "source_pid": process_ids[source.name],
        "destination_pid": process_ids[destination.name],
        "packet": packet.hex(),
    }


def pair_name(source: Gpu, destination: Gpu) -> str:
    """Return the name of a pair in the records, with its lane if that is not the first."""
    return f"{source.name}>{destination.name}" + (f".{destination.lane}" * bool(destination.lane))
