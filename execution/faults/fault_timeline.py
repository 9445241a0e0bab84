"""Inject faults while a collective is executed, and record their actual times."""

import heapq
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from math import inf

from execution.cases.emulation import Experiment
from model.fabric.topology import Topology
from model.faults import Component, Fault, FaultMode, nodes
from model.measurement.records import FaultRecord
from model.prediction.fluid import Prediction
from model.workload.schedule import Steps
from testbed.faults.injector import FaultInjector, Undo
from traffic_gen.agents.client import Aborted

WATCH_EVERY_S = 0.002
# What is due is prepared so long before.
PREPARING_S = 0.1
# Seconds between two checks of the testbed's parts while no execution is under way.
LOOK_EVERY_S = 0.1


class FaultTimeline:
    """Begins and ends faults at their times during an execution.

    A fault that begins late, as breaking another takes time, lasts as long as it should.

    Once a fault has begun, `gives_up` tells whether the job aborts the execution; by default, it
    goes on. The argument is the execution's start in nanoseconds of CLOCK_MONOTONIC, as is
    `started_ns`, which is 0 until then.
    """

    def __init__(
        self,
        fabric: Experiment,
        injector: FaultInjector,
        moments_s: Sequence[float],
        faults: Sequence[Fault],
        gives_up: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self._fabric, self._injector, self._gives_up = fabric, injector, gives_up
        self.started_ns = 0
        self._numbers = count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._undos: dict[int, Undo] = {}
        self._records: dict[int, FaultRecord] = {}
        for moment_s, fault in zip(moments_s, faults, strict=True):
            for period in range(fault.count if fault.mode is FaultMode.FLAP else 1):
                self._at(moment_s + period * fault.period_s, partial(self._begin, fault))

    @property
    def records(self) -> tuple[FaultRecord, ...]:
        """Records of the faults that have begun until now."""
        return tuple(self._records.values())

    def _at(self, moment_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (moment_s, next(self._numbers), action))

    def _begin(self, fault: Fault) -> None:
        number, called_ns = next(self._numbers), time.monotonic_ns()
        topology = self._fabric.topology
        if fault.mode is FaultMode.KILL and fault.component in (Component.GPU, Component.DOMAIN):
            for gpu in nodes(topology, fault):
                self._fabric.agents.lose(topology.gpus.index(topology.gpu_by_name[gpu]))
        self._undos[number] = break_component(self._injector, topology, fault)
        begun_ns = self._injector.moment_ns(called_ns)
        self._records[number] = FaultRecord(fault, begun_ns, None)
        lasts_s = fault.period_s / 2 if fault.mode is FaultMode.FLAP else fault.for_s
        if lasts_s is not None:
            since_start_s = (begun_ns - self.started_ns) / 1e9
            self._at(since_start_s + lasts_s, partial(self._end, number))

    def _end(self, number: int) -> None:
        undo = self._undos.pop(number, None)
        if undo is not None:
            record, called_ns = self._records[number], time.monotonic_ns()
            undo()
            ended_ns = self._injector.moment_ns(called_ns)
            self._records[number] = FaultRecord(record.fault, record.begun_ns, ended_ns)

    def __call__(self, since_start_s: float) -> float:
        """Begin and end due faults; return seconds until the next call, or raise `Aborted`."""
        self.started_ns = time.monotonic_ns() - round(since_start_s * 1e9)
        while self._due and self._due[0][0] - PREPARING_S <= since_start_s:
            self._act()
        if self._records and self._gives_up(self.started_ns):
            raise Aborted
        following_s = self._due[0][0] - PREPARING_S - since_start_s if self._due else inf
        return max(0.0, min(following_s, WATCH_EVERY_S if self._records else inf))

    def _act(self) -> None:
        """Begin or end the next fault at its time, or as soon after as it can be."""
        due_s, _, action = heapq.heappop(self._due)
        self._injector.due_at(self.started_ns + round(due_s * 1e9))
        action()

    def finish(self) -> None:
        """Begin and end, after the execution, the faults that are still due, each at its time.

        Raises `EmulationError` if a part of the testbed dies or is stopped meanwhile.
        """
        while self._due:
            prepare_s = self.started_ns / 1e9 + self._due[0][0] - PREPARING_S
            while (left_s := prepare_s - time.monotonic()) > 0:
                self._fabric.bed.watch.check()
                time.sleep(min(left_s, LOOK_EVERY_S))
            self._act()

    def undo(self) -> None:
        """End all faults that still last."""
        for number in list(self._undos):
            self._end(number)


def break_component(injector: FaultInjector, topology: Topology, fault: Fault) -> Undo:
    """Break a fault's component in the fault's mode; return the undo function."""
    mode = FaultMode.DOWN if fault.mode is FaultMode.FLAP else fault.mode
    match fault.component:
        case Component.CONTROLLER:
            return injector.kill_controller()
        case Component.NIC_LINK | Component.HB_LINK | Component.HB_TRUNK | Component.UPLINK:
            return injector.break_link(topology.link_by_name[fault.target], mode, fault.rate_bps)
        case Component.GPU | Component.DOMAIN:
            return _all(injector.break_gpu(gpu, mode) for gpu in nodes(topology, fault))
        case Component.RAIL_SWITCH | Component.SPINE_SWITCH | Component.HB_SWITCH:
            return injector.break_switch(fault.target, mode)


def _all(undos: Iterator[Undo]) -> Undo:
    """Return one undo for all; undo those that were made if a later one cannot be."""
    with ExitStack() as made:
        for undo in undos:
            made.callback(undo)
        return made.pop_all().close


def moment_s(fault: Fault, schedule: Steps, prediction: Prediction) -> float:
    """Return a fault's begin in seconds from the start; for `at_step`, the step's modeled begin."""
    if fault.at_step is None:
        return fault.at_s
    depth: list[int] = []
    begins: dict[int, float] = {}
    for transfer in schedule.transfers:
        depth.append(1 + max((depth[earlier] for earlier in transfer.after), default=-1))
        begin_s = max((prediction.arrival_s[earlier] for earlier in transfer.after), default=0.0)
        begins[depth[-1]] = min(begin_s, begins.get(depth[-1], inf))
    return begins[min(fault.at_step, max(begins))]
