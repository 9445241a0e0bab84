"""Bring up one fabric with its agents, predict schedules, and yield their executions.

This is the heart of a run. It stores nothing: it yields the measurements.
"""

import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from linux.machine.resources import provide_files
from linux.processes.run_lock import RunLock, live_run_ids, run_lock
from model.errors import EmulationError
from model.fabric.build import build_topology
from model.fabric.link_probes import longest_detection_s, probe_interval_s
from model.fabric.spec import FabricSpec
from model.fabric.topology import Topology
from model.job.placement import Placement, job_placement
from model.measurement.records import Repeat
from model.prediction.fluid import Prediction, path_class, predict
from model.prediction.network import PathClass, added_s
from model.routing.paths import Routing
from model.workload.generator import Generator as Kind
from model.workload.schedule import Steps
from model.workload.transfers.columns import Transfer
from scenarios.planning.machine_profile import in_virtual_clock
from testbed.nodes.gpu_proxies import ProxyKind
from testbed.testbed import Testbed, deaths_told, testbed
from testbed.virtual_machine import seed
from traffic_gen.agents import agent
from traffic_gen.agents.client import AgentClient, OnTick, agent_client, no_ticks
from traffic_gen.generators.iperf3_flows import iperf3_flows
from traffic_gen.generators.packet_replay import packet_replay
from traffic_gen.iperf3 import Hosts, bytes_by_pair

BeforeExecution = Callable[[int], None]
Tell = Callable[[str], None]
AGENT = Path(agent.__file__)
# A repeat is given up after `PATIENCE` times its modeled time and `PATIENCE_S` more, and after
# twice the time until a gray failure is found and TCP sends again: TCP doubles its waits. A queue
# pair has the time to break.
PATIENCE = 5
PATIENCE_S = 10
LATENCY_ROUNDS, LATENCY_AT_MOST_S, PING_BYTES = 20, 10, 8


def unseeded(_number: int) -> None:
    """Leave the machine as it is."""


def seeding(machine_seed: int, case: str, topology: Topology) -> BeforeExecution:
    """Return a callback that seeds the virtual machine before each execution of a case.

    The seed shifts the phase of all periodic work in the machine: link probes, timers, samples. On
    a real machine, the callback does nothing: phases are random there.
    """
    period_s = max(seed.PERIOD_S, probe_interval_s(topology))

    def seed_execution(number: int) -> None:
        seed.main(f"{machine_seed}/{case}/{number}", period_s)

    return seed_execution if in_virtual_clock() else unseeded


@dataclass
class PlacedJob:
    """Connected agents, and a job that is placed on them."""

    agents: AgentClient
    placement: Placement

    def rearrange(self, placement: Placement) -> None:
        """Close all connections and place the job."""
        self.placement = placement
        self.agents.place(placement.gpu_numbers())

    def path_latencies_s(self, schedule: Steps) -> dict[PathClass, float]:
        """Measure the idle latency in seconds of each class of paths that the schedule uses.

        Without what single links add (`model.prediction.network.added_s`).
        """
        representative: dict[PathClass, tuple[float, tuple[int, int, int]]] = {}
        transfers, gpus, topology = schedule.transfers, self.placement.gpus, self.placement.topology
        routing = Routing(topology, self.placement.health)
        ends = (transfers.source, transfers.destination, transfers.lane)
        for source, to, lane in dict.fromkeys(zip(*(end.tolist() for end in ends), strict=True)):
            hops = routing.path_if_any(gpus[source], gpus[to].by(lane))
            if hops and path_class(hops) not in representative:
                more_s = sum(added_s(topology, hop) for hop in hops)
                representative[path_class(hops)] = more_s, (source, to, lane)
        return {
            kind: max(0.0, self._latency_s(*pair) - more_s)
            for kind, (more_s, pair) in representative.items()
        }

    def _latency_s(self, source: int, destination: int, lane: int) -> float:
        """Measure by transfers between two ranks in turn, each after the one before."""
        turns = [(source, destination), (destination, source)] * LATENCY_ROUNDS
        exchange = [
            Transfer(number, *turn, PING_BYTES, (), (number - 1,) if number else (), lane=lane)
            for number, turn in enumerate(turns)
        ]
        done = self.agents.execute(exchange, self.placement.addresses(), LATENCY_AT_MOST_S)
        return median(record.arrived_ns - record.started_ns for record in done.records) / 1e9

    def predict(self, schedule: Steps) -> Prediction:
        """Predict the schedule with the present placement, with latencies measured now."""
        placement, latency_s = self.placement, self.path_latencies_s(schedule)
        return predict(schedule, [placement.epoch], latency_s, placement.gpus)

    def repeats(
        self,
        schedule: Steps,
        prediction: Prediction,
        count: int,
        *,
        check_data: bool,
        on_tick: OnTick = no_ticks,
        first: int = 0,
        not_before_ns: int = 0,
        before: BeforeExecution = unseeded,
    ) -> "Executions":
        """Execute a schedule `count` times; raise `Incomplete` if the testbed breaks.

        Executions are numbered from `first`; none starts before `not_before_ns`. `before` is called
        with the number of each execution before its begin. After an incomplete one, whose rest is
        still under way, all connections are new.
        """
        at_most_s = longest_s(prediction, self.placement.topology)
        addresses, repeat = self.placement.addresses(), None
        for number in range(first, first + count):
            if repeat is not None and not repeat.complete:
                self.agents.place(self.placement.gpu_numbers())
            if repeat is None or not repeat.complete:
                self.agents.load(schedule, addresses, check_data=check_data)
            before(number)
            repeat = self.agents.run(schedule, number, at_most_s, on_tick, not_before_ns)
            yield repeat


def longest_s(prediction: Prediction, topology: Topology) -> float:
    """Seconds after which an execution is given up."""
    stalled_s = longest_detection_s(topology) + topology.tcp_timeout_s
    working_s = PATIENCE * prediction.completion_s + PATIENCE_S
    return working_s + 2 * stalled_s + topology.spec.breaks_after_s


@dataclass
class Experiment(PlacedJob):
    """A fabric that is up, with a placed job."""

    lock: RunLock
    topology: Topology
    bed: Testbed
    up_s: float


def on_standard_error(sentence: str) -> None:
    """Print a sentence for people."""
    print(f"railbed: {sentence}", file=sys.stderr)


@contextmanager
def experiment(
    spec: FabricSpec,
    kind: ProxyKind,
    run_id: str,
    tell: Tell = on_standard_error,
    known: set[str] | None = None,
) -> Iterator[Experiment]:
    """Bring a fabric up, in a run with this id, and connect to its agents.

    `tell` gets reports of other live runs, as `reporting_other_runs` makes them.
    """
    provide_files(spec.gpus)
    with run_lock(run_id) as lock:
        begun_s = time.monotonic()
        topology = build_topology(spec)
        with testbed(topology, kind, AGENT, lock) as bed:
            up_s = time.monotonic() - begun_s
            sockets = [bed.proxies[gpu.name].socket for gpu in topology.gpus]
            # Report dead parts before the client closes: its agents end with it.
            with agent_client(sockets, spec, bed.watch.check) as agents, deaths_told(bed.watch):
                placement = job_placement(spec)
                agents.place(placement.gpu_numbers())
                with reporting_other_runs(lock, tell, known):
                    yield Experiment(agents, placement, lock, topology, bed, up_s)


Executions = Generator[Repeat, None, None]


def executions(
    kind: Kind,
    fabric: Experiment,
    schedule: Steps,
    prediction: Prediction,
    count: int,
    *,
    check_data: bool = False,
    before: BeforeExecution = unseeded,
) -> Executions:
    """Execute a schedule by a generator; closing the result ends its servers and sockets.

    Executions are numbered from 0; `before` is called with the number of each before its begin.
    """
    placement, bed = fabric.placement, fabric.bed
    match kind:
        case Kind.AGENT:
            yield from fabric.repeats(
                schedule, prediction, count, check_data=check_data, before=before
            )
        case Kind.IPERF3:
            process_ids = [bed.proxies[gpu.name].process_id for gpu in placement.gpus]
            hosts = Hosts(process_ids, placement.addresses())
            at_most_s = longest_s(prediction, placement.topology)
            with iperf3_flows(hosts, list(bytes_by_pair(schedule)), bed.watch.check) as flows:
                for number in range(count):
                    before(number)
                    yield flows.run(schedule, number, at_most_s)
        case Kind.SCAPY:
            topology, gpus = placement.topology, placement.gpus
            routing = Routing(topology, placement.health)
            with packet_replay(topology, gpus, routing, bed.process_ids) as replay:
                for number in range(count):
                    before(number)
                    repeat = replay.run(schedule, number)
                    bed.watch.check()
                    yield repeat


@contextmanager
def reporting_other_runs(
    lock: RunLock, tell: Tell = on_standard_error, known: set[str] | None = None
) -> Iterator[None]:
    """Report other live runs at the beginning and at the end of the context.

    The report at the end tells the earlier of two runs of the later one. Runs in `known` are not
    reported again; reported runs are added to it.
    """
    known = set() if known is None else known

    def report() -> None:
        if others := live_run_ids() - {lock.run_id} - known:
            known.update(others)
            tell(f"other runs disturb this one, and it disturbs them: {', '.join(sorted(others))}")

    report()
    yield
    # A failed search for other runs must not discard the measurement.
    with suppress(EmulationError):
        report()
