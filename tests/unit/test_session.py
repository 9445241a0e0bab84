"""A session without a fabric: what it refuses, what Ctrl-C interrupts, what it tells of faults."""

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from execution.session import session as sessions
from execution.session.session import Session
from model.errors import EmulationError, InputError
from model.fabric.spec import FabricKind
from model.faults import Component, Fault, FaultMode
from model.job.placement import job_placement
from model.measurement.records import Repeat
from tests.unit.fabrics import spec

LINK = Fault(Component.NIC_LINK, FaultMode.DOWN, "d0g0--rail0")
SLOW = Fault(Component.NIC_LINK, FaultMode.DEGRADE, "d1g1--rail1", rate_bps=10_000)
CONTROLLER = Fault(Component.CONTROLLER, FaultMode.KILL, "controller")
CASE = cast(Any, SimpleNamespace(schedule=lambda _: None))
SECONDS = 2


class Agents:
    """Agents that carry transfers at once, or send Ctrl-C and wait until they are released."""

    def __init__(self) -> None:
        self.interrupts, self.released, self.done = False, threading.Event(), 0

    def execute(self, *_: object) -> Any:
        if self.interrupts:
            self.interrupts = False
            signal.pthread_kill(cast(int, threading.main_thread().ident), signal.SIGINT)
            assert self.released.wait(30)
        self.done += 1
        return SimpleNamespace(records=[SimpleNamespace(started_ns=0, arrived_ns=10**9 * SECONDS)])


class Faked:
    """A session on a fabric that answers each fault, until its controller does not `converge`."""

    def __init__(self, folder: Path) -> None:
        self.agents, self.told = Agents(), list[list[str]]()
        self.converges, self.now_ns = True, 10**12
        controller = SimpleNamespace(journal=folder / "journal")
        bed = SimpleNamespace(links=None, controller=controller)
        home = job_placement(spec(FabricKind.RAIL_ONLY, 2, 2))
        fabric = SimpleNamespace(
            placement=home,
            topology=home.topology,
            bed=bed,
            agents=self.agents,
            rearrange=lambda _: None,
            predict=lambda _: None,
        )
        self.session = Session(cast(Any, fabric), folder, self.changed)
        self.pair = home.topology.gpu_at[0, 0], home.topology.gpu_at[1, 0]

    def changed(self, session: Session) -> None:
        self.told.append([fault.target for fault in session.faults])

    def wait(self, *_: object, **__: object) -> None:
        if not self.converges:
            raise EmulationError("the controller does not converge")


@pytest.fixture
def faked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faked]:
    found = Faked(tmp_path)
    monkeypatch.setattr(sessions, "probed_pairs", lambda *_, **__: ([], 0))
    monkeypatch.setattr(sessions, "break_component", lambda *_: lambda: None)
    monkeypatch.setattr(sessions, "wait_until_converged", found.wait)
    monkeypatch.setattr(sessions, "time", SimpleNamespace(monotonic_ns=lambda: found.now_ns))
    yield found
    found.agents.released.set()
    found.session.close()


def test_what_the_controller_has_not_answered_is_healed_before_agents_connect(
    faked: Faked,
) -> None:
    faked.session.inject(CONTROLLER)
    faked.session.throughput_bps(*faked.pair)
    faked.session.inject(LINK)
    with pytest.raises(InputError, match=r"iperf: the controller is dead.*`heal controller` first"):
        faked.session.throughput_bps(*faked.pair)
    with pytest.raises(InputError, match=r"run: the controller is dead.*`heal controller` first"):
        faked.session.execute(cast(Any, None), lambda: False)
    assert faked.agents.done == 1
    faked.session.heal(CONTROLLER.target)
    assert faked.session.throughput_bps(*faked.pair) > 0


def test_a_fault_that_the_controller_has_answered_is_no_reason_to_refuse(faked: Faked) -> None:
    assert not faked.session.inject(LINK).controller_is_gone
    assert faked.session.inject(CONTROLLER).controller_is_gone
    assert faked.session.throughput_bps(*faked.pair) > 0
    faked.session.heal(LINK.target)
    with pytest.raises(InputError, match="the controller is dead"):
        faked.session.throughput_bps(*faked.pair)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_after_ctrl_c_the_agents_are_still_listened_to(faked: Faked) -> None:
    faked.session.throughput_bps(*faked.pair)
    faked.agents.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        faked.session.throughput_bps(*faked.pair)
    with pytest.raises(InputError, match="iperf: a workload or iperf is running"):
        faked.session.throughput_bps(*faked.pair)
    with pytest.raises(InputError, match="run: a workload or iperf is running"):
        faked.session.execute(cast(Any, None), lambda: False)
    faked.agents.released.set()
    faked.session.close()
    assert faked.agents.done == 2


def changes_of(
    faked: Faked, *meanwhile: Callable[[], object], after: Any = None, complete: bool = True
) -> list[tuple[float, str]]:
    """What an execution tells of changes `meanwhile`, a second each, and `after` its last byte."""

    def repeats(*_: object, on_tick: Any, **__: object) -> tuple[Repeat]:
        start_ns = faked.now_ns + 10**6
        on_tick(0.0)
        for change in meanwhile:
            change()
            faked.now_ns += 10**9
        ended_ns = faked.now_ns
        if after:
            after()
        seconds = (ended_ns - start_ns) / 1e9
        return (Repeat(0, complete, seconds, 0, 0, (), (), (), start_ns),)

    cast(Any, faked.session.fabric).repeats = repeats
    done = faked.session.execute(CASE, lambda: False)
    assert done is not None
    return list(done.changes)


def test_an_execution_names_each_change_of_the_fabric_meanwhile(faked: Faked) -> None:
    session = faked.session
    begin, end = lambda: session.inject(LINK), lambda: session.heal(LINK.target)
    assert changes_of(faked, begin, end) == [(0, "d0g0--rail0 down"), (0.999, "d0g0--rail0 healed")]
    assert changes_of(faked, lambda: session.inject(SLOW)) == [(0, "d1g1--rail1 degrade")]
    assert changes_of(faked, after=begin) == []
    assert changes_of(faked) == []
    assert changes_of(faked, after=end, complete=False) == [(0, "d0g0--rail0 healed")]


def test_a_change_that_fails_is_a_change(faked: Faked, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise EmulationError("half broken, and repaired")

    def attempt() -> None:
        with pytest.raises(EmulationError, match="half broken"):
            faked.session.inject(LINK)

    monkeypatch.setattr(sessions, "break_component", breaks)
    assert changes_of(faked, attempt) == [(0, "d0g0--rail0 down")]
    assert faked.session.faults == ()


def test_the_model_holds_while_the_controller_dies_and_comes_back(faked: Faked) -> None:
    dies, returns = (
        lambda: faked.session.inject(CONTROLLER),
        lambda: faked.session.heal(CONTROLLER.target),
    )
    assert changes_of(faked, dies, returns) == []


def test_an_execution_begins_once_the_controller_has_answered(
    faked: Faked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, its paths would be those of another health than its prediction's."""
    converging, converged, begun = (threading.Event() for _ in range(3))

    def wait(*_: object) -> None:
        converging.set()
        assert not begun.wait(0.1)
        converged.set()

    def run() -> None:
        assert converging.wait(30)
        assert changes_of(faked, begun.set) == []

    monkeypatch.setattr(sessions, "wait_until_converged", wait)
    running = threading.Thread(target=run)
    running.start()
    faked.session.inject(LINK)
    running.join()
    assert converged.is_set()
    assert begun.is_set()


def test_a_fault_waits_until_the_agents_have_connected(
    faked: Faked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that finds no path while it connects would end, and the session with it."""
    connecting, connected = threading.Event(), threading.Event()
    broken_while: list[bool] = []

    def repeats(*_: object, on_tick: Any, **__: object) -> tuple[Repeat]:
        connecting.set()
        assert not broken.wait(0.1)
        connected.set()
        on_tick(0.0)
        assert broken.wait(30)
        return (Repeat(0, True, 1.0, 0, 0, (), (), ()),)

    def breaks(*_: object) -> Any:
        broken_while.append(not connected.is_set())
        broken.set()
        return lambda: None

    broken = threading.Event()
    cast(Any, faked.session.fabric).repeats = repeats
    monkeypatch.setattr(sessions, "break_component", breaks)
    run = threading.Thread(target=faked.session.execute, args=(CASE, lambda: False))
    run.start()
    assert connecting.wait(30)
    faked.session.inject(LINK)
    run.join()
    assert broken_while == [False]


def test_a_fault_is_told_whether_or_not_the_controller_converges(faked: Faked) -> None:
    faked.converges = False
    with pytest.raises(EmulationError):
        faked.session.inject(LINK)
    assert faked.told == [[LINK.target]]
    with pytest.raises(EmulationError):
        faked.session.heal(LINK.target)
    assert faked.told == [[LINK.target], []]
