"""A session without a fabric: what it refuses, what Ctrl-C interrupts, what it tells of faults."""

import signal
import threading
from collections.abc import Iterator
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
from tests.unit.fabrics import spec

LINK = Fault(Component.NIC_LINK, FaultMode.DOWN, "d0g0--rail0")
CONTROLLER = Fault(Component.CONTROLLER, FaultMode.KILL, "controller")
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
        self.converges = True
        controller = SimpleNamespace(journal=folder / "journal")
        bed = SimpleNamespace(links=None, controller=controller)
        home = job_placement(spec(FabricKind.RAIL_ONLY, 2, 2))
        fabric = SimpleNamespace(
            placement=home,
            topology=home.topology,
            bed=bed,
            agents=self.agents,
            rearrange=lambda _: None,
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


def test_a_fault_waits_until_the_agents_have_connected(
    faked: Faked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that finds no path while it connects would end, and the session with it."""
    connecting, connected = threading.Event(), threading.Event()
    broken_while: list[bool] = []

    def repeats(*_: object, on_tick: Any, **__: object) -> tuple[None]:
        connecting.set()
        assert not broken.wait(0.1)
        connected.set()
        on_tick(0.0)
        assert broken.wait(30)
        return (None,)

    def breaks(*_: object) -> Any:
        broken_while.append(not connected.is_set())
        broken.set()
        return lambda: None

    broken = threading.Event()
    fabric = cast(Any, faked.session.fabric)
    fabric.repeats, fabric.predict = repeats, lambda _: None
    monkeypatch.setattr(sessions, "break_component", breaks)
    case = SimpleNamespace(schedule=lambda _: None)
    run = threading.Thread(target=faked.session.execute, args=(case, lambda: False))
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
