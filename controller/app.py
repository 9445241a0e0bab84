"""The Ryu application: passes events of switches, kernel and link probes to the reconciler."""

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
from ryu.controller.handler import CONFIG_DISPATCHER, DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from ryu.lib import hub
from ryu.ofproto import ofproto_v1_3

from controller.detection.kernel_notifications import LinkCarriers, LinkRates
from controller.detection.probes import LinkProbes
from controller.journal import Journal
from controller.reconciler import Clock, Reconciler
from controller.southbound import openflow
from controller.southbound.host_routes import HostRoutes
from controller.southbound.openflow import SwitchSession
from model.fabric.topology import Link, Topology

Handler = Callable[..., None]
CONNECTED = CONFIG_DISPATCHER, MAIN_DISPATCHER


def fatal_errors(handler: Handler) -> Handler:
    """End the process if a handler raises: Ryu would only log it and go on with a wrong state."""

    @functools.wraps(handler)
    def guarded(app: Any, *arguments: Any) -> None:
        try:
            handler(app, *arguments)
        except Exception:
            app.journal.end_with_error(handler.__name__)

    return guarded


def handles(event: type, *states: str) -> Callable[[Handler], Handler]:
    """Let Ryu call a handler for an event of a switch in one of these states of its connection."""
    return lambda handler: set_ev_cls(event, list(states))(fatal_errors(handler))


class RailbedController(RyuApp):  # type: ignore[misc]
    """The southbound side of the reconciler: OpenFlow channels, netlink sockets, link probes."""

    OFP_VERSIONS = (ofproto_v1_3.OFP_VERSION,)

    def __init__(self, topology: Topology, process_ids: dict[str, int], journal: Journal) -> None:
        super().__init__()
        self.journal = journal
        self.names = topology.openflow_switches
        self.switches: dict[str, SwitchSession] = {}
        self.proxies = {os.pidfd_open(number): name for name, number in process_ids.items()}
        self.deaths = select.epoll()
        for descriptor in self.proxies:
            self.deaths.register(descriptor, select.EPOLLIN)
        self.probes = LinkProbes(topology, process_ids)
        timeout_s = topology.tcp_timeout_s
        routes = {name: HostRoutes(number, timeout_s) for name, number in process_ids.items()}
        clock = Clock(time.monotonic, hub.sleep, hub.Event())
        # Searching the whole state for garbage would take 0.15 s during a failure.
        self.reconciler = Reconciler(
            topology, self.switches, routes, self.probes, journal, clock, before_ready=gc.freeze
        )
        self.fabric = self.reconciler.fabric
        self.connected = hub.Event()

    def start(self) -> None:
        """Start the watching tasks and the reconciler."""
        super().start()
        for task in (self._watch_carrier, self._watch_rates, self._watch_links, self._reconcile):
            self.threads.append(hub.spawn(task))

    @handles(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def on_connected(self, event: Any) -> None:
        """Request the ports, groups and rules of a switch that has connected."""
        datapath = event.msg.datapath
        name = self._switch(datapath)
        self.switches[name] = SwitchSession(datapath, hub.Event())
        self.reconciler.connected(name)
        self.connected.set()
        for request in openflow.requests_of_state(datapath):
            datapath.send_msg(request)

    @handles(ofp_event.EventOFPPortDescStatsReply, *CONNECTED)
    def on_ports(self, event: Any) -> None:
        """Handle the state of all ports of a switch."""
        datapath = event.msg.datapath
        for port in event.msg.body:
            self._see_port(datapath, port)
        self._reported(event, "ports")

    @handles(ofp_event.EventOFPGroupDescStatsReply, *CONNECTED)
    def on_groups(self, event: Any) -> None:
        """Record the groups of a switch."""
        datapath = event.msg.datapath
        installed = openflow.installed_groups(datapath, event.msg.body)
        self.switches[self._switch(datapath)].groups |= installed
        self._reported(event, "groups")

    @handles(ofp_event.EventOFPFlowStatsReply, *CONNECTED)
    def on_rules(self, event: Any) -> None:
        """Record the rules of a switch."""
        installed = openflow.installed_rules(event.msg.body)
        self.switches[self._switch(event.msg.datapath)].rules |= installed.keys()
        self._reported(event, "rules", installed.values())

    def _reported(self, event: Any, part: str, generations: Iterable[int] = ()) -> None:
        """Handle a switch's reply about its state; a reply may consist of several messages."""
        message = event.msg
        name = self._switch(message.datapath)
        if not message.flags & message.datapath.ofproto.OFPMPF_REPLY_MORE:
            self.switches[name].unreported.discard(part)
        self.reconciler.reported(name, generations)

    @handles(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def on_port(self, event: Any) -> None:
        """Handle a port of a switch that was changed, added or removed."""
        message = event.msg
        gone = message.reason == message.datapath.ofproto.OFPPR_DELETE
        self._see_port(message.datapath, message.desc, gone=gone)

    def _see_port(self, datapath: Any, port: Any, *, gone: bool = False) -> None:
        up = not gone and openflow.has_carrier(datapath, port)
        switch, interface = self._switch(datapath), str(port.name.rstrip(b"\0").decode())
        seen = self.fabric.port(switch, interface, port.port_no, up, time.monotonic())
        self.reconciler.note(seen)

    @fatal_errors
    def _watch_carrier(self) -> None:
        """Watch the state of all switches' interfaces by netlink.

        Only the kernel knows the ports of HB switches. Rail and spine switches share one process,
        which reports a port up to 20 ms late when it is busy forwarding; separate switches would
        not. Start at the first connection of a switch, as links are still being created before.
        """
        self.connected.wait()
        carriers = LinkCarriers()
        for interface, up, drained in carriers.present():
            self.fabric.interface(interface, up, time.monotonic())
            self.fabric.drained(interface, asked=drained)
        while True:
            trampoline(carriers.sock, read=True)
            for interface, up, drained in carriers.changed():
                self.reconciler.note(self.fabric.interface(interface, up, time.monotonic()))
                self.reconciler.note(self.fabric.drained(interface, asked=drained))

    @fatal_errors
    def _watch_rates(self) -> None:
        rates = LinkRates()
        changes = rates.present()
        while True:
            for interface, rate_bps in changes:
                self.reconciler.note(self.fabric.rate(interface, rate_bps))
            trampoline(rates.sock, read=True)
            changes = rates.changed()

    @fatal_errors
    def _watch_links(self) -> None:
        """Probe all links in rounds; detect dead proxies and links whose hold-down is over.

        Start at the first connection of a switch: links that are not there yet lose all probes.
        """
        self.connected.wait()
        while True:
            began_s, interval_s = time.monotonic(), self.probes.interval_s
            is_end_of_round = self.probes.probe(self._heard)
            for descriptor, _ in self.deaths.poll(0):
                self.deaths.unregister(descriptor)
                os.close(descriptor)
                name = self.proxies.pop(descriptor)
                self.probes.close(name)
                self.reconciler.died(name)
            if is_end_of_round:
                self.reconciler.note(self.fabric.look(time.monotonic()))
            # Also after a pause, probes have time to arrive.
            hub.sleep(max(interval_s / 2, began_s + interval_s - time.monotonic()))

    def _heard(self, link: Link, sender: str, arrived: bool) -> None:
        self.reconciler.note(self.fabric.probed(link, sender, arrived, time.monotonic()))

    @fatal_errors
    def _reconcile(self) -> None:
        self.reconciler.run()

    @handles(ofp_event.EventOFPBarrierReply, *CONNECTED)
    def on_barrier(self, event: Any) -> None:
        """Record that a switch has processed all messages before a barrier."""
        self.switches[self._switch(event.msg.datapath)].confirmed()

    @handles(ofp_event.EventOFPErrorMsg, *CONNECTED)
    def on_refused(self, event: Any) -> None:
        """Raise `RuntimeError` as a switch refused a message: its state would be wrong."""
        message = event.msg
        raise RuntimeError(
            f"{self._switch(message.datapath)} refuses a message: "
            f"OpenFlow error type {message.type}, code {message.code}"
        )

    @handles(ofp_event.EventOFPStateChange, DEAD_DISPATCHER)
    def on_disconnected(self, event: Any) -> None:
        """Record a disconnected switch."""
        if event.datapath.id is None:
            return
        name = self._switch(event.datapath)
        state = self.switches.get(name)
        if state is not None and state.datapath is event.datapath:
            del self.switches[name]
            state.done.set()
            self.reconciler.disconnected(name)

    def _switch(self, datapath: Any) -> str:
        return self.names[int(datapath.id) - 1]
