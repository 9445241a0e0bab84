"""Faults of a running fabric. Every fault returns its own undo.

No fault outlives the fabric: interfaces go with its namespace, processes with the run.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import permutations
from typing import assert_never

from pyroute2.netlink.exceptions import NetlinkError

from linux.network.namespaces import namespace_of
from linux.network.route_socket import RouteSocket
from linux.processes.lifetime import kill
from model.errors import EmulationError, RailbedError
from model.fabric.topology import Gpu, Link, Port
from model.faults import FaultMode, loses_links
from testbed.fabric.links import Gone
from testbed.fabric.shaping import TRIAL_NAME, TRIAL_SHAPER, check_shaped, reshape, trial_link
from testbed.faults.link_faults import LinkFaults, check_dropping, drop_all, drop_no_more
from testbed.testbed import Testbed, widen_send_buffers

# Undoes a fault; harmless when called twice, or when the broken component is gone.
Undo = Callable[[], None]


# Operation tried to find out whether this kernel supports a fault mode.
NEEDS = {
    FaultMode.DOWN: "taking an interface down",
    FaultMode.BLACKHOLE: "the blackhole queue (sch_blackhole)",
    FaultMode.BLACKHOLE_ONE_WAY: "the blackhole queue (sch_blackhole)",
    FaultMode.DEGRADE: "changing the rate of a shaped interface (HTB)",
    FaultMode.FLAP: "taking an interface down",
    FaultMode.KILL: "taking an interface down",
}


class FaultInjector:
    """Breaks parts of a running fabric; faults may overlap, and be undone in any order.

    Restarted processes die with the calling thread: call it from a long-lived one.
    """

    def __init__(self, bed: Testbed) -> None:
        self._bed = bed
        self._link_faults = LinkFaults(bed.links)
        self._killed: Counter[str] = Counter()

    def break_link(
        self, link: Link, mode: FaultMode, rate_bps: int | None = None, sender: str | None = None
    ) -> Undo:
        """Break a link; `rate_bps` is the rate that is left, `sender` for a one-way blackhole.

        The blackhole drops what `sender` sends, by default the link's lower node.
        """
        if mode in (FaultMode.DOWN, FaultMode.BLACKHOLE):
            return self._break_all([link], mode)
        if mode is FaultMode.BLACKHOLE_ONE_WAY:
            return self._blackhole([_sending_end(link, sender or link.lower.node)])
        if rate_bps and not loses_links(mode):
            return self._degrade(link, rate_bps)
        missing = "is no fault mode of a link" if loses_links(mode) else "needs a rate"
        raise EmulationError(f"{link.name}: {mode} {missing}")

    def break_switch(self, name: str, mode: FaultMode) -> Undo:
        """Break all links of a rail, spine or HB switch at once, or kill the switch."""
        if mode in (FaultMode.DOWN, FaultMode.BLACKHOLE):
            return self._break_all(self._bed.topology.links_of(name), mode)
        if mode is FaultMode.KILL and name in self._bed.topology.openflow_switches:
            return _broken(lambda: self._kill_switch(name), lambda: self._revive_switch(name))
        raise EmulationError(f"{name}: {mode} is no fault mode of this switch")

    def break_gpu(self, gpu: str, mode: FaultMode) -> Undo:
        """Break both links of a GPU, or kill its proxy, which does not come back."""
        if mode in (FaultMode.DOWN, FaultMode.BLACKHOLE):
            return self._break_all(self._bed.topology.links_of(gpu), mode)
        if mode is FaultMode.KILL:
            self._kill_gpu(gpu)
            return lambda: None
        raise EmulationError(f"{gpu}: {mode} is no fault mode of a GPU")

    def kill_controller(self) -> Undo:
        """Kill the controller (`kill -9`); the undo restarts it and waits until it is ready."""
        return _broken(self._bed.controller.kill, self._start_controller)

    def kill_open_vswitch(self) -> Undo:
        """Kill the daemon of all rail and spine switches (`kill -9`); the undo restarts it.

        Its rules are lost. If the controller runs, the undo waits until it has reinstalled them.
        """
        return _broken(self._bed.open_vswitch.kill_daemon, self._start_open_vswitch)

    def _break_all(self, links: Sequence[Link], mode: FaultMode) -> Undo:
        faults = self._link_faults
        if mode is FaultMode.DOWN:
            return _broken(lambda: faults.take_carrier(links), lambda: faults.give_carrier(links))
        return self._blackhole([port for link in links for port in (link.lower, link.upper)])

    def _blackhole(self, ends: Sequence[Port]) -> Undo:
        link_faults = self._link_faults
        return _broken(lambda: link_faults.blackhole(ends), lambda: link_faults.end_blackhole(ends))

    def _degrade(self, link: Link, rate_bps: int) -> Undo:
        link_faults = self._link_faults
        return _broken(
            lambda: link_faults.degrade(link, rate_bps),
            lambda: link_faults.end_degrade(link, rate_bps),
        )

    def _kill_switch(self, name: str) -> None:
        """Take carrier first: that takes a millisecond, removing the bridge much longer."""
        self._killed[name] += 1
        self._link_faults.take_carrier(self._bed.topology.links_of(name))
        self._bed.open_vswitch.remove_bridge(name)

    def _revive_switch(self, name: str) -> None:
        """Restore the switch, then its shapers, which Open vSwitch wipes, then carrier."""
        links = self._bed.topology.links_of(name)
        self._killed[name] -= 1
        if self._killed[name] == 0:
            self._bed.open_vswitch.add_bridges([self._bed.network[name].bridge()])
            for link in links:
                self._link_faults.shape_again(link, link.port_of(name))
        self._link_faults.give_carrier(links)

    def _kill_gpu(self, gpu: str) -> None:
        """Kill a GPU proxy; take carrier at once, as open sockets keep its namespace alive."""
        bed = self._bed
        if gpu in bed.links.lost:
            raise EmulationError(f"{gpu}: this GPU proxy is dead already")
        links = self._bed.topology.links_of(gpu)
        bed.links.read_counters(links)
        bed.watch.forget(f"{gpu} (GPU proxy)")
        kill(bed.proxies[gpu].process_id)
        bed.links.lose_proxy(gpu)
        for link in links:
            with suppress(Gone):
                self._link_faults.take_carrier([link])

    def _start_controller(self) -> None:
        if self._bed.controller.is_running:
            return
        with namespace_of(self._bed.watch.process_id("Open vSwitch's database")):
            self._bed.controller.start()
        self._bed.controller.wait_for_event("listening")
        self._bed.controller.wait_for_event("ready")

    def _start_open_vswitch(self) -> None:
        """Restart the daemon on its database, restore the shapers it wiped, wait for its rules."""
        bed = self._bed
        if bed.open_vswitch.is_running:
            return
        behind = bed.controller.written()
        with namespace_of(bed.watch.process_id("Open vSwitch's database")):
            bed.open_vswitch.start_daemon()
        bed.open_vswitch.wait_until_configured()
        for link in bed.topology.links:
            for end in (link.lower, link.upper):
                if end.node in bed.topology.openflow_switches:
                    self._link_faults.shape_again(link, end)
        if bed.controller.is_running:
            bed.controller.wait_for_event("ready", behind)
            self._widen_send_buffers()

    def _widen_send_buffers(self) -> None:
        """Widen the new daemon's send buffers, by a packet between two GPUs with working links."""
        bed = self._bed
        for one, other in permutations(bed.topology.gpus, 2):
            if one.rail == other.rail and self._is_whole(one) and self._is_whole(other):
                widen_send_buffers(bed.proxies[one.name], other, bed.open_vswitch)
                return

    def _is_whole(self, gpu: Gpu) -> bool:
        links = self._bed.topology.links_of(gpu.name)
        return gpu.name not in self._bed.links.lost and all(map(self._link_faults.is_whole, links))


def _sending_end(link: Link, sender: str) -> Port:
    if sender not in (link.lower.node, link.upper.node):
        raise EmulationError(f"{link.name}: {sender} is at neither end of this link")
    return link.port_of(sender)


def _broken(break_it: Callable[[], None], mend: Callable[[], None]) -> Undo:
    """Break something; return an undo that acts once. A failed break is undone at once."""
    pending = [mend]

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
        return f"this kernel cannot make the fault '{mode}': {NEEDS[mode]} failed ({error})"
    return None


def _attempt(mode: FaultMode, netlink: RouteSocket, index: int) -> None:
    match mode:
        case FaultMode.BLACKHOLE | FaultMode.BLACKHOLE_ONE_WAY:
            drop_all(netlink, index)
            check_dropping(netlink, index)
            drop_no_more(netlink, index)
        case FaultMode.DEGRADE:
            slower = replace(TRIAL_SHAPER, rate_bps=TRIAL_SHAPER.rate_bps // 2)
            reshape(netlink, index, slower)
            check_shaped(netlink, index, TRIAL_NAME, slower)
        case FaultMode.DOWN | FaultMode.FLAP | FaultMode.KILL:
            netlink.link("set", index=index, state="up")
            netlink.link("set", index=index, state="down")
        case _:
            assert_never(mode)
