"""The controller's state machine: installs the desired state for the topology and its health.

Notifications only mark the state as changed. One task applies the desired state in three steps:
additions on the switches, confirmed; host routes; removals on the switches. While all paths work, a
packet that meets old rules and then new ones still arrives and never loops, except on paths over
transit GPUs.

This module uses no OpenFlow library: switches, host routes, link probes and the clock with its
waits are passed in.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from threading import Event

from controller.detection.fabric_state import ObservedFabric
from controller.detection.probes import LinkProbes
from controller.journal import Journal
from controller.planner import DesiredState, Planner
from controller.rollout import (
    Rules,
    UpdateRounds,
    covers_more,
    immediate,
    make_before_break,
    transit_routes_to_remove,
)
from controller.southbound.host_routes import HostRoutes
from controller.southbound.openflow import SwitchSession
from linux.processes.threads import real_time
from model.fabric.health import HEALTHY, Health
from model.fabric.topology import Topology
from model.routing.paths import LiveLinks

# How long to wait for a switch whose links work. Refused before the controller listened, it tries
# again after a second, and one that has just started has no rules; or it forwards, and hangs.
CONNECT_DEADLINE_S = 2.5
# How long failed links are ignored at the start: links still being created look failed.
LINKS_DEADLINE_S = 0.5
BARRIER_DEADLINE_S = 5.0
# After a failure, a switch that is slow to answer must not delay the repair.
REPAIR_BARRIER_TIMEOUT_S = 0.003
START_PATIENCE_S = 0.005
# The ports of a dead switch lose carrier one after the other: gather them for one update, until
# none has come for a while. Links that flap must not delay the others.
GATHERING_S = 0.001
MOST_GATHERINGS = 5
# Open vSwitch answers a barrier before its flow cache has the new rules. While the old paths work,
# there is time to wait for that.
PROPAGATION_S = 0.1
# Packets in flight on the old path still need the old rules, until they have left all queues.
DRAINING_S = 0.5


@dataclass(frozen=True)
class Clock:
    """Time in seconds, a sleep, and the event that wakes the reconciler."""

    now_s: Callable[[], float]
    sleep: Callable[[float], None]
    changed: Event


class Reconciler:
    """Keeps the switches and proxies in the desired state for topology and health.

    `switches` are the connected switches by name; the caller keeps the mapping up to date. It calls
    `before_ready` once all switches have their desired state, before it says so.
    """

    def __init__(
        self,
        topology: Topology,
        switches: Mapping[str, SwitchSession],
        routes: dict[str, HostRoutes],
        probes: LinkProbes,
        journal: Journal,
        clock: Clock,
        before_ready: Callable[[], None],
    ) -> None:
        self.fabric = ObservedFabric(topology)
        self.generation = 1
        self._planner = Planner(topology)
        self._switches = switches
        self._names = frozenset(topology.openflow_switches)
        self._routes = routes
        self._probes = probes
        self._journal = journal
        self._clock = clock
        self._before_ready = before_ready
        self._first_connected_s: float | None = None
        self._begun = False
        self._complete = False
        self._applied: tuple[Topology, Health] | None = None
        self._health = HEALTHY

    # Notifications

    def connected(self, name: str) -> None:
        """Record a connected switch, whose state is requested."""
        self._journal.write("connected", switch=name)
        if self._first_connected_s is None:
            self._first_connected_s = self._clock.now_s()

    def reported(self, name: str, generations: Iterable[int] = ()) -> None:
        """Record a part of a switch's state; `generations` are those of its rules."""
        self.generation = max(self.generation, *(number + 1 for number in generations), 1)
        if not self._switches[name].unreported:
            self._applied = None
            self._clock.changed.set()

    def disconnected(self, name: str) -> None:
        """Record a disconnected switch.

        It may still forward: carrier and link probes show whether its links work.
        """
        self._complete = False
        self._journal.write("disconnected", switch=name)

    def died(self, proxy: str) -> None:
        """Record a dead proxy; close its netlink socket, which would keep its links alive."""
        self._routes.pop(proxy).close()
        self._journal.write("died", proxy=proxy)
        self.note(self.fabric.dead(proxy, self._clock.now_s()))

    def note(self, detected: Iterable[dict[str, object]]) -> None:
        """Log detected changes of links, and wake the task."""
        for facts in detected:
            self._journal.write("detected", **facts)
            self._clock.changed.set()

    # The task

    def run(self) -> None:
        """Apply the desired state after every change, forever."""
        while True:
            # The deadlines of the start wake no task: poll until the first update is complete.
            self._clock.changed.wait(None if self._begun else START_PATIENCE_S)
            # A fabric's controller has a machine of its own: it does not wait for agents.
            with real_time():
                self.step()

    def step(self) -> None:
        """Gather the changes that follow the first one, and apply them together."""
        self._gather()
        now_s = self._clock.now_s()
        # Record ended hold-downs first: such a link would be used, but still be noted as failed, so
        # its next failure would be no change.
        self.note(self.fabric.look(now_s))
        self._clock.changed.clear()
        if not self._begun and self._is_incomplete():
            return
        topology, health = self.fabric.topology, self._usable(now_s)
        # A drained link still works: its traffic is moved make-before-break, without loss.
        worse, self._health = not health.broken <= self._health.broken, health
        before, self._applied = self._applied, (topology, health)
        # Paths do not depend on the rates of links that are used.
        if before and before[0] == topology and before[1].failed == health.failed:
            return
        self._apply(topology, health, worse=worse)

    def _gather(self) -> None:
        """Wait until no change has come for `GATHERING_S`, but at most `MOST_GATHERINGS` times."""
        for _ in range(MOST_GATHERINGS):
            self._clock.changed.clear()
            self._clock.sleep(GATHERING_S)
            if not self._clock.changed.wait(0):
                return

    def _usable(self, now_s: float) -> Health:
        """Return the fabric's health; links that return before their switch connects stay failed.

        A switch without rules drops all packets.
        """
        known = {name for name, switch in self._switches.items() if not switch.unreported}
        absent = self._names - known
        links = self.fabric.topology.link_by_name
        # An optical switch may have moved a link, which has another name then.
        unused = self._health.failed & links.keys()
        waiting = frozenset(
            n for n in unused if {links[n].lower.node, links[n].upper.node} & absent
        )
        health = self.fabric.health(now_s, waiting - self._health.drained)
        return replace(health, failed=health.failed | waiting)

    def _is_incomplete(self) -> bool:
        """Whether the known state of switches and links is still incomplete at the start.

        Acting on an incomplete state would undo a former controller's response to a failure.
        """
        if any(switch.unreported for switch in self._switches.values()):
            return True
        if self._first_connected_s is None:
            return True
        now_s = self._clock.now_s()
        passed_s = now_s - self._first_connected_s
        failed, links_of = self.fabric.health(now_s).failed, self.fabric.topology.links_of
        absent = (links_of(name) for name in self._names - self._switches.keys())
        works = any(link.name not in failed for link in chain.from_iterable(absent))
        if works and passed_s < CONNECT_DEADLINE_S:
            return True
        if failed and passed_s < LINKS_DEADLINE_S:
            return True
        return not self._probes.converged

    def _apply(self, topology: Topology, health: Health, *, worse: bool) -> None:
        """Update switches and host routes: at once after a failure, else make-before-break."""
        if topology is not self._planner.topology:
            self._planner = Planner(topology)
        state = self._planner.state(health)
        self._probes.watch(topology)
        self._journal_computed(health, state)
        switches = {n: switch for n, switch in self._switches.items() if not switch.unreported}
        installed = {name: switch.rules for name, switch in switches.items()}
        wanted = {name: state.rules[name] for name in switches}
        self._journal_sent(switches, wanted)
        at_once = worse if self._begun else not _all_forward(installed, topology, health)
        if at_once:
            rounds = immediate(installed, wanted)
        else:
            rounds = make_before_break(LiveLinks(topology, health), installed, wanted)
        if self._update(switches, rounds, state, at_once=at_once):
            self._finish(switches, state)

    def _journal_computed(self, health: Health, state: DesiredState) -> None:
        self._journal.write(
            "computed",
            rules=sum(map(len, state.rules.values())),
            failed=sorted(health.failed),
            drained=sorted(health.drained),
            cut_off=[*map(list, state.cut_off)],
        )

    def _journal_sent(self, switches: Mapping[str, SwitchSession], wanted: Rules) -> None:
        for name, switch in switches.items():
            added, removed = switch.missing(wanted[name])
            facts = {"generation": self.generation, "added": added, "removed": removed}
            self._journal.write("sent", switch=name, **facts)

    def _update(
        self,
        switches: Mapping[str, SwitchSession],
        rounds: UpdateRounds,
        state: DesiredState,
        *,
        at_once: bool,
    ) -> bool:
        """Update round by round; return whether the update was completed.

        After a failure, new paths are used at once; while all paths work, when they surely do, too.
        """
        is_repair = at_once and self._begun
        for rules in rounds.before_routes:
            repair_s = self._repair_timeout_s(switches, rules)
            limit_s = repair_s if is_repair else BARRIER_DEADLINE_S
            self._install(switches, rules, limit_s)
            self._journal.write("installed")
            if not at_once and self._is_interrupted(PROPAGATION_S):
                return False
        self._reconcile_routes(state)
        for rules in rounds.after_routes:
            if self._begun and self._is_interrupted(DRAINING_S):
                return False
            self._install(switches, rules, BARRIER_DEADLINE_S)
        return True

    def _repair_timeout_s(self, switches: Mapping[str, SwitchSession], rules: Rules) -> float:
        """How long to wait for switches after a failure: not at all if all know all destinations.

        A switch uses its old rule for one until it has the new rule.
        """
        installed = {name: switch.rules for name, switch in switches.items()}
        return REPAIR_BARRIER_TIMEOUT_S if covers_more(installed, rules) else 0.0

    def _is_interrupted(self, pause_s: float) -> bool:
        """Pause; return whether a change ended the pause: this update is then obsolete."""
        if self._clock.changed.wait(pause_s):
            self._applied = None
            return True
        return False

    def _install(
        self, switches: Mapping[str, SwitchSession], rules: Rules, timeout_s: float
    ) -> None:
        """Send rules, and wait for the barriers of all switches that are still connected.

        Raise `RuntimeError` if a switch does not answer within `BARRIER_DEADLINE_S`; with a shorter
        `timeout_s`, return without its answer.
        """
        for name, switch in switches.items():
            switch.install(rules[name], self.generation)
        deadline_s = self._clock.now_s() + timeout_s
        for name, switch in switches.items():
            while switch.awaited and self._switches.get(name) is switch:
                left_s = deadline_s - self._clock.now_s()
                if left_s <= 0 or not switch.done.wait(left_s):
                    if timeout_s < BARRIER_DEADLINE_S:
                        return
                    raise RuntimeError(f"{name}: no barrier reply within {BARRIER_DEADLINE_S} s")
                switch.done.clear()

    def _reconcile_routes(self, state: DesiredState) -> None:
        """Install the host routes of every proxy: from now on every pair uses its new path."""
        added = removed = 0
        for name, routes in list(self._routes.items()):
            wanted = state.routes[name]
            gpu = self.fabric.topology.gpu_by_name[name]
            last = transit_routes_to_remove(gpu, routes.installed, wanted)
            more, fewer = routes.reconcile(wanted.union(last))
            added, removed = added + more, removed + fewer
        self._journal.write("routes", added=added, removed=removed)
        self._journal.write("confirmed", generation=self.generation)

    def _finish(self, switches: Mapping[str, SwitchSession], state: DesiredState) -> None:
        """Remove the last old routes; write `ready` once all switches have their desired state."""
        for name, routes in self._routes.items():
            routes.reconcile(state.routes[name])
        self._journal.write("settled", switches=sorted(switches))
        self._begun = True
        # One may have disconnected since: its new session is filled by another update.
        present = all(self._switches.get(name) is switch for name, switch in switches.items())
        if not self._complete and present and set(switches) == self._names:
            self._complete = True
            self._before_ready()
            self._journal.write("ready", generation=self.generation)


def _all_forward(installed: Rules, topology: Topology, health: Health) -> bool:
    """Whether switches have rules, and all of them lead to links that work."""
    broken = {
        (end.node, end.number)
        for link in topology.links
        if link.name in health.failed
        for end in (link.lower, link.upper)
    }
    used = {(name, rule.port) for name, rules in installed.items() for rule in rules}
    return bool(used) and not used & broken
