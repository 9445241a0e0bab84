"""Bring up one fabric with its agents, predict schedules, and yield their executions.

This is the heart of a run. It stores nothing and prints nothing: it yields the measurements.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from execution.cases.seeding import BeforeExecution, unseeded
from linux.machine.resources import provide_files
from linux.processes.run_lock import RunLock, run_lock
from model.fabric.link_probes import longest_detection_s
from model.fabric.spec import FabricSpec
from model.fabric.topology import Topology, build_topology
from model.job.placement import Placement, job_placement
from model.measurement.records import Repeat
from model.prediction.fluid import Prediction, path_class, paths_of_pairs, predict
from model.prediction.network import PathClass
from model.workload.schedule import Steps
from testbed.nodes.gpu_proxies import ProxyKind
from testbed.testbed import Testbed, deaths_told, testbed
from traffic_gen.agents import agent
from traffic_gen.agents.client import AgentClient, OnTick, agent_client, no_ticks
from traffic_gen.workloads.point_to_point import ping_pong

AGENT = Path(agent.__file__)
# A repeat is given up after `PATIENCE` times its modeled time and `PATIENCE_S` more, and after
# twice the time until a gray failure is found and TCP sends again: TCP doubles its waits.
PATIENCE = 5
PATIENCE_S = 10
LATENCY_ROUNDS, LATENCY_AT_MOST_S = 20, 10


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
        """Measure the idle latency in seconds of each class of paths that the schedule uses."""
        representative: dict[PathClass, tuple[int, int]] = {}
        transfers, placement = schedule.transfers, self.placement
        pairs = zip(transfers.source.tolist(), transfers.destination.tolist(), strict=True)
        for pair, hops in paths_of_pairs(pairs, placement.epoch, placement.gpus).items():
            if hops:
                representative.setdefault(path_class(hops), pair)
        return {kind: self._latency_s(*pair) for kind, pair in representative.items()}

    def _latency_s(self, source: int, destination: int) -> float:
        exchange = ping_pong(source, destination, LATENCY_ROUNDS)
        done = self.agents.execute(exchange, self.placement.addresses(), LATENCY_AT_MOST_S)
        return median(record.arrived_ns - record.started_ns for record in done.records) / 1e9

    def predict(self, schedule: Steps) -> Prediction:
        """Predict the schedule with the present placement, with latencies measured now."""
        placement, latency_s = self.placement, self.path_latencies_s(schedule)
        return predict(schedule, placement.topology, latency_s, placement.health, placement.gpus)

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
    ) -> Iterator[Repeat]:
        """Execute a schedule `count` times; raise `Incomplete` if the testbed breaks.

        Executions are numbered from `first`; none starts before `not_before_ns`. `before` is called
        with the number of each execution before its begin.
        """
        self.agents.load(schedule, self.placement.addresses(), check_data=check_data)
        at_most_s = longest_s(prediction, self.placement.topology)
        for number in range(first, first + count):
            before(number)
            yield self.agents.run(schedule, number, at_most_s, on_tick, not_before_ns)


def longest_s(prediction: Prediction, topology: Topology) -> float:
    """Seconds after which an execution is given up."""
    stalled_s = longest_detection_s(topology) + topology.tcp_timeout_s
    return PATIENCE * prediction.completion_s + PATIENCE_S + 2 * stalled_s


@dataclass
class Experiment(PlacedJob):
    """A fabric that is up, with a placed job."""

    lock: RunLock
    topology: Topology
    bed: Testbed
    up_s: float


@contextmanager
def experiment(spec: FabricSpec, kind: ProxyKind, run_id: str) -> Iterator[Experiment]:
    """Bring a fabric up, in a run with this id, and connect to its agents."""
    provide_files(spec.gpus)
    with run_lock(run_id) as lock:
        begun_s = time.monotonic()
        topology = build_topology(spec)
        with testbed(topology, kind, AGENT, lock) as bed:
            up_s = time.monotonic() - begun_s
            sockets = [bed.proxies[gpu.name].socket for gpu in topology.gpus]
            # Report dead parts before the client closes: its agents end with it.
            with agent_client(sockets, bed.watch.check) as agents, deaths_told(bed.watch):
                fabric = Experiment(agents, job_placement(spec), lock, topology, bed, up_s)
                fabric.rearrange(fabric.placement)
                yield fabric
