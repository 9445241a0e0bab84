"""A user's session on a running fabric: faults, workloads, paths and loads, one at a time.

A session uses the injector, the agents, the prober and the model of experiments. Faults and
readings belong to one thread, as a restarted process dies with its thread.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from math import inf
from pathlib import Path
from threading import Lock
from typing import Concatenate, ParamSpec, TypeVar

from execution.cases.emulation import Experiment
from execution.cases.observer import carried
from execution.faults.convergence import fault_times, wait_until_converged
from execution.faults.fault_timeline import break_component
from model.errors import InputError, Problem
from model.fabric.health import Health
from model.fabric.topology import Gpu, Hop, Port, Topology
from model.faults import Component, Fault, health_under
from model.job.placement import Placement
from model.job.probing import probed_pairs
from model.measurement.records import FaultRecord, ProbePath, Repeat
from model.prediction.fluid import Prediction
from model.routing.paths import Routing, Unreachable, require_connected
from model.workload.transfers.columns import streams
from results.verdicts.fault_impact import FaultTimes
from scenarios.scenario import Case
from testbed.faults.injector import FaultInjector, Undo
from testbed.nodes.controller_process import read_journal
from testbed.testbed import Testbed
from traffic_gen.agents.client import Aborted
from traffic_gen.probes.blackout import Blackout, PairRecord, longest
from traffic_gen.probes.path_tracer import path_probes
from traffic_gen.probes.prober_process import probing

# Affected pairs that are probed while a fault begins: each takes 1000 probes a second.
MOST_PROBED = 8
# Seconds between two checks whether an execution shall end, or the user has ended the wait.
LOOK_EVERY_S = 0.1
# Seconds that a transfer of `throughput_bps` takes at the slowest link's rate, and at most.
STREAMED_S, STREAM_AT_MOST_S = 1.0, 30.0


@dataclass(frozen=True)
class FaultSeen:
    """The effects of a fault that began at `begun_ns`: the controller's times, and blackouts.

    `blackouts` has the longest one of each probed pair, affected pairs that have another path;
    `None` for a pair that lost no probe. With `controller_is_gone`, nobody answers.
    """

    fault: Fault
    health: Health
    times: FaultTimes
    begun_ns: int
    blackouts: Mapping[str, Blackout | None]
    controller_is_gone: bool = False

    @property
    def blackout_ms(self) -> float | None:
        """The longest blackout of all probed pairs; `None` if no pair was probed."""
        lasted_ms = (one.duration_ms if one else 0.0 for one in self.blackouts.values())
        return max(lasted_ms, default=None)


@dataclass(frozen=True)
class Executed:
    """An execution of a workload, and its prediction for the fabric's health at its begin.

    `changes` name the faults that began or ended meanwhile, each with seconds since its start: the
    prediction does not hold then.
    """

    case: Case
    repeat: Repeat
    prediction: Prediction
    changes: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class PathSeen:
    """The intended path of a pair's packets (`None` if cut off), and traces of probes."""

    intended: tuple[Hop, ...] | None
    traces: tuple[ProbePath, ...]


@dataclass(frozen=True)
class LinkLoad:
    """One direction of a link: bits per second carried, their share of its rate, its backlog."""

    hop: Hop
    carried_bps: float
    use: float
    backlog_bytes: int


P = ParamSpec("P")
T = TypeVar("T")


def _by_operator(
    method: Callable[Concatenate["Session", P], T],
) -> Callable[Concatenate["Session", P], T]:
    """Let the session's operator thread execute a method, and wait for its result."""

    @wraps(method)
    def handed_over(session: "Session", /, *args: P.args, **kwargs: P.kwargs) -> T:
        handed = session.operator.submit(method, session, *args, **kwargs)
        # A wait without an end misses a Ctrl-C that comes just before it.
        while not wait([handed], LOOK_EVERY_S).done:
            pass
        return handed.result()

    return handed_over


class Session:
    """Faults, executions and readings on a fabric that is up; one execution at a time.

    `folder` is for records of probes, `changed` is called when a fault has begun or is being
    undone. Close it before the fabric goes down.
    """

    def __init__(
        self,
        fabric: Experiment,
        folder: Path,
        changed: Callable[["Session"], None] = lambda _: None,
    ) -> None:
        self.fabric, self._folder, self._changed = fabric, folder, changed
        self.home = fabric.placement
        self._injector = FaultInjector(fabric.bed)
        self._undos: dict[str, tuple[Fault, Undo]] = {}
        # The health on which the controller has converged; faults after its end are not in it.
        self._answered = self.health
        # Each change of the fabric, with the moment of CLOCK_MONOTONIC at which it began.
        self._changes: list[tuple[int, str]] = []
        self._executing = Lock()
        # Held while agents connect, as one without a path would end, and while paths change.
        self._connecting = Lock()
        self.operator = ThreadPoolExecutor(1, "operator")

    def close(self) -> None:
        """End the operator's thread."""
        self.operator.shutdown()

    @property
    def topology(self) -> Topology:
        """The fabric's nodes and links."""
        return self.fabric.topology

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults that last, in the order in which they began."""
        # The operator may change them meanwhile: a list of a dictionary is made at once.
        return tuple(fault for fault, _ in list(self._undos.values()))

    @property
    def health(self) -> Health:
        """The health of the fabric under the faults that last."""
        return health_under(self.topology, self.faults)

    @_by_operator
    def inject(self, fault: Fault) -> FaultSeen:
        """Begin a fault while affected pairs are probed; wait until the controller has converged.

        Raises `InputError` if the component is broken already.
        """
        if fault.target in self._undos:
            broken = self._undos[fault.target][0].mode
            raise InputError(Problem(fault.target, f"is already {broken}", "heal it first"))
        before = replace(self.home, health=self.health)
        pairs, _ = probed_pairs(before, [fault], MOST_PROBED, lasting=self.faults)
        if not pairs:
            return self._seen(self._begin(fault))
        bed = self.fabric.bed
        with probing(bed.process_ids, pairs, self._folder, bed.watch) as probes:
            return self._seen(self._begin(fault), probes.stop())

    def _begin(self, fault: Fault) -> FaultRecord:
        with self._changing(fault, fault.name):
            called_ns = time.monotonic_ns()
            undo = break_component(self._injector, self.topology, fault)
            record = FaultRecord(fault, self._injector.moment_ns(called_ns), None)
            self._undos[fault.target] = fault, undo
            self._changed(self)
        return record

    @contextmanager
    def _changing(self, fault: Fault, change: str) -> Iterator[None]:
        """Note a change before it is made, and wait until the controller has converged.

        Paths and rates stay as they are when the controller alone dies or comes back.
        """
        with self._connecting:
            if fault.component is not Component.CONTROLLER:
                self._changes.append((time.monotonic_ns(), change))
            yield
            self._wait_until_converged()

    def _seen(self, record: FaultRecord, probed: Sequence[PairRecord] = ()) -> FaultSeen:
        begun_ns, events = record.begun_ns, read_journal(self.fabric.bed.controller.journal)
        blackouts = {pair.name: longest([pair], begun_ns) for pair in probed}
        times = fault_times(record, begun_ns, events, self.topology)
        gone = self._controller_is_gone()
        return FaultSeen(record.fault, self.health, times, begun_ns, blackouts, gone)

    @_by_operator
    def heal(self, target: str) -> None:
        """Undo the fault of a component; wait until the controller has converged."""
        if target not in self._undos:
            broken = ", ".join(self._undos) or "nothing"
            raise InputError(Problem(target, f"is not broken; broken: {broken}"))
        with self._changing(self._undos[target][0], f"{target} healed"):
            _, undo = self._undos.pop(target)
            self._changed(self)
            undo()

    def _wait_until_converged(self) -> None:
        """Wait until the controller, if it runs, has answered all faults that last."""
        health = self.health
        if not self._controller_is_gone():
            wait_until_converged(self.fabric.bed, health.failed)
            self._answered = health

    def _controller_is_gone(self) -> bool:
        return any(fault.component is Component.CONTROLLER for fault in self.faults)

    def _require_answered(self, command: str) -> None:
        """Raise `InputError` if the controller is gone, and the health has changed since."""
        if self._controller_is_gone() and self.health != self._answered:
            what = "the controller is dead; changes since then are not applied"
            raise InputError(Problem(command, what, "`heal controller` first"))

    def execute(self, case: Case, ends: Callable[[], bool]) -> Executed | None:
        """Execute a workload once; `None` if it ended early because `ends()` became true.

        Raises `InputError` if the agents are in use, if GPUs have no path, or if the controller is
        gone and has not answered all faults.
        """
        aborted = False
        with self._only_one("run"), ExitStack() as connecting:
            connecting.enter_context(self._connecting)
            self._require_answered("run")
            known = len(self._changes)
            placement = replace(self.home, health=self.health)
            try:
                require_connected(placement.topology, placement.health)
            except Unreachable as error:
                what = f"{error}: no execution would complete"
                raise InputError(Problem("run", what, "heal a fault")) from error
            schedule = case.schedule(self.topology.spec)
            self.fabric.rearrange(placement)
            prediction = self.fabric.predict(schedule)

            def look(_since_start_s: float) -> float:
                nonlocal aborted
                connecting.close()
                if ends():
                    aborted = True
                    raise Aborted
                return LOOK_EVERY_S

            (repeat,) = self.fabric.repeats(schedule, prediction, 1, check_data=False, on_tick=look)
        changes = self._changes_during(repeat, known)
        return None if aborted else Executed(case, repeat, prediction, changes)

    def _changes_during(self, repeat: Repeat, known: int) -> tuple[tuple[float, str], ...]:
        """The changes after the first `known` ones, until the execution's last byte arrived."""
        until_ns = repeat.end_ns if repeat.complete else inf
        later = [(ns, change) for ns, change in self._changes[known:] if ns < until_ns]
        # The start lies a moment ahead when agents have connected.
        return tuple((max(0, ns - repeat.start_ns) / 1e9, change) for ns, change in later)

    @contextmanager
    def _only_one(self, command: str) -> Iterator[None]:
        """Use the agents; raises `InputError` if they are in use."""
        if not self._executing.acquire(blocking=False):
            raise _in_use(command)
        try:
            yield
        finally:
            self._executing.release()

    def throughput_bps(self, source: Gpu, destination: Gpu) -> float:
        """The payload in bit/s that the agents of two GPUs carry, in about a second.

        Raises `InputError` as `execute` does. Ctrl-C ends the wait for the result alone: the
        operator's thread still takes the agents' records.
        """
        if self._executing.locked():
            raise _in_use("iperf")
        return self._stream_bps(source, destination)

    @_by_operator
    def _stream_bps(self, source: Gpu, destination: Gpu) -> float:
        self._require_answered("iperf")
        placement = replace(self.home, health=self.health)
        hops = _require_path(placement, source, destination)
        size_bytes = round(min(placement.health.rate_bps(hop) for hop in hops) / 8 * STREAMED_S)
        ranks = placement.gpus.index(source), placement.gpus.index(destination)
        with self._only_one("iperf"):
            self.fabric.rearrange(placement)
            transfers = streams([(*ranks, size_bytes)])
            done = self.fabric.agents.execute(transfers, placement.addresses(), STREAM_AT_MOST_S)
        (record,) = done.records
        return size_bytes * 8e9 / (record.arrived_ns - record.started_ns)

    @_by_operator
    def path(self, source: Gpu, destination: Gpu) -> PathSeen:
        """The intended path between two GPUs, and the paths that probes take."""
        intended = Routing(self.topology, self.health).path_if_any(source, destination)
        with path_probes(self.topology, self.fabric.bed.process_ids) as probes:
            return PathSeen(intended, probes.trace(source, destination))

    @_by_operator
    def load(self, seconds: float) -> list[LinkLoad]:
        """The load of each direction of each link in `seconds`, and the backlog at their end."""
        links, health = self.fabric.bed.links, self.health
        before = links.read_counters()
        time.sleep(seconds)
        counted = carried(self.fabric, before, links.read_counters())
        backlogs, loads = _backlogs(self.fabric.bed), []
        for hop, size_bytes in counted.bytes.items():
            carried_bps, end = size_bytes * 8 / counted.seconds, hop.link.port_of(hop.sender)
            use = carried_bps / health.rate_bps(hop)
            loads.append(LinkLoad(hop, carried_bps, use, backlogs.get(end, 0)))
        return loads


def _backlogs(bed: Testbed) -> dict[Port, int]:
    ends = (end for link in bed.topology.links for end in (link.lower, link.upper))
    ports = {bed.links.key_of(end): end for end in ends if end.node not in bed.links.lost}
    return {ports[key]: one.backlog_bytes for key, one in bed.links.queues() if key in ports}


def _in_use(command: str) -> InputError:
    what = "a workload or iperf is running"
    return InputError(Problem(command, what, "`stop` ends a workload, iperf ends by itself"))


def _require_path(placement: Placement, source: Gpu, destination: Gpu) -> tuple[Hop, ...]:
    """The path between two GPUs of the job; raises `InputError` if there is none."""
    spare = [gpu.name for gpu in (source, destination) if gpu not in placement.gpus]
    if spare:
        raise InputError(Problem("iperf", f"{spare[0]} is a spare GPU, which no job uses"))
    try:
        return Routing(placement.topology, placement.health).path(source, destination)
    except Unreachable as error:
        raise InputError(Problem("iperf", str(error), "heal a fault")) from error
