"""Observe executions: CPU samples, pauses, agents' waits, bytes and frames that links carried."""

import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from execution.cases.emulation import Experiment
from linux.files.program_files import MODULES_HERE, module_command
from linux.files.user_files import make_folder, write_table
from linux.network.namespaces import processes_beside
from linux.processes.lifetime import Watch, running, wait_until_begun, wait_until_ended
from model.errors import EmulationError, InputError, Problem
from model.fabric.build import build_topology
from model.fabric.shaping import PACKET_HEADER_BYTES
from model.fabric.topology import Hop, Link
from model.job.placement import Pair, Placement
from model.job.probing import PROBE_BYTES
from model.measurement.cpu_windows import Window, number_at, within
from model.measurement.pauses import NOT_WATCHED, Pause, PauseLog
from model.measurement.records import Repeat
from model.routing.paths import Routing
from results.verdicts.byte_conservation import Carried, Span
from results.verdicts.fidelity import Observation
from scenarios.scenario import Scenario
from testbed.fabric.links import Reading
from testbed.instruments.pauses import PauseWatch, watching_pauses
from testbed.instruments.samplers import CpuMonitor, QueueSampler, thread_times
from traffic_gen.probes.blackout import PairRecord, crossed

PROBE_PAYLOAD_BYTES = PROBE_BYTES - PACKET_HEADER_BYTES
CAPTURE = "the capture"
CAPTURE_PROGRAM = "testbed.instruments.capture_program"
CAPTURE_DEADLINE_S = 10
# Largest size of a file: about a hundred thousand frames.
MOST_CAPTURED_BYTES = 16 * 2**20


class Observer:
    """Watches the executions of one case on a fabric."""

    def __init__(
        self,
        fabric: Experiment,
        watching: CpuMonitor,
        watch: PauseWatch,
        *,
        beside_agents: bool = False,
    ) -> None:
        self._bed = fabric.bed
        self._beside_agents = beside_agents
        self._watching = watching
        self._watch = watch
        self._delays_ns = self._senders_delays_ns()
        self._depth_s = fabric.topology.least_depth_s
        # Each execution, its end, and what was observed, without CPU samples: some come later.
        self._ends: list[tuple[Repeat, int, Observation]] = []

    def _senders_delays_ns(self) -> dict[int, dict[int, int]]:
        """Return, by agent, the waits for a core of the agent and, on request, its neighbours.

        Neighbours are other processes in the agent's network namespace.
        """
        agents = tuple(self._bed.links.process_ids.values())
        beside = processes_beside(agents) if self._beside_agents else {}
        groups = {agent: thread_times((agent, *beside.get(agent, ()))) for agent in agents}
        return {
            agent: {pid: times.delay_ns for pid, times in group.items()}
            for agent, group in groups.items()
            if group
        }

    def begin(self, _number: int = 0) -> None:
        """Count the agents' waits from now on: an execution begins."""
        self._delays_ns = self._senders_delays_ns()

    def note(self, repeat: Repeat) -> PauseLog:
        """Record an ended execution; return its pauses, or `NOT_WATCHED` if watched in part.

        It ended when its last byte had arrived or, if not all did, ends now.
        """
        ended_ns = repeat.end_ns if repeat.complete else time.monotonic_ns()
        before, self._delays_ns = self._delays_ns, self._senders_delays_ns()
        waited = repeat.waited_s or tuple(
            sum(now - before.get(agent, {}).get(pid, now) for pid, now in group.items()) / 1e9
            for agent, group in self._delays_ns.items()
        )
        # An execution that was aborted leaves its data in the queues.
        queues = self._bed.links.queues() if repeat.complete else ()
        left_bytes = max((queue.backlog_bytes for _, queue in queues), default=0)
        log = self._watch.log_until(ended_ns)
        watched = log.covers(repeat.start_ns, ended_ns)
        pauses = log.during(repeat.start_ns, ended_ns) if watched else NOT_WATCHED
        observation = Observation(
            seconds=(ended_ns - repeat.start_ns) / 1e9,
            windows=(),
            agents_delay_s=waited,
            backlog_left_bytes=left_bytes,
            retransmits=repeat.retransmits,
            start_skew_s=repeat.start_skew_s,
            pauses=pauses,
            depth_s=self._depth_s,
            complete=repeat.complete,
        )
        self._ends.append((repeat, ended_ns, observation))
        return pauses

    def observations(self, of: Sequence[Repeat]) -> tuple[Observation, ...]:
        """Return the observations of these executions, in the order of execution."""
        windows = self._watching.windows
        return tuple(
            replace(observation, windows=within(windows, repeat.start_ns, ended_ns))
            for repeat, ended_ns, observation in self._ends
            if repeat in of
        )

    def keep(self, folder: Path) -> None:
        """Write CPU samples (also between executions), pauses and agents' waits as CSV files."""
        ends = [(repeat.number, observation) for repeat, _, observation in self._ends]
        waits = ((number, *pair) for number, end in ends for pair in enumerate(end.agents_delay_s))
        pauses = ((number, *vars(p).values()) for number, end in ends for p in end.pauses.pauses)
        spans = [(done.number, done.start_ns, end_ns) for done, end_ns, _ in self._ends]
        samples = ((number_at(w, spans), *vars(w).values()) for w in self._watching.windows)
        for name, columns, rows in (
            ("waits", ("agent", "waited_s"), waits),
            ("pauses", Pause.__dataclass_fields__, pauses),
            ("vitals", Window.__dataclass_fields__, samples),
        ):
            write_table(folder / f"{name}.csv", ("execution", *columns), rows)


@contextmanager
def observing(
    fabric: Experiment, folder: Path, *, beside_agents: bool = False
) -> Iterator[Observer]:
    """Observe within the context; write the observations to `folder` even after an error.

    `beside_agents`: other processes than the agents send, in the networks of the proxies.
    """
    links, has_queues = fabric.bed.links, fabric.topology.spec.nic.queue
    with (
        CpuMonitor(fabric.bed.open_vswitch) as watching,
        watching_pauses() as watch,
        QueueSampler(links.switch_ports(), folder) if has_queues else nullcontext(),
    ):
        observer = Observer(fabric, watching, watch, beside_agents=beside_agents)
        try:
            yield observer
        finally:
            observer.keep(folder)


def carried(fabric: Experiment, before: Reading, after: Reading) -> Carried:
    """Return the bytes and packets that each direction of each link has carried in the placement.

    Counters have the link names of start-up; an optical switch may have moved upper ends since.
    """
    names = {link.lower: link.name for link in fabric.bed.topology.links}
    sizes: dict[Hop, int] = {}
    packets: dict[Hop, int] = {}
    for link in fabric.placement.topology.links:
        name = names[link.lower]
        old, new = before.counters[name], after.counters[name]
        up, down = Hop(link, link.lower.node), Hop(link, link.upper.node)
        sizes[up] = new.received_bytes - old.received_bytes
        sizes[down] = new.sent_bytes - old.sent_bytes
        packets[up] = new.received_packets - old.received_packets
        packets[down] = new.sent_packets - old.sent_packets
    return Carried(sizes, packets, before.between_ns, after.between_ns)


def dropped(fabric: Experiment, before: Reading, after: Reading) -> int:
    """Return the packets that queues dropped; not on links that are meant to: failed ones.

    Counters have the link names of start-up, as those of `carried`.
    """
    placement = fabric.placement
    failed = placement.health.failed
    meant = {link.lower for link in placement.topology.links if link.name in failed}
    counted = (link.name for link in fabric.bed.topology.links if link.lower not in meant)
    numbers = (
        (before.counters[name].dropped_packets, after.counters[name].dropped_packets)
        for name in counted
    )
    return sum(new - old for old, new in numbers)


def probed(
    carried: Carried, placement: Placement, pairs: Iterable[Pair], records: Iterable[PairRecord]
) -> dict[Hop, Span]:
    """Return the bytes that the probes of these pairs, with a record each, added to each link.

    Of each probe, the bytes beyond a TCP segment's headers are counted.
    """
    routing = Routing(placement.topology, placement.health)
    least, most = Counter[Hop](), Counter[Hop]()
    for pair, record in zip(pairs, records, strict=True):
        sure, possible = crossed(record, carried.before_ns, carried.after_ns)
        for hop in routing.path_if_any(*pair) or ():
            least[hop] += sure * PROBE_PAYLOAD_BYTES
            most[hop] += possible * PROBE_PAYLOAD_BYTES
    return {hop: Span(least[hop], most[hop]) for hop in most}


def require_links(scenario: Scenario, names: Sequence[str]) -> None:
    """Raise `InputError` with all names that no fabric of the scenario has."""
    known = {link.name for spec in scenario.fabrics for link in build_topology(spec).links}
    hint = "such as d0g0--hb0, d0g0--rail0 or rail0--spine0"
    if unknown := [name for name in names if name not in known]:
        raise InputError(*(Problem("--capture", f"unknown link {n!r}", hint) for n in unknown))


@contextmanager
def captured(fabric: Experiment, names: Sequence[str], folder: Path) -> Iterator[None]:
    """Capture on the links of a fabric that have these names, while the context lasts."""
    links = [fabric.topology.link_by_name[n] for n in names if n in fabric.topology.link_by_name]
    with capturing(links, folder, fabric.bed.watch) if links else nullcontext():
        yield


@contextmanager
def capturing(links: Sequence[Link], folder: Path, watch: Watch) -> Iterator[None]:
    """Capture frames on links while the context lasts; call this in the switches' namespace.

    Writes two pcap files a link of at most `MOST_CAPTURED_BYTES` each, and `capture.json`. A part
    that dies meanwhile ends the run.
    """
    make_folder(folder)
    log = folder / "capture.log"
    named = [f"{link.name}={link.upper.interface}" for link in links]
    command = module_command(CAPTURE_PROGRAM, folder, MOST_CAPTURED_BYTES, *named)
    with running(command, log, MODULES_HERE) as process:
        wait_until_begun(
            process, lambda: b"capturing" in log.read_bytes(), CAPTURE, log, CAPTURE_DEADLINE_S
        )
        watch.add(CAPTURE, process.pid, log)
        try:
            yield
        except BaseException:
            with suppress(EmulationError):  # the error that ended the run is to be reported
                _end_capture(process, log, watch)
            raise
        _end_capture(process, log, watch)


def _end_capture(process: "subprocess.Popen[bytes]", log: Path, watch: Watch) -> None:
    """Let the program write its remaining frames."""
    watch.forget(CAPTURE)
    process.terminate()
    wait_until_ended(process, CAPTURE, log, CAPTURE_DEADLINE_S)
