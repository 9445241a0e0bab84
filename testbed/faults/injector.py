"""Faults of a running fabric, each returns its own undo; the optical switch that moves links.

No fault outlives the fabric: interfaces go with its namespace, processes with the run.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from math import ceil
from pathlib import Path

from pyroute2.netlink.exceptions import NetlinkError

from linux.network.counters import PACKETS, parse_carried
from linux.network.namespaces import namespace_of
from linux.network.route_socket import RouteSocket
from linux.processes.lifetime import kill, wait_for
from model.errors import EmulationError, RailbedError
from model.fabric.link_probes import probe_interval_s
from model.fabric.topology import Link, LinkKind, Port, Topology
from model.faults import Component, FaultMode, loses_links
from testbed.fabric.links import LinkEndGone
from testbed.fabric.shaping import (
    TRIAL_NAME,
    TRIAL_SHAPER,
    check_leaves,
    check_shaped,
    reshape,
    trial_link,
)
from testbed.faults.link_faults import BLACKHOLE, LinkFaults, end_blackhole, start_blackhole
from testbed.nodes.openvswitch import DATABASE
from testbed.testbed import Testbed

# Undoes a fault; harmless when called twice, or when the broken component is gone.
Undo = Callable[[], None]

CONTROLLER = Component.CONTROLLER.value
# A link is idle that carries at most so many packets beside the controller's probes in this time.
IDLE_S, IDLE_PACKETS, IDLE_DEADLINE_S = 0.05, 1, 10
# Operation tried to find out whether this kernel supports a fault mode.
NEEDS = {
    FaultMode.DOWN: "taking an interface down",
    FaultMode.BLACKHOLE: "the blackhole queue (sch_blackhole)",
    FaultMode.BLACKHOLE_ONE_WAY: "the blackhole queue (sch_blackhole)",
    FaultMode.DEGRADE: "changing the rate of a shaped interface (HTB)",
    FaultMode.FLAP: "taking an interface down",
    FaultMode.KILL: "taking an interface down",
    FaultMode.UPGRADE: "taking an interface down",
}


class FaultInjector:
    """Breaks parts of a running fabric; faults may overlap, and be undone in any order.

    Restarted processes die with the calling thread: call it from a long-lived one.
    """

    def __init__(self, bed: Testbed) -> None:
        self._bed = bed
        self._link_faults = LinkFaults(bed.links)
        self._killed: Counter[str] = Counter()
        # Interfaces of rail switches that the optical switch has moved.
        self._moved: set[str] = set()

    def moment_ns(self, since_ns: int) -> int:
        """When, since `since_ns`, something was first broken or repaired: directly before it was.

        Both are of CLOCK_MONOTONIC, in nanoseconds. `since_ns` itself if nothing was.
        """
        return next((ns for ns in self._link_faults.moments_ns if ns >= since_ns), since_ns)

    def due_at(self, due_ns: int) -> None:
        """Let what is broken or repaired from now on be prepared, and wait for this moment."""
        self._link_faults.due_ns = due_ns

    def break_link(self, link: Link, mode: FaultMode, rate_bps: int | None = None) -> Undo:
        """Break a link: one way, its lower node's packets are lost; `rate_bps` is the rate left."""
        if mode in (FaultMode.DOWN, FaultMode.BLACKHOLE):
            return self._break_all([link], mode)
        if mode is FaultMode.BLACKHOLE_ONE_WAY:
            return self.blackhole([link.lower])
        if rate_bps and not loses_links(mode):
            faults = self._link_faults
            return _broken(
                lambda: faults.degrade(link, rate_bps), lambda: faults.end_degrade(link, rate_bps)
            )
        missing = "is not a fault mode of a link" if loses_links(mode) else "needs a rate"
        raise EmulationError(f"{link.name}: {mode} {missing}")

    def blackhole(self, ends: Sequence[Port]) -> Undo:
        """Drop all packets that these ends send; carrier stays."""
        link_faults = self._link_faults
        return _broken(lambda: link_faults.blackhole(ends), lambda: link_faults.end_blackhole(ends))

    def break_switch(self, name: str, mode: FaultMode) -> Undo:
        """Break all links of a rail, spine or HB switch at once, or kill the switch."""
        if mode in (FaultMode.DOWN, FaultMode.BLACKHOLE):
            return self._break_all(self._bed.topology.links_of(name), mode)
        if mode is FaultMode.KILL and name in self._bed.topology.openflow_switches:
            return _broken(lambda: self._kill_switch(name), lambda: self._revive_switch(name))
        if mode is FaultMode.UPGRADE and name in self._bed.topology.openflow_switches:
            return self._upgrade(name)
        raise EmulationError(f"{name}: {mode} is not a fault mode of this switch")

    def break_gpu(self, gpu: str, mode: FaultMode) -> Undo:
        """Break both links of a GPU, or kill its proxy, which does not come back."""
        if mode in (FaultMode.DOWN, FaultMode.BLACKHOLE):
            return self._break_all(self._bed.topology.links_of(gpu), mode)
        if mode is FaultMode.KILL:
            self._kill_gpu(gpu)
            return lambda: None
        raise EmulationError(f"{gpu}: {mode} is not a fault mode of a GPU")

    def kill_controller(self) -> Undo:
        """Kill the controller (`kill -9`); the undo restarts it, and does not wait for it."""
        return _broken(self._kill_controller, self._revive_controller)

    def set_cross_connects(
        self,
        before: Topology,
        after: Topology,
        reconfiguration_s: float,
        broken: Collection[str] = (),
    ) -> None:
        """Set the optical switch: move the NIC links whose rail switch port differs in `after`.

        They lose carrier for at least `reconfiguration_s`, the time that a real switch would take;
        moving ports between Open vSwitch bridges may take longer. Faults of GPUs and links go with
        the links; those of `broken` switches do not.
        """
        begun_s, bed = time.monotonic(), self._bed
        old = {link.lower.node: link for link in before.links if link.kind is LinkKind.NIC}
        moved = _moved(old, after)
        lasting = [link for link in moved if link.lower.node not in bed.links.lost]
        self._moved |= {link.upper.interface for link in moved}
        for link in moved:
            was = old[link.lower.node]
            if was.upper.node in broken:
                self._link_faults.leave(was)
            else:
                self._link_faults.follow(was, link)
        self._link_faults.set_down(lasting)
        bed.open_vswitch.move_ports(
            [link.upper.interface for link in moved],
            [(link.upper.node, link.upper.number, link.upper.interface) for link in lasting],
        )
        for link in lasting:
            self._link_faults.shape_again(link, link.upper)
            bed.links.impair_end(link, link.upper)
        time.sleep(max(0.0, begun_s + reconfiguration_s - time.monotonic()))
        self._link_faults.set_up(lasting)

    def _break_all(self, links: Sequence[Link], mode: FaultMode) -> Undo:
        faults = self._link_faults
        if mode is FaultMode.DOWN:
            return _broken(lambda: faults.set_down(links), lambda: faults.set_up(links))
        return self.blackhole([port for link in links for port in (link.lower, link.upper)])

    def _kill_switch(self, name: str) -> None:
        """Set the switch's links down, in a millisecond; then disconnect it, which is slow."""
        self._killed[name] += 1
        self._link_faults.set_down(self._bed.topology.links_of(name))
        self._bed.open_vswitch.disconnect(name)

    def _revive_switch(self, name: str) -> None:
        """Let the switch connect to the controller, empty, then restore carrier."""
        links = self._bed.topology.links_of(name)
        self._killed[name] -= 1
        if self._killed[name] == 0:
            self._bed.open_vswitch.restart(name)
        self._link_faults.set_up([one for one in links if one.upper.interface not in self._moved])

    def _upgrade(self, name: str) -> Undo:
        """Drain a switch, wait until its links carry no data, and end it.

        The undo starts it again; the controller uses its links once it has its rules.
        """
        links, faults = self._bed.topology.links_of(name), self._link_faults
        with ExitStack() as undos:
            undos.callback(
                _broken(lambda: self._empty(name), lambda: faults.drain(links, alias=""))
            )
            undos.callback(self.break_switch(name, FaultMode.KILL))
            return undos.pop_all().close

    def _empty(self, name: str) -> None:
        """Drain a switch, and wait until its links carry no data."""
        links = self._bed.topology.links_of(name)
        self._link_faults.drain(links)
        self._bed.controller.wait_until_moved(frozenset(link.name for link in links))
        wait_for(lambda: self._are_idle(links), f"{name}: the last packets", IDLE_DEADLINE_S)

    def _are_idle(self, links: Sequence[Link]) -> bool:
        """Whether links carry little but probes for a moment, which a busy machine lengthens."""
        begun_s, before = time.monotonic(), self._packets()
        time.sleep(IDLE_S)
        after, seconds = self._packets(), time.monotonic() - begun_s
        most = IDLE_PACKETS + ceil(seconds / probe_interval_s(self._bed.topology))
        names = after.keys() & {link.upper.interface for link in links}
        return all(after[name][way] - before[name][way] <= most for name in names for way in (0, 1))

    def _packets(self) -> dict[str, tuple[int, int]]:
        """Packets that the interfaces of all switches have received and sent."""
        counters = Path(f"/proc/{self._bed.open_vswitch.process_id}/net/dev")
        return parse_carried(counters.read_text(), PACKETS)

    def _kill_gpu(self, gpu: str) -> None:
        """Kill a GPU proxy; set its links down, as open sockets keep its namespace alive."""
        bed = self._bed
        if gpu in bed.links.lost:
            raise EmulationError(f"{gpu}: GPU proxy is already dead")
        links = self._bed.topology.links_of(gpu)
        bed.links.read_counters()
        bed.watch.forget(f"{gpu} (GPU proxy)")
        self._link_faults.note()
        kill(bed.proxies[gpu].process_id)
        bed.links.lose_proxy(gpu)
        with suppress(LinkEndGone):
            self._link_faults.set_down(links)

    def _kill_controller(self) -> None:
        self._killed[CONTROLLER] += 1
        self._link_faults.note()
        self._bed.controller.kill()

    def _revive_controller(self) -> None:
        self._killed[CONTROLLER] -= 1
        if self._killed[CONTROLLER] or self._bed.controller.is_running:
            return
        self._link_faults.note()
        with namespace_of(self._bed.watch.process_id(DATABASE)):
            self._bed.controller.start()


def _moved(old: Mapping[str, Link], after: Topology) -> Sequence[Link]:
    """NIC links of `after` whose upper end is at another port than the old one of their GPU."""
    nics = (link for link in after.links if link.kind is LinkKind.NIC)
    return [link for link in nics if link.upper != old[link.lower.node].upper]


def _broken(break_it: Callable[[], None], repair: Callable[[], None]) -> Undo:
    """Call `break_it`, and `repair` if it fails; return an undo that calls `repair` once."""
    pending = [repair]

    def undo() -> None:
        if pending:
            pending.pop()()

    try:
        break_it()
    except BaseException:
        with suppress(EmulationError):
            undo()
        raise
    return undo


def missing_for(mode: FaultMode) -> str | None:
    """Say what this kernel lacks for a fault mode, as a sentence; None if it supports it.

    Tested by making such a fault on a trial link in a temporary namespace.
    """
    try:
        with trial_link() as (netlink, index):
            _attempt(mode, netlink, index)
    except (OSError, NetlinkError, RailbedError) as error:
        return f"this kernel does not support the fault '{mode}': {NEEDS[mode]} failed ({error})"
    return None


def _attempt(mode: FaultMode, netlink: RouteSocket, index: int) -> None:
    match mode:
        case FaultMode.BLACKHOLE | FaultMode.BLACKHOLE_ONE_WAY:
            start_blackhole(netlink, index)
            check_leaves(netlink, index, BLACKHOLE)
            end_blackhole(netlink, index)
        case FaultMode.DEGRADE:
            slower = replace(TRIAL_SHAPER, rate_bps=TRIAL_SHAPER.rate_bps // 2)
            reshape(netlink, index, slower)
            check_shaped(netlink, index, TRIAL_NAME, slower)
        case FaultMode.DOWN | FaultMode.FLAP | FaultMode.KILL | FaultMode.UPGRADE:
            netlink.link("set", index=index, state="up")
            netlink.link("set", index=index, state="down")
