"""Executions of a schedule by the generator that its workload names."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass

from execution.cases.emulation import Experiment, longest_s
from execution.cases.seeding import BeforeExecution
from model.measurement.records import Repeat
from model.prediction.fluid import Prediction
from model.routing.paths import Routing
from model.workload.generator import Generator as Kind
from model.workload.schedule import Steps
from traffic_gen.generators.iperf3_flows import iperf3_flows
from traffic_gen.generators.packet_replay import packet_replay
from traffic_gen.iperf3 import Hosts, bytes_by_pair


@dataclass(frozen=True)
class Request:
    """Executions to make, numbered from 0; `before` is called with the number of each."""

    schedule: Steps
    prediction: Prediction
    count: int
    check_data: bool
    before: BeforeExecution

    def numbers(self) -> Iterator[int]:
        """Yield the number of each execution, when it may begin."""
        for number in range(self.count):
            self.before(number)
            yield number


Executions = Generator[Repeat, None, None]


def executions(kind: Kind, fabric: Experiment, request: Request) -> Executions:
    """Execute a schedule by a generator; closing the result ends its servers and sockets."""
    match kind:
        case Kind.AGENT:
            return _by_agents(fabric, request)
        case Kind.IPERF3:
            return _by_iperf3(fabric, request)
        case Kind.SCAPY:
            return _by_scapy(fabric, request)


def _by_agents(fabric: Experiment, request: Request) -> Executions:
    yield from fabric.repeats(
        request.schedule,
        request.prediction,
        request.count,
        check_data=request.check_data,
        before=request.before,
    )


def _by_iperf3(fabric: Experiment, request: Request) -> Executions:
    placement, process_ids = fabric.placement, fabric.bed.process_ids
    hosts = Hosts([process_ids[gpu.name] for gpu in placement.gpus], placement.addresses())
    pairs = list(bytes_by_pair(request.schedule))
    at_most_s = longest_s(request.prediction, placement.topology)
    with iperf3_flows(hosts, pairs, fabric.bed.watch.check) as flows:
        for number in request.numbers():
            yield flows.run(request.schedule, number, at_most_s)


def _by_scapy(fabric: Experiment, request: Request) -> Executions:
    placement, process_ids = fabric.placement, fabric.bed.process_ids
    routing = Routing(placement.topology, placement.health)
    with packet_replay(placement.topology, placement.gpus, routing, process_ids) as replay:
        for number in request.numbers():
            repeat = replay.run(request.schedule, number)
            fabric.bed.watch.check()
            yield repeat
