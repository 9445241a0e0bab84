"""The Ryu application: events in, messages out; all decisions are pure functions elsewhere."""

import functools
from collections.abc import Callable
from typing import Any

from ryu.base.app_manager import RyuApp
from ryu.controller import ofp_event
from ryu.controller.handler import (
    CONFIG_DISPATCHER,
    DEAD_DISPATCHER,
    MAIN_DISPATCHER,
    set_ev_cls,
)
from ryu.ofproto import ofproto_v1_3

from controller import openflow
from controller.desired import Rule, desired_routes, desired_rules
from controller.journal import Journal
from controller.reconcile import difference, vacated
from controller.routes import HostRoutes
from model.topology import Topology

Handler = Callable[[Any, Any], None]


def fatal_errors(handler: Handler) -> Handler:
    """Ryu would log an exception of a handler and go on with a wrong state: end instead."""

    @functools.wraps(handler)
    def guarded(app: Any, event: Any) -> None:
        try:
            handler(app, event)
        except Exception:
            app.journal.end_with_error(handler.__name__)

    return guarded


class RailbedController(RyuApp):  # type: ignore[misc]
    """Keeps every switch in the state that the topology asks for."""

    OFP_VERSIONS = (ofproto_v1_3.OFP_VERSION,)

    def __init__(self, topology: Topology, process_ids: dict[str, int], journal: Journal) -> None:
        super().__init__()
        self.topology = topology
        self.process_ids = process_ids
        self.routes: dict[str, HostRoutes] = {}
        self.journal = journal
        self.generation = 1
        self.confirmed: set[str] = set()
        self.installed: dict[str, dict[Rule, int]] = {}

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)  # type: ignore[untyped-decorator]
    @fatal_errors
    def on_connected(self, event: Any) -> None:
        """A switch is here, so its links are: see to the routes, and ask what rules it has."""
        datapath = event.msg.datapath
        if not self.routes:
            self._reconcile_routes()
        self.journal.write("connected", switch=self._switch(datapath))
        self.installed[self._switch(datapath)] = {}
        datapath.send_msg(openflow.request_rules(datapath))

    def _reconcile_routes(self) -> None:
        """Give every proxy its host routes."""
        added = removed = 0
        for name, process_id in self.process_ids.items():
            self.routes[name] = HostRoutes(process_id)
            desired = desired_routes(self.topology, self.topology.gpu_by_name[name])
            more, fewer = self.routes[name].reconcile(desired)
            added, removed = added + more, removed + fewer
        self.journal.write("routes", added=added, removed=removed)

    @set_ev_cls(ofp_event.EventOFPFlowStatsReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])  # type: ignore[untyped-decorator]
    @fatal_errors
    def on_rules(self, event: Any) -> None:
        """A switch says what it has, possibly in parts: send the difference after the last."""
        message = event.msg
        installed = self.installed[self._switch(message.datapath)]
        installed.update(openflow.installed_rules(message.body))
        if not message.flags & message.datapath.ofproto.OFPMPF_REPLY_MORE:
            self._reconcile(message.datapath, installed)

    def _reconcile(self, datapath: Any, installed: dict[Rule, int]) -> None:
        """Additions, removals, and a barrier behind them (section 7.3.8)."""
        switch = self._switch(datapath)
        self.generation = max(self.generation, *(g + 1 for g in installed.values()), 1)
        desired = desired_rules(self.topology, switch)
        self.journal.write("computed", switch=switch, rules=len(desired))
        change = difference(installed.keys(), desired)
        for message in openflow.update(datapath, change, self.generation):
            datapath.send_msg(message)
        facts = {"added": len(change.additions), "removed": len(vacated(change))}
        self.journal.write("sent", switch=switch, generation=self.generation, **facts)

    @set_ev_cls(ofp_event.EventOFPBarrierReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])  # type: ignore[untyped-decorator]
    @fatal_errors
    def on_barrier(self, event: Any) -> None:
        """A switch has done all that was sent."""
        switch = self._switch(event.msg.datapath)
        self.confirmed.add(switch)
        self.journal.write("confirmed", switch=switch)
        if self.confirmed == set(self.topology.openflow_switches):
            self.journal.write("ready", generation=self.generation)

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
        """A switch is gone."""
        if event.datapath.id is not None:
            switch = self._switch(event.datapath)
            self.confirmed.discard(switch)
            self.journal.write("disconnected", switch=switch)

    def _switch(self, datapath: Any) -> str:
        """The name of a switch."""
        return self.topology.openflow_switches[int(datapath.id) - 1]
