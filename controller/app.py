"""The Ryu application: events in, messages out; all decisions are pure functions elsewhere.

Whatever happens to a link only marks the state as changed. One green thread makes the fabric
what it should be, in three steps: additions on the switches, confirmed; host routes; removals on
the switches. So whoever has the old way or the new one has a whole way.
"""

import functools
import gc
import os
import select
import time
from collections.abc import Callable, Iterable
from typing import Any

from eventlet.hubs import trampoline
from ryu.base.app_manager import RyuApp
from ryu.controller import ofp_event
from ryu.controller.handler import (
    CONFIG_DISPATCHER,
    DEAD_DISPATCHER,
    MAIN_DISPATCHER,
    set_ev_cls,
)
from ryu.lib import hub
from ryu.ofproto import ofproto_v1_3

from controller.detection.carrier import LinkCarriers
from controller.detection.fabric_state import ObservedFabric
from controller.detection.probes import LinkProbes
from controller.detection.rates import LinkRates
from controller.forwarding.planner import DesiredState, Planner
from controller.journal import Journal
from controller.rollout.update_plan import Rules, Stages, at_once, nearest_first, routes_behind
from controller.southbound import openflow
from controller.southbound.host_routes import HostRoutes
from controller.southbound.switch_session import SwitchState
from model.fabric.health import Health
from model.fabric.topology import Link, Topology
from model.routing.distances import Distances, LiveLinks

# A switch that is dead need not be waited for.
CONNECT_DEADLINE_S = 1.0
# Links that are just being made look as if they had failed.
LINKS_DEADLINE_S = 0.5
BARRIER_DEADLINE_S = 5.0
# What is broken does not wait for a switch that is slow to answer.
BROKEN_PATIENCE_S = 0.003
START_PATIENCE_S = 0.005
# The ports of a dead switch lose carrier one after the other: one answer to all of them.
GATHERING_S = 0.002
# Open vSwitch answers a barrier before its cache of flows has heard of the new rules. What still
# has its old way can wait for that.
SETTLING_S = 0.1
# What is under way on the old way arrives by the old rules, through queues of data.
DRAINING_S = 0.5

Handler = Callable[..., None]


def fatal_errors(handler: Handler) -> Handler:
    """Ryu would log an exception of a handler and go on with a wrong state: end instead."""

    @functools.wraps(handler)
    def guarded(app: Any, *arguments: Any) -> None:
        try:
            handler(app, *arguments)
        except Exception:
            app.journal.end_with_error(handler.__name__)

    return guarded


class RailbedController(RyuApp):  # type: ignore[misc]
    """Keeps the fabric in the state that its topology and its health ask for."""

    OFP_VERSIONS = (ofproto_v1_3.OFP_VERSION,)

    def __init__(self, topology: Topology, process_ids: dict[str, int], journal: Journal) -> None:
        super().__init__()
        self.journal = journal
        self.fabric = ObservedFabric(topology)
        self.planner = Planner(topology)
        self.switches: dict[str, SwitchState] = {}
        self.names = topology.openflow_switches
        self.gpus = topology.gpu_by_name
        self.proxies = {name: os.pidfd_open(pid) for name, pid in process_ids.items()}
        self.routes = {name: HostRoutes(pid) for name, pid in process_ids.items()}
        self.probes = LinkProbes(topology, process_ids)
        self.deaths = select.poll()
        for descriptor in self.proxies.values():
            self.deaths.register(descriptor, select.POLLIN)
        self.generation = 1
        self.first_connected_s: float | None = None
        self.begun = False
        self.complete = False
        self.applied: tuple[Topology, Health] | None = None
        self.broken: frozenset[str] = frozenset()
        self.connected = hub.Event()
        self.changed = hub.Event()

    def start(self) -> None:
        """Begin to watch the links, and to reconcile."""
        super().start()
        self.threads += [
            hub.spawn(task)
            for task in (
                self._watch_carrier,
                self._watch_rates,
                self._watch_links,
                self._reconcile,
            )
        ]

    # What is seen

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)  # type: ignore[untyped-decorator]
    @fatal_errors
    def on_connected(self, event: Any) -> None:
        """A switch is here: ask what ports, groups and rules it has."""
        datapath = event.msg.datapath
        name = self._switch(datapath)
        self.journal.write("connected", switch=name)
        self.switches[name] = SwitchState(datapath)
        self.first_connected_s = self.first_connected_s or time.monotonic()
        self.connected.set()
        for request in (openflow.request_ports, openflow.request_groups, openflow.request_rules):
            datapath.send_msg(request(datapath))

    @set_ev_cls(ofp_event.EventOFPPortDescStatsReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])  # type: ignore[untyped-decorator]
    @fatal_errors
    def on_ports(self, event: Any) -> None:
        """The state of all ports of a switch."""
        datapath = event.msg.datapath
        for port in event.msg.body:
            self._see_port(datapath, port)
        self._reported(event, "ports")

    @set_ev_cls(ofp_event.EventOFPGroupDescStatsReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])  # type: ignore[untyped-decorator]
    @fatal_errors
    def on_groups(self, event: Any) -> None:
        """The groups of a switch."""
        datapath = event.msg.datapath
        found = openflow.installed_groups(datapath, event.msg.body)
        self.switches[self._switch(datapath)].groups |= found
        self._reported(event, "groups")

    @set_ev_cls(ofp_event.EventOFPFlowStatsReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])  # type: ignore[untyped-decorator]
    @fatal_errors
    def on_rules(self, event: Any) -> None:
        """The rules of a switch."""
        found = openflow.installed_rules(event.msg.body)
        self.switches[self._switch(event.msg.datapath)].rules |= found.keys()
        self.generation = max(self.generation, *(g + 1 for g in found.values()), 1)
        self._reported(event, "rules")

    def _reported(self, event: Any, what: str) -> None:
        """An answer, possibly in parts, of a switch that was asked for its state."""
        message = event.msg
        if message.flags & message.datapath.ofproto.OFPMPF_REPLY_MORE:
            return
        state = self.switches[self._switch(message.datapath)]
        state.unreported.discard(what)
        if not state.unreported:
            self.applied = None
            self.changed.set()

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)  # type: ignore[untyped-decorator]
    @fatal_errors
    def on_port(self, event: Any) -> None:
        """A port of a switch has changed, come, or gone."""
        message = event.msg
        gone = message.reason == message.datapath.ofproto.OFPPR_DELETE
        self._see_port(message.datapath, message.desc, gone=gone)

    def _see_port(self, datapath: Any, port: Any, *, gone: bool = False) -> None:
        up = not gone and openflow.has_carrier(datapath, port)
        switch, interface = self._switch(datapath), openflow.interface_of(port)
        self._note(self.fabric.port(switch, interface, port.port_no, up, time.monotonic()))

    @fatal_errors
    def _watch_carrier(self) -> None:
        """The kernel tells of interfaces by netlink: of HB switches' ports, which only it knows.

        And of those of rail and spine switches: all of these share one process, which reports a
        port up to 20 ms later when it is busy forwarding. A switch of its own would not. Until the
        first switch connects, links are still being made.
        """
        self.connected.wait()
        carriers = LinkCarriers()
        for interface, up in carriers.present():
            self.fabric.interface(interface, up, time.monotonic())
        while True:
            trampoline(carriers.sock, read=True)
            for interface, up in carriers.changed():
                self._note(self.fabric.interface(interface, up, time.monotonic()))

    @fatal_errors
    def _watch_rates(self) -> None:
        """The ports' speeds are those of their shapers, which the kernel tells of by netlink."""
        rates = LinkRates()
        news = rates.present()
        while True:
            for interface, rate_bps in news:
                self._note(self.fabric.rate(interface, rate_bps))
            trampoline(rates.sock, read=True)
            news = rates.changed()

    @fatal_errors
    def _watch_links(self) -> None:
        """Probe every link in turn; see who has died, and which link has held for long enough."""
        while True:
            began_s = time.monotonic()
            self.probes.round(self._heard)
            for descriptor, _ in self.deaths.poll(0):
                self._bury(descriptor)
            self._note(self.fabric.look(time.monotonic()))
            hub.sleep(max(0.0, began_s + self.probes.interval_s - time.monotonic()))

    def _heard(self, link: Link, sender: str, arrived: bool) -> None:
        self._note(self.fabric.probed(link, sender, arrived, time.monotonic()))

    def _bury(self, descriptor: int) -> None:
        """A proxy has died: its links end when nobody holds on to its namespace any more."""
        name = next(name for name, held in self.proxies.items() if held == descriptor)
        self.deaths.unregister(descriptor)
        os.close(self.proxies.pop(name))
        self.routes.pop(name).close()
        self.probes.close(name)
        self.journal.write("died", proxy=name)
        self._note(self.fabric.dead(name, time.monotonic()))

    def _note(self, detected: Iterable[dict[str, object]]) -> None:
        """Write down what is new about links, and have it dealt with."""
        for facts in detected:
            self.journal.write("detected", **facts)
            self.changed.set()

    # What is done about it

    @fatal_errors
    def _reconcile(self) -> None:
        """Make the fabric what it should be, whenever something has changed."""
        while True:
            self.changed.wait(timeout=START_PATIENCE_S if self._is_waiting() else None)
            hub.sleep(GATHERING_S)
            self.changed.clear()
            topology, health = self.fabric.topology, self.fabric.health(time.monotonic())
            if self._is_waiting():
                continue
            # What is drained works still: it is left without haste, and nobody is lost.
            worse, self.broken = self.broken < health.broken, health.broken
            before, self.applied = self.applied, (topology, health)
            # Ways do not depend on the rates of links that are used.
            if before and before[0] == topology and before[1].failed == health.failed:
                continue
            self._apply(topology, health, worse=worse)

    def _is_waiting(self) -> bool:
        """Whether switches that might connect have not said what they have.

        To act on half the truth would undo what a former controller did about a failure.
        """
        if self.begun:
            return False
        if any(state.unreported for state in self.switches.values()):
            return True
        if self.first_connected_s is None:
            return True
        now_s = time.monotonic()
        passed_s = now_s - self.first_connected_s
        if set(self.switches) != set(self.names):
            return passed_s < CONNECT_DEADLINE_S
        if self.fabric.health(now_s).failed:
            return passed_s < LINKS_DEADLINE_S
        return not self.probes.settled

    def _apply(self, topology: Topology, health: Health, *, worse: bool) -> None:
        """Switches and host routes, in an order in which nobody under way is lost."""
        if topology is not self.planner.topology:
            self.planner = Planner(topology)
        state = self.planner.state(health)
        self.probes.watch(topology)
        facts = {
            "failed": sorted(health.failed),
            "drained": sorted(health.drained),
            "cut_off": [*map(list, state.cut_off)],
        }
        self.journal.write("computed", rules=sum(map(len, state.rules.values())), **facts)
        reported = {n: s for n, s in self.switches.items() if not s.unreported}
        installed = {name: switch.rules for name, switch in reported.items()}
        wanted = {name: state.rules[name] for name in reported}
        for name, switch in reported.items():
            added, removed = switch.missing(wanted[name])
            counts = {"added": added, "removed": removed}
            self.journal.write("sent", switch=name, generation=self.generation, **counts)
        if worse or not self.begun:
            done = self._repair(reported, at_once(installed, wanted), state)
        else:
            distances = Distances(LiveLinks(topology, health))
            done = self._improve(reported, nearest_first(distances, installed, wanted), state)
        if done:
            self._settled(reported, state)

    def _repair(
        self, switches: dict[str, SwitchState], stages: Stages, state: DesiredState
    ) -> bool:
        """Something is broken: no pause. Returns whether all was done."""
        for stage in stages.before_routes:
            self._install(switches, stage, BROKEN_PATIENCE_S if self.begun else BARRIER_DEADLINE_S)
        self._reconcile_routes(state)
        if self.begun and self._is_interrupted(DRAINING_S):
            return False
        for stage in stages.behind_routes:
            self._install(switches, stage, BARRIER_DEADLINE_S)
        return True

    def _improve(
        self, switches: dict[str, SwitchState], stages: Stages, state: DesiredState
    ) -> bool:
        """All that can work works: stage by stage, without haste. Returns whether all was done."""
        for stage in stages.before_routes:
            self._install(switches, stage, BARRIER_DEADLINE_S)
            if self._is_interrupted(SETTLING_S):
                return False
        self._reconcile_routes(state)
        for stage in stages.behind_routes:
            if self._is_interrupted(DRAINING_S):
                return False
            self._install(switches, stage, BARRIER_DEADLINE_S)
        return True

    def _is_interrupted(self, pause_s: float) -> bool:
        """Let a moment pass, unless something changes: what is left to do is overtaken then."""
        if self.changed.wait(timeout=pause_s):
            self.applied = None
            return True
        return False

    def _install(self, switches: dict[str, SwitchState], stage: Rules, patience_s: float) -> None:
        for name, switch in switches.items():
            switch.install(stage[name], self.generation)
        self._wait_until_done(switches.values(), patience_s)

    def _settled(self, switches: dict[str, SwitchState], state: DesiredState) -> None:
        for name, routes in self.routes.items():
            routes.reconcile(state.routes[name])
        self.journal.write("settled", switches=sorted(switches))
        self.begun = True
        if not self.complete and set(switches) == set(self.names):
            self.complete = True
            # To look through the whole state for garbage, in a failure, would take 0.15 s.
            gc.freeze()
            self.journal.write("ready", generation=self.generation)

    def _reconcile_routes(self, state: DesiredState) -> None:
        """Give every proxy its host routes: from now on every pair has its new way."""
        added = removed = 0
        for name, routes in list(self.routes.items()):
            behind = routes_behind(self.gpus[name], routes.installed, state.routes[name])
            more, fewer = routes.reconcile(state.routes[name].union(behind))
            added, removed = added + more, removed + fewer
        self.journal.write("routes", added=added, removed=removed)
        self.journal.write("confirmed", generation=self.generation)

    def _wait_until_done(self, switches: Iterable[SwitchState], patience_s: float) -> None:
        """Wait for the barriers of all switches that are still there."""
        deadline_s = time.monotonic() + patience_s
        for switch in switches:
            while switch.awaited and self.switches.get(self._switch(switch.datapath)) is switch:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or not switch.done.wait(timeout=left_s):
                    if patience_s < BARRIER_DEADLINE_S:
                        return
                    raise RuntimeError(f"{self._switch(switch.datapath)} confirms nothing")
                switch.done.clear()

    @set_ev_cls(ofp_event.EventOFPBarrierReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])  # type: ignore[untyped-decorator]
    @fatal_errors
    def on_barrier(self, event: Any) -> None:
        """A switch has done all that was sent."""
        self.switches[self._switch(event.msg.datapath)].confirmed()

    @set_ev_cls(ofp_event.EventOFPErrorMsg, [CONFIG_DISPATCHER, MAIN_DISPATCHER])  # type: ignore[untyped-decorator]
    @fatal_errors
    def on_refused(self, event: Any) -> None:
        """A switch refuses a message: the state would be wrong."""
        message = event.msg
        raise RuntimeError(
            f"{self._switch(message.datapath)} refuses a message: "
            f"OpenFlow error type {message.type}, code {message.code}"
        )

    @set_ev_cls(ofp_event.EventOFPStateChange, DEAD_DISPATCHER)  # type: ignore[untyped-decorator]
    @fatal_errors
    def on_disconnected(self, event: Any) -> None:
        """A switch is gone. It may forward on without us: its links say whether it does."""
        if event.datapath.id is None:
            return
        name = self._switch(event.datapath)
        state = self.switches.get(name)
        if state is not None and state.datapath is event.datapath:
            del self.switches[name]
            state.done.set()
            self.complete = False
            self.journal.write("disconnected", switch=name)

    def _switch(self, datapath: Any) -> str:
        """The name of a switch."""
        return self.names[int(datapath.id) - 1]
