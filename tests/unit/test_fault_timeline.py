"""The fault timeline of an execution: when faults begin and end, and when a job aborts."""

import time
from collections.abc import Callable
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from execution.faults.fault_timeline import (
    PREPARING_S,
    WATCH_EVERY_S,
    FaultTimeline,
    break_component,
    moment_s,
)
from linux.processes.lifetime import Watch
from model.errors import EmulationError
from model.fabric.build import build_topology
from model.fabric.health import Epoch
from model.fabric.spec import FabricKind
from model.faults import Component, Fault, FaultMode
from model.prediction.fluid import path_class, predict
from model.workload.transfers.collective import Collective
from tests.unit.fabrics import spec, transfer_paths
from traffic_gen.agents.client import Aborted
from traffic_gen.workloads.sized_collective import SizedCollective

TOPOLOGY = build_topology(spec(FabricKind.RAIL_OPTIMIZED, 3, 2, 3))


class Breaker:
    """Records broken and repaired components, in place of a `FaultInjector`."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.due_ns: list[int] = []

    def due_at(self, due_ns: int) -> None:
        self.due_ns.append(due_ns)

    def moment_ns(self, since_ns: int) -> int:
        return max(since_ns, self.due_ns[-1])

    def __getattr__(self, name: str) -> Callable[..., Callable[[], None]]:
        def break_it(part: Any = "controller", *_: Any) -> Callable[[], None]:
            what = getattr(part, "name", part)
            self.done.append(f"{what} broken")
            return lambda: self.done.append(f"{what} repaired")

        return break_it


class Agents:
    """Records the GPUs whose agents are announced as lost."""

    def __init__(self) -> None:
        self.lost: list[int] = []

    def lose(self, gpu: int) -> None:
        self.lost.append(gpu)


def timeline_of(*faults: Fault, gives_up: bool = False) -> tuple[FaultTimeline, Breaker, Agents]:
    breaker, agents = Breaker(), Agents()
    fabric = SimpleNamespace(topology=TOPOLOGY, agents=agents, bed=SimpleNamespace(watch=Watch()))
    moments_s = [fault.at_s for fault in faults]
    timeline = FaultTimeline(
        cast(Any, fabric), cast(Any, breaker), moments_s, faults, lambda _: gives_up
    )
    return timeline, breaker, agents


def test_a_fault_begins_and_ends_at_its_times() -> None:
    link = "d0g0--rail0"
    timeline, breaker, _ = timeline_of(
        Fault(Component.NIC_LINK, FaultMode.DOWN, link, at_s=1, for_s=2)
    )
    assert timeline(0.25) == 0.75 - PREPARING_S
    assert breaker.done == []
    assert timeline(1 - PREPARING_S) == WATCH_EVERY_S
    assert breaker.done == [f"{link} broken"]
    assert breaker.due_ns == [timeline.started_ns + 10**9]
    timeline(3.1)
    assert breaker.done == [f"{link} broken", f"{link} repaired"]
    (record,) = timeline.records
    assert record.begun_ns == breaker.due_ns[0]
    assert record.ended_ns is not None


def test_the_moments_of_a_fault_are_those_at_which_it_takes_effect() -> None:
    """Its preparation comes before."""
    fault = Fault(Component.NIC_LINK, FaultMode.BLACKHOLE, "d0g0--rail0", at_s=1, for_s=2)
    timeline, breaker, _ = timeline_of(fault)
    breaker.moment_ns = lambda since_ns: since_ns + 10**9  # type: ignore[method-assign]
    called_ns = time.monotonic_ns()
    timeline(1.0)
    timeline(4.1)
    (record,) = timeline.records
    assert record.ended_ns is not None
    assert called_ns + 10**9 <= record.begun_ns <= record.ended_ns
    assert breaker.done == ["d0g0--rail0 broken", "d0g0--rail0 repaired"]


def test_a_fault_that_begins_late_lasts_as_long_as_it_should() -> None:
    """Breaking another takes 1.5 s."""
    link = "d0g0--rail0"
    timeline, breaker, _ = timeline_of(
        Fault(Component.NIC_LINK, FaultMode.DOWN, link, at_s=0.9, for_s=0.5)
    )
    timeline(2.3)
    assert breaker.done == [f"{link} broken"]
    timeline(2.79 - PREPARING_S)
    assert breaker.done == [f"{link} broken"]
    timeline(2.81 - PREPARING_S)
    assert breaker.done == [f"{link} broken", f"{link} repaired"]


def test_what_stays_broken_is_undone_once() -> None:
    timeline, breaker, _ = timeline_of(
        Fault(Component.RAIL_SWITCH, FaultMode.DOWN, "rail1", at_s=0)
    )
    timeline(0.0)
    timeline.finish()
    assert timeline.records[0].ended_ns is None
    timeline.undo()
    timeline.undo()
    assert breaker.done == ["rail1 broken", "rail1 repaired"]


def test_what_is_still_to_come_when_the_execution_ends_comes_at_its_time() -> None:
    timeline, breaker, _ = timeline_of(
        Fault(Component.CONTROLLER, FaultMode.KILL, "controller", at_s=0, for_s=0.15)
    )
    timeline(0.0)
    begun_s = time.monotonic()
    timeline.finish()
    assert time.monotonic() - begun_s > 0.13 - PREPARING_S
    assert breaker.due_ns[-1] == pytest.approx(timeline.records[0].begun_ns + 0.15e9, abs=10)
    assert breaker.done == ["controller broken", "controller repaired"]


def test_the_end_of_a_fault_is_not_waited_for_when_a_part_dies() -> None:
    fault = Fault(Component.NIC_LINK, FaultMode.DOWN, "d0g0--rail0", at_s=0, for_s=3600)
    timeline, _, _ = timeline_of(fault)
    timeline(0.0)

    def dead() -> None:
        raise EmulationError("d0g1 (GPU proxy) died")

    timeline._fabric.bed.watch.add_check(dead)
    with pytest.raises(EmulationError, match="d0g1"):
        timeline.finish()


@given(st.integers(1, 6), st.floats(0.01, 2))
def test_a_flapping_link_is_down_for_half_of_each_period(count: int, period_s: float) -> None:
    fault = Fault(Component.UPLINK, FaultMode.FLAP, "rail0--spine0", period_s=period_s, count=count)
    timeline, breaker, _ = timeline_of(fault)
    for half in range(2 * count):
        timeline((half + 0.25 + 0.5 * (half % 2)) * period_s / 2 - PREPARING_S)
        expected = "broken" if half % 2 == 0 else "repaired"
        assert breaker.done[-1].endswith(expected)
    assert len(breaker.done) == 2 * count


@pytest.mark.parametrize(("mode", "lost"), [(FaultMode.KILL, [2, 3]), (FaultMode.DOWN, [])])
def test_a_domain_that_is_killed_is_all_its_agents(mode: FaultMode, lost: list[int]) -> None:
    timeline, breaker, agents = timeline_of(Fault(Component.DOMAIN, mode, "d1", at_s=0))
    timeline(0.0)
    assert agents.lost == lost
    assert breaker.done == ["d1g0 broken", "d1g1 broken"]


class HalfBroken(Breaker):
    """Breaks the first part, and fails at the second."""

    def break_gpu(self, gpu: str, _mode: FaultMode) -> Callable[[], None]:
        if self.done:
            raise EmulationError(f"{gpu}: cannot be broken")
        return self.__getattr__("break_gpu")(gpu)


def test_a_domain_that_breaks_in_part_is_repaired() -> None:
    breaker, fault = HalfBroken(), Fault(Component.DOMAIN, FaultMode.DOWN, "d1")
    with pytest.raises(EmulationError, match="d1g1: cannot be broken"):
        break_component(cast(Any, breaker), TOPOLOGY, fault)
    assert breaker.done == ["d1g0 broken", "d1g0 repaired"]


def test_a_job_gives_up_only_when_something_is_broken() -> None:
    fault = Fault(Component.GPU, FaultMode.DOWN, "d0g0", at_s=1)
    timeline, _, _ = timeline_of(fault, gives_up=True)
    timeline(0.5)
    with pytest.raises(Aborted):
        timeline(1.0)


def test_nothing_due_means_no_hurry() -> None:
    timeline, _, _ = timeline_of()
    assert timeline(1.0) == inf


def test_a_step_begins_when_the_model_says_so() -> None:
    schedule = SizedCollective(Collective.ALL_REDUCE, "ring", (3, 2), 6_000_000).steps()
    paths = transfer_paths(schedule.transfers, Epoch(TOPOLOGY), TOPOLOGY.job_gpus)
    latency_s = dict.fromkeys((path_class(hops) for hops in paths if hops), 0.001)
    prediction = predict(schedule, [Epoch(TOPOLOGY)], latency_s)
    moments_s = [
        moment_s(Fault(Component.NIC_LINK, FaultMode.DOWN, "", at_step=step), schedule, prediction)
        for step in range(10)
    ]
    assert moments_s[0] == 0
    assert moments_s == sorted(set(moments_s))
    assert moments_s[-1] == pytest.approx(0.9 * prediction.completion_s, rel=0.05)
    assert (
        moment_s(Fault(Component.NIC_LINK, FaultMode.DOWN, "", at_s=7), schedule, prediction) == 7
    )
