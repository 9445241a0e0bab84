"""Observations of executions: their span, their agents' waits, and what is judged of them."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from execution.cases import observer as module
from execution.cases.observer import Observer
from model.measurement.cpu_windows import ThreadTime, Window
from model.measurement.pauses import PauseLog
from model.measurement.records import Repeat
from results.verdicts.fidelity import fidelity_during_fault, machine_headroom

AGENT = 17
NS = 10**9


class Machine:
    """A clock that is set, an agent that waits for a core, and instruments that see all."""

    def __init__(self) -> None:
        self.ns = 0
        self.agent_waited_ns = 0

    def monotonic_ns(self) -> int:
        return self.ns

    def log_until(self, moment_ns: int) -> PauseLog:
        return PauseLog(2, 0, moment_ns, ())

    @property
    def windows(self) -> tuple[Window, ...]:
        edges_ns = range(0, self.ns, NS // 10)
        return tuple(
            Window(begin_ns, begin_ns + NS // 10, 0.8, 0.0, 0.2, 0.02, 0.05)
            for begin_ns in edges_ns
        )

    def thread_times(self, process_ids: tuple[int, ...]) -> dict[int, ThreadTime]:
        return dict.fromkeys(process_ids, ThreadTime(0, self.agent_waited_ns))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(module, "thread_times", made.thread_times)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic_ns=made.monotonic_ns))
    return made


@pytest.fixture
def observer(machine: Machine) -> Observer:
    links = SimpleNamespace(process_ids={"d0g0": AGENT}, queues=lambda: ())
    fabric = SimpleNamespace(
        bed=SimpleNamespace(links=links), topology=SimpleNamespace(least_depth_s=0.01)
    )
    instruments: Any = machine
    return Observer(cast(Any, fabric), instruments, instruments)


def execution(number: int, start_ns: int, completion_s: float, *, complete: bool = True) -> Repeat:
    """An execution whose last agent began 5 ms late."""
    return Repeat(number, complete, completion_s, 0.005, 0.1, (0,), (), (), start_ns)


@pytest.mark.parametrize("arrived_s", [0.0, 0.3])
def test_an_aborted_execution_is_observed_until_its_abort(
    machine: Machine, observer: Observer, arrived_s: float
) -> None:
    """Its last byte may have arrived long before, or none at all."""
    aborted = execution(0, NS, arrived_s, complete=False)
    machine.ns = NS + NS * 4 // 10
    observer.begin()
    observer.note(aborted)
    (seen,) = observer.observations([aborted])
    assert (seen.seconds, len(seen.windows)) == (0.4, 4)
    assert fidelity_during_fault([seen]).reasons == ()


def test_the_start_skew_is_that_of_complete_executions(
    machine: Machine, observer: Observer
) -> None:
    aborted, again = execution(0, NS, 0.1, complete=False), execution(1, 2 * NS, 1.0)
    for repeat, ended_s in ((aborted, 1.1), (again, 3.0)):
        machine.ns = round(ended_s * NS)
        observer.note(repeat)
    headroom = machine_headroom(observer.observations([aborted, again]), dropped_packets=0)
    assert headroom is not None
    assert headroom.start_skew == 0.005
    alone = machine_headroom(observer.observations([aborted]), dropped_packets=0)
    assert alone is not None
    assert alone.start_skew == 0


def test_waits_count_from_the_begin_of_an_execution(machine: Machine, observer: Observer) -> None:
    """Between an abort and the restart, agents wait for cores as well."""
    machine.agent_waited_ns, machine.ns = 20_000_000, NS
    observer.begin(1)
    machine.agent_waited_ns, machine.ns = 30_000_000, 2 * NS
    repeat = execution(1, NS, 1.0)
    observer.note(repeat)
    (seen,) = observer.observations([repeat])
    assert seen.agents_delay_s == (0.01,)


def test_waits_are_those_of_agents_with_work_where_they_report_them(
    machine: Machine, observer: Observer
) -> None:
    """The kernel may count the sleep of an idle agent, all the time until the next execution."""
    observer.begin(0)
    machine.agent_waited_ns, machine.ns = NS, 2 * NS
    repeat = replace(execution(0, NS, 1.0), waited_s=(0.02, 0.0))
    observer.note(repeat)
    (seen,) = observer.observations([repeat])
    assert seen.agents_delay_s == (0.02, 0.0)


def test_a_complete_execution_ends_with_its_last_byte(machine: Machine, observer: Observer) -> None:
    repeat = execution(0, NS, 0.5)
    machine.ns = 3 * NS
    observer.note(repeat)
    assert observer.observations([repeat])[0].seconds == 0.5
