"""The controller's state machine against fake switches, with a simulated clock."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from threading import Event

import pytest

from controller.detection.fabric_state import HOLD_DOWN_S
from controller.detection.probes import LinkProbes
from controller.journal import Journal
from controller.planner import Planner, Route, Rule
from controller.reconciler import (
    BARRIER_DEADLINE_S,
    CONNECT_DEADLINE_S,
    DRAINING_S,
    GATHERING_S,
    LINKS_DEADLINE_S,
    MOST_GATHERINGS,
    PROPAGATION_S,
    REPAIR_BARRIER_TIMEOUT_S,
    Clock,
    Reconciler,
)
from controller.southbound.host_routes import HostRoutes
from controller.southbound.openflow import SwitchSession
from model.fabric.build import build_topology
from model.fabric.health import HEALTHY, Health
from model.fabric.spec import FabricKind
from model.fabric.topology import Topology
from tests.unit.fabrics import desired_state, spec

RAIL_ONLY = build_topology(spec(FabricKind.RAIL_ONLY, 3, 3))
RAIL_OPTIMIZED = build_topology(spec(FabricKind.RAIL_OPTIMIZED, 3, 2, spines=2))
FABRICS = pytest.mark.parametrize(
    "topology", [RAIL_ONLY, RAIL_OPTIMIZED], ids=lambda t: str(t.spec.kind)
)
ANSWER_S = 0.001
LOOK_S = 0.025
AT_ONCE_S = GATHERING_S + 2 * REPAIR_BARRIER_TIMEOUT_S


class Over(Exception):
    """The simulated time of a test is over."""


@dataclass
class World:
    """A simulated clock, which only waits advance, and the actions that are due on it."""

    now_s: float = 0.0
    _due: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def at(self, moment_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (moment_s, next(self._numbers), action))

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self.at(self.now_s + seconds, action)

    def sleep(self, seconds: float) -> None:
        self.pass_until(self.now_s + seconds, lambda: False)

    def pass_until(self, end_s: float, enough: Callable[[], bool]) -> None:
        """Run due actions in order until `end_s`, or until `enough` is true."""
        while not enough() and self._due and self._due[0][0] <= end_s:
            self.now_s, _, action = heapq.heappop(self._due)
            action()
        if not enough():
            assert end_s < float("inf"), "it would wait for ever"
            self.now_s = end_s


class FakeEvent(Event):
    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def wait(self, timeout: float | None = None) -> bool:
        end_s = float("inf") if timeout is None else self.world.now_s + timeout
        self.world.pass_until(end_s, self.is_set)
        return self.is_set()


class FakeSwitch(SwitchSession):
    """A switch that installs what it is sent, and answers barriers a little later."""

    def __init__(self, world: World, rules: frozenset[Rule], *, answers: bool = True) -> None:
        super().__init__(None, FakeEvent(world))
        self.world = world
        self.rules = rules
        self.answers = answers
        self.history: list[tuple[float, frozenset[Rule], int]] = []

    def missing(self, wanted: frozenset[Rule]) -> tuple[int, int]:
        return len(wanted - self.rules), len(self.rules - wanted)

    def install(self, wanted: frozenset[Rule], generation: int) -> None:
        if wanted != self.rules:
            self.rules = wanted
            self.history.append((self.world.now_s, wanted, generation))
            self.awaited += 1
            if self.answers:
                self.world.later(ANSWER_S, self.confirmed)


class FakeRoutes(HostRoutes):
    def __init__(self) -> None:
        self.installed: frozenset[Route] = frozenset()

    def reconcile(self, desired: frozenset[Route]) -> tuple[int, int]:
        change = len(desired - self.installed), len(self.installed - desired)
        self.installed = desired
        return change

    def close(self) -> None:
        self.installed = frozenset()


class FakeProbes(LinkProbes):
    converged = True

    def __init__(self) -> None:
        """Open no socket."""

    def watch(self, topology: Topology) -> None:
        pass


class Told(Journal):
    """A journal in memory: events with their times."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lines: list[tuple[float, str, dict[str, object]]] = []

    def write(self, event: str, **facts: object) -> None:
        self.lines.append((self.world.now_s, event, facts))

    def times(self, event: str) -> list[float]:
        return [moment_s for moment_s, name, _ in self.lines if name == event]


class Control:
    """A reconciler with fake switches, routes, probes, journal and clock."""

    def __init__(
        self,
        topology: Topology,
        rules: dict[str, frozenset[Rule]] | None = None,
        generation: int = 0,
        pause_s: float = 0.0,
    ) -> None:
        """Make a reconciler; the machine pauses for `pause_s` whenever it reads the clock."""
        self.topology = topology
        self.pause_s = pause_s
        self.world = World()
        self.told = Told(self.world)
        self.switches = {
            name: FakeSwitch(self.world, (rules or {}).get(name, frozenset()))
            for name in topology.openflow_switches
        }
        self.connected: dict[str, FakeSwitch] = {}
        self.routes = {gpu.name: FakeRoutes() for gpu in topology.gpus}
        clock = Clock(self._read_clock, self.world.sleep, FakeEvent(self.world))
        self.probes = FakeProbes()
        self.reconciler = Reconciler(
            topology,
            self.connected,
            dict(self.routes),
            self.probes,
            self.told,
            clock,
            self._settled,
        )
        self.generation = generation
        self.settled_s: list[float] = []
        self.world.at(0.0, self._look)

    def _settled(self) -> None:
        self.settled_s.append(self.world.now_s)

    def _read_clock(self) -> float:
        self.world.now_s += self.pause_s
        return self.world.now_s

    def _look(self) -> None:
        self.reconciler.note(self.reconciler.fabric.look(self.world.now_s))
        self.world.later(LOOK_S, self._look)

    def connect(self, *names: str) -> None:
        """Let switches connect and report their state."""
        for name in names:
            self.connected[name] = self.switches[name]
            self.reconciler.connected(name)
        for name in names:
            self.switches[name].unreported.clear()
            self.reconciler.reported(name, [self.generation] if self.generation else [])

    def carrier(self, link: str, up: bool) -> None:
        """Notify the reconciler of carrier at the upper end of a link, as the kernel does."""
        interface = self.topology.link_by_name[link].upper.interface
        fabric = self.reconciler.fabric
        self.reconciler.note(fabric.interface(interface, up, self.world.now_s))

    def run_until(self, moment_s: float) -> None:
        """Run the reconciler until `moment_s` of the simulated clock."""

        def over() -> None:
            raise Over

        self.world.at(moment_s, over)
        with pytest.raises(Over):
            self.reconciler.run()

    def started(self) -> "Control":
        """Connect all switches, run for two seconds, and return the same object."""
        self.connect(*self.switches)
        self.run_until(2.0)
        assert self.told.times("ready")
        return self

    def assert_is(self, health: Health) -> None:
        """Fail unless switches and proxies have the rules and routes for this health."""
        wanted = Planner(self.topology).state(health)
        assert {name: switch.rules for name, switch in self.switches.items()} == wanted.rules
        assert {name: routes.installed for name, routes in self.routes.items()} == wanted.routes


def nic_links(topology: Topology) -> list[str]:
    return [link.name for link in topology.links if link.name.startswith("d0g0--rail")] + [
        "d1g0--rail0"
    ]


@FABRICS
def test_a_new_fabric_gets_its_rules_and_routes(topology: Topology) -> None:
    control = Control(topology).started()
    control.assert_is(HEALTHY)
    events = [event for _, event, _ in control.told.lines]
    behind = ["routes", "confirmed", "settled", "ready"]
    assert [event for event in events if event not in ("connected", "sent")] == [
        "computed",
        "installed",
        *behind,
    ]
    (told,) = (facts for _, event, facts in control.told.lines if event == "routes")
    routes = sum(len(routes.installed) for routes in control.routes.values())
    assert told == {"added": routes, "removed": 0}


def test_a_switch_that_never_connects_is_not_waited_for_long() -> None:
    control = Control(RAIL_ONLY)
    control.connect("rail0", "rail1")
    control.run_until(CONNECT_DEADLINE_S + 1)
    assert control.told.times("settled")[0] < CONNECT_DEADLINE_S + 0.1
    assert not control.told.times("ready")
    control.connect("rail2")
    control.run_until(CONNECT_DEADLINE_S + 4)
    assert control.told.times("ready")
    control.assert_is(HEALTHY)


def test_a_switch_that_connects_late_is_not_used_without_rules() -> None:
    """It was refused before the controller listened; it has just started, and has no rules."""
    control = Control(RAIL_ONLY)
    control.connect("rail0", "rail1")
    control.world.at(1.3, lambda: control.connect("rail2"))
    control.run_until(3)
    assert len(control.told.times("computed")) == 1
    assert control.told.times("computed")[0] > 1.3
    control.assert_is(HEALTHY)


def test_a_switch_that_has_not_told_its_rules_yet_is_waited_for() -> None:
    control = Control(RAIL_ONLY)
    control.connected["rail2"] = control.switches["rail2"]
    control.connect("rail0", "rail1")
    control.world.at(1.3, lambda: control.connect("rail2"))
    control.run_until(3)
    assert [moment_s > 1.3 for moment_s in control.told.times("computed")] == [True]


def test_a_switch_whose_links_have_all_failed_is_not_waited_for() -> None:
    control = Control(RAIL_ONLY)
    for link in RAIL_ONLY.links_of("rail2"):
        control.carrier(link.name, up=False)
    control.connect("rail0", "rail1")
    control.run_until(LINKS_DEADLINE_S + 0.5)
    assert control.told.times("settled")


@pytest.mark.parametrize("absent", [0, 1])
def test_gray_failures_are_waited_for_whatever_else_has_failed(absent: int) -> None:
    control = Control(RAIL_OPTIMIZED)
    control.probes.converged = False
    control.carrier("d0g0--rail0", up=False)
    control.connect(*list(control.switches)[absent:])
    control.run_until(CONNECT_DEADLINE_S + 1)
    assert not control.told.times("computed")
    control.probes.converged = True
    control.run_until(CONNECT_DEADLINE_S + 2)
    assert control.told.times("computed")


@FABRICS
def test_a_link_that_fails_again_right_after_its_hold_down_is_answered(topology: Topology) -> None:
    """Something else wakes the task at the end of the hold-down, before the links are looked at."""
    control = Control(topology).started()
    link, other = nic_links(topology)[0], topology.link_by_name["d1g0--rail0"]
    rate = control.reconciler.fabric.rate
    control.world.at(3.002, lambda: control.carrier(link, up=False))
    control.world.at(3.011, lambda: control.carrier(link, up=True))
    ends_s = 3.011 + HOLD_DOWN_S
    control.world.at(
        ends_s + 0.0005,
        lambda: control.reconciler.note(rate(other.upper.interface, other.rate_bps * 9 // 10)),
    )
    control.world.at(ends_s + 0.006, lambda: control.carrier(link, up=False))
    control.run_until(ends_s + 2)
    control.assert_is(Health(frozenset({link})))


@FABRICS
def test_ready_is_not_said_of_a_switch_that_has_gone_meanwhile(topology: Topology) -> None:
    control = Control(topology).started()
    name = next(iter(control.switches))

    def gone() -> None:
        del control.connected[name]
        control.reconciler.disconnected(name)

    control.world.at(3.0, lambda: control.carrier(nic_links(topology)[0], up=False))
    control.world.at(3.0 + DRAINING_S / 2, gone)
    before = len(control.told.times("ready"))
    control.run_until(4.5)
    assert len(control.told.times("ready")) == before
    control.world.at(4.6, lambda: control.connect(name))
    control.run_until(6.5)
    assert len(control.told.times("ready")) == before + 1
    assert control.settled_s == control.told.times("ready")


@FABRICS
def test_links_of_a_revived_switch_wait_until_it_has_connected(topology: Topology) -> None:
    control = Control(topology).started()
    links = [link.name for link in topology.links_of("rail0")]

    def dies() -> None:
        for link in links:
            control.carrier(link, up=False)
        control.switches["rail0"].rules = frozenset()
        control.switches["rail0"].unreported = {"rules"}
        del control.connected["rail0"]
        control.reconciler.disconnected("rail0")

    def revives() -> None:
        for link in links:
            control.carrier(link, up=True)

    control.world.at(3.0, dies)
    control.world.at(4.0, revives)
    control.run_until(4.5)
    routes = {name: routes.installed for name, routes in control.routes.items()}
    assert routes == Planner(topology).state(Health(frozenset(links))).routes
    control.world.at(4.5, lambda: control.connect("rail0"))
    control.run_until(7.0)
    control.assert_is(HEALTHY)


def test_a_slow_link_is_not_drained_for_links_whose_switch_has_not_connected() -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 3, 2))
    control = Control(topology).started()
    slow, links = topology.link_by_name["d0g0--rail0"], topology.links_of("rail1")

    def dies() -> None:
        for link in links:
            control.carrier(link.name, up=False)
        control.switches["rail1"].rules = frozenset()
        control.switches["rail1"].unreported = {"rules"}
        del control.connected["rail1"]
        control.reconciler.disconnected("rail1")

    def slows() -> None:
        fabric = control.reconciler.fabric
        control.reconciler.note(fabric.rate(slow.upper.interface, slow.rate_bps // 4))

    def revives() -> None:
        for link in links:
            control.carrier(link.name, up=True)

    for moment_s, event in ((3.0, dies), (3.5, slows), (5.0, revives)):
        control.world.at(moment_s, event)
    control.run_until(6.0)
    computed = [facts for _, event, facts in control.told.lines if event == "computed"]
    assert not any(facts["drained"] or facts["cut_off"] for facts in computed)
    control.world.at(6.0, lambda: control.connect("rail1"))
    control.run_until(9.0)
    control.assert_is(Health(frozenset({slow.name})))


def test_a_link_that_returned_without_a_controller_is_used_when_switches_have_rules() -> None:
    """A restarted controller moves traffic that works make-before-break."""
    topology = build_topology(spec(FabricKind.RAIL_OPTIMIZED, 2, 2, spines=2))
    failed = Health(frozenset({"rail1--spine0"}))
    control = Control(topology, desired_state(topology, failed).rules, generation=1).started()
    control.assert_is(HEALTHY)
    spine, *rails = (control.switches[name] for name in ("spine0", "rail0", "rail1"))
    first_s = min(rail.history[0][0] for rail in rails if rail.history)
    assert spine.history[0][0] < first_s


@pytest.mark.parametrize("pause_s", [number / 1000 for number in range(1, 20)])
def test_a_failed_link_is_not_waited_for_long_at_the_start_while_the_machine_pauses(
    pause_s: float,
) -> None:
    """Whatever the step at which the deadline passes: nothing notifies of it."""
    control = Control(RAIL_OPTIMIZED, pause_s=pause_s)
    control.carrier("d0g0--rail0", up=False)
    control.connect(*control.switches)
    control.run_until(LINKS_DEADLINE_S + 1)
    assert control.told.times("ready")
    control.assert_is(Health(frozenset({"d0g0--rail0"})))


@FABRICS
def test_a_lost_link_is_answered_at_once(topology: Topology) -> None:
    control = Control(topology).started()
    link = nic_links(topology)[0]
    control.world.at(3.0, lambda: control.carrier(link, up=False))
    control.run_until(5.0)
    confirmed_s = control.told.times("confirmed")[-1]
    assert 3.0 < confirmed_s <= 3.0 + AT_ONCE_S
    assert control.told.times("settled")[-1] >= confirmed_s + DRAINING_S
    control.assert_is(Health(frozenset({link})))


def test_links_that_fail_one_after_the_other_are_one_update() -> None:
    """The ports of a switch that dies, each before the time to gather is over."""
    control = Control(RAIL_OPTIMIZED).started()
    links = [link.name for link in control.topology.links_of("rail0")]
    for number, name in enumerate(links):
        control.world.at(3.0 + number * GATHERING_S / 2, partial(control.carrier, name, up=False))
    control.run_until(5.0)
    (confirmed_s,) = [s for s in control.told.times("confirmed") if s > 3.0]
    last_s = 3.0 + (len(links) - 1) * GATHERING_S / 2
    assert last_s < confirmed_s <= last_s + GATHERING_S + AT_ONCE_S
    control.assert_is(Health(frozenset(links)))


def test_the_first_of_many_failures_is_not_delayed_by_the_last() -> None:
    control = Control(RAIL_ONLY).started()
    links = [link.name for link in control.topology.links]
    for number, name in enumerate(links):
        control.world.at(3.0 + number * 0.9 * GATHERING_S, partial(control.carrier, name, up=False))
    assert len(links) * 0.9 * GATHERING_S > MOST_GATHERINGS * GATHERING_S + AT_ONCE_S
    control.run_until(5.0)
    confirmed_s = next(s for s in control.told.times("confirmed") if s > 3.0)
    assert confirmed_s <= 3.0 + MOST_GATHERINGS * GATHERING_S + AT_ONCE_S
    control.assert_is(Health(frozenset(links)))


@FABRICS
def test_a_link_that_returns_is_used_when_it_has_held(topology: Topology) -> None:
    control = Control(topology).started()
    link = nic_links(topology)[0]
    control.world.at(3.0, lambda: control.carrier(link, up=False))
    control.world.at(5.0, lambda: control.carrier(link, up=True))
    control.run_until(10.0)
    assert control.told.times("computed")[-1] >= 5.0 + HOLD_DOWN_S
    # Traffic moves before that is sure.
    moved_s, sure_s = (control.told.times(event)[-1] for event in ("installed", "confirmed"))
    assert sure_s >= moved_s + PROPAGATION_S
    control.assert_is(HEALTHY)


@FABRICS
def test_a_better_path_is_not_used_before_a_slow_switch_has_confirmed_its_rules(
    topology: Topology,
) -> None:
    control = Control(topology).started()
    link, slow = nic_links(topology)[0], control.switches.values()

    def hang() -> None:
        for switch in slow:
            switch.answers = False

    def answer() -> None:
        for switch in slow:
            switch.answers = True
            while switch.awaited:
                switch.confirmed()

    control.world.at(3.0, lambda: control.carrier(link, up=False))
    control.world.at(5.0, lambda: control.carrier(link, up=True))
    control.world.at(5.0, hang)
    control.world.at(7.0, answer)
    control.run_until(10.0)
    assert [s > 7.0 for s in control.told.times("confirmed") if s > 5.0] == [True]
    control.assert_is(HEALTHY)


def test_links_of_a_switch_that_has_only_disconnected_stay_in_use() -> None:
    """It still forwards; and a link that is only a little slow changes no path either."""
    control = Control(RAIL_ONLY).started()
    slow = RAIL_ONLY.link_by_name["d1g1--rail1"]
    rate = control.reconciler.fabric.rate

    def gone() -> None:
        del control.connected["rail0"]
        control.reconciler.disconnected("rail0")

    control.world.at(3.0, gone)
    control.world.at(
        3.2,
        lambda: control.reconciler.note(rate(slow.upper.interface, slow.rate_bps * 9 // 10)),
    )
    control.world.at(3.5, lambda: control.carrier("d0g2--rail2", up=False))
    control.run_until(4.5)
    computed = [
        (s, facts["failed"]) for s, event, facts in control.told.lines if event == "computed"
    ]
    assert [failed for s, failed in computed if s > 3.0] == [["d0g2--rail2"]]


@FABRICS
def test_a_loss_during_a_return_is_answered_at_once(topology: Topology) -> None:
    control = Control(topology).started()
    one, other = nic_links(topology)
    lost_s = 5.0 + HOLD_DOWN_S + 2 * LOOK_S
    control.world.at(3.0, lambda: control.carrier(one, up=False))
    control.world.at(5.0, lambda: control.carrier(one, up=True))
    control.world.at(lost_s, lambda: control.carrier(other, up=False))
    control.run_until(10.0)
    assert [s for s in control.told.times("computed") if 5.0 < s < lost_s], "the return was begun"
    assert [s for s in control.told.times("confirmed") if lost_s < s <= lost_s + AT_ONCE_S]
    control.assert_is(Health(frozenset({other})))


@FABRICS
def test_one_failure_that_takes_anothers_place_is_answered_at_once(topology: Topology) -> None:
    """One reconciliation may see both a link that is usable again and another that failed."""
    control = Control(topology).started()
    one, other = nic_links(topology)
    control.world.at(3.0, lambda: control.carrier(one, up=False))
    control.world.at(5.0, lambda: control.carrier(one, up=True))
    usable_s = 5.0 + HOLD_DOWN_S
    control.world.at(usable_s, lambda: control.carrier(other, up=False))
    control.run_until(10.0)
    assert [s for s in control.told.times("confirmed") if usable_s < s <= usable_s + AT_ONCE_S]
    control.assert_is(Health(frozenset({other})))


@FABRICS
def test_a_link_that_flaps_stays_out_of_use(topology: Topology) -> None:
    control = Control(topology).started()
    link = nic_links(topology)[0]
    for number in range(20):
        control.world.at(3.0 + 0.1 * number, lambda up=bool(number % 2): control.carrier(link, up))  # type: ignore[misc]
    control.run_until(5.2)
    used = [s for s in control.told.times("computed") if s > 3.5]
    assert len(used) <= 1
    control.assert_is(Health(frozenset({link})))
    control.run_until(12.0)
    control.assert_is(HEALTHY)


@FABRICS
def test_a_restart_in_the_middle_of_an_update_ends_it(topology: Topology) -> None:
    link = nic_links(topology)[0]
    before = Planner(topology).state(HEALTHY).rules
    after = Planner(topology).state(Health(frozenset({link}))).rules
    updated = {name: after[name] for name in list(after)[:1]}
    control = Control(topology, {**before, **updated}, generation=7)
    control.carrier(link, up=False)
    control.started()
    control.assert_is(Health(frozenset({link})))
    generations = {n for s in control.switches.values() for _, _, n in s.history}
    assert generations <= {8}


def test_what_is_broken_does_not_wait_for_a_switch_that_does_not_answer() -> None:
    control = Control(RAIL_ONLY).started()
    control.switches["rail0"].answers = False
    control.world.at(3.0, lambda: control.carrier("d0g1--rail1", up=False))
    control.world.at(3.2, control.switches["rail0"].confirmed)
    control.run_until(3.3)
    assert 3.0 < control.told.times("confirmed")[-1] <= 3.0 + AT_ONCE_S


def test_a_failure_waits_for_no_switch_that_knows_all_destinations() -> None:
    topology = build_topology(spec(FabricKind.RAIL_OPTIMIZED, 3, 2, 2, ports=2))
    control = Control(topology).started()
    for switch in control.switches.values():
        switch.answers = False
    for link in topology.links_of("rail0p0"):
        control.world.at(3.0, partial(control.carrier, link.name, up=False))
    control.run_until(3.3)
    (confirmed_s,) = (moment_s for moment_s in control.told.times("confirmed") if moment_s > 3.0)
    assert confirmed_s == pytest.approx(3.0 + 2 * GATHERING_S)


def test_a_switch_that_confirms_nothing_is_an_error() -> None:
    control = Control(RAIL_ONLY)
    control.switches["rail1"].answers = False
    control.connect(*control.switches)
    with pytest.raises(RuntimeError, match="rail1: no barrier reply"):
        control.reconciler.run()
    assert control.world.now_s >= BARRIER_DEADLINE_S


def test_a_switch_that_goes_while_it_is_waited_for_is_no_error() -> None:
    control = Control(RAIL_ONLY)
    gone = control.switches["rail1"]
    gone.answers = False

    def leave() -> None:
        del control.connected["rail1"]
        gone.done.set()
        control.reconciler.disconnected("rail1")

    control.connect(*control.switches)
    control.world.at(1.0, leave)
    control.run_until(BARRIER_DEADLINE_S + 2)
    assert control.told.times("settled")


def test_a_dead_proxy_is_left_alone() -> None:
    control = Control(RAIL_ONLY).started()
    control.world.at(3.0, lambda: control.reconciler.died("d0g0"))
    control.run_until(5.0)
    assert control.told.times("died") == [3.0]
    assert not control.routes["d0g0"].installed
    assert 3.0 < control.told.times("confirmed")[-1] <= 3.0 + AT_ONCE_S
