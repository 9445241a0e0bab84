"""Link faults of a fabric: ends without carrier, ends that blackhole, links at a lower rate.

Faults may overlap: an end recovers when the last fault on it is undone, and a link has the lowest
of the requested rates.
"""

import errno
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl.tcmsg import plugins, sched_template

from linux.network.netlink import DRAINED
from linux.network.route_socket import RouteSocket
from model.errors import EmulationError
from model.fabric.shaping import Shaper
from model.fabric.topology import Link, Port
from testbed.fabric.links import LinkEndGone, Links
from testbed.fabric.shaping import LEAVES, ROOT, check_shaped, reshape, shape

BLACKHOLE = "blackhole"
# No such interface, or a netlink socket that is closed.
GONE = (errno.ENODEV, errno.EBADF)
# Errors of deleting a blackhole queue: the queue is another, or the class is new.
NO_BLACKHOLE = (errno.EINVAL, errno.ENOENT)
# pyroute2 puts a queue of an unknown kind at the root, whatever parent is requested.
plugins.setdefault(BLACKHOLE, sched_template)


def start_blackhole(netlink: RouteSocket, interface: int) -> None:
    """Make a shaped interface silently drop all packets, queued ones included.

    The kernel's blackhole queue reports success, so neither a sender nor a switch notices.
    """
    for leaf in LEAVES:
        netlink.tc("replace", BLACKHOLE, interface, parent=leaf)


def end_blackhole(netlink: RouteSocket, interface: int) -> None:
    """Remove the blackhole queues of a shaped interface; HTB makes its default ones again."""
    for leaf in LEAVES:
        try:
            netlink.tc("del", BLACKHOLE, interface, parent=leaf)
        except NetlinkError as error:
            if error.code not in NO_BLACKHOLE:
                raise


class LinkFaults:
    """Faults in effect on one fabric's links; undoing a fault ignores ends that are gone."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._down: Counter[Port] = Counter()
        self._dropping: Counter[Port] = Counter()
        self._rates: defaultdict[str, list[int]] = defaultdict(list)

    def set_down(self, links: Sequence[Link]) -> None:
        """Take links down: they lose carrier."""
        self._down.update(link.carrier_end for link in links)
        self.keep_down(links)

    def keep_down(self, links: Sequence[Link]) -> None:
        """Take links down together, also those that something else brought up."""
        self._links.set_down(links)

    def drain(self, links: Sequence[Link], alias: str = DRAINED) -> None:
        """Ask the controller to take links out of use; an empty alias ends it."""
        for end in (link.carrier_end for link in links):
            with self._place(end, "cannot be drained") as (netlink, index):
                netlink.link("set", index=index, ifalias=alias)

    def set_up(self, links: Sequence[Link]) -> None:
        """Restore carrier, except on links that another fault keeps down."""
        ends = [link.carrier_end for link in links]
        self._down.subtract(ends)
        for end in ends:
            if self._down[end] <= 0:
                with (
                    suppress(LinkEndGone),
                    self._place(end, "cannot be brought up") as (netlink, index),
                ):
                    netlink.link("set", index=index, state="up")

    def blackhole(self, ends: Sequence[Port]) -> None:
        """Blackhole all packets that these ends send; carrier stays."""
        self._dropping.update(ends)
        for end in ends:
            with self._place(end, "cannot be blackholed") as place:
                start_blackhole(*place)

    def end_blackhole(self, ends: Sequence[Port]) -> None:
        """Let these ends send again, except those that another fault blackholes."""
        self._dropping.subtract(ends)
        for end in ends:
            if self._dropping[end] <= 0:
                problem = "blackhole cannot be removed"
                with suppress(LinkEndGone), self._place(end, problem) as place:
                    end_blackhole(*place)
                    self._links.impair_again(end)

    def degrade(self, link: Link, rate_bps: int) -> None:
        """Give both directions of a link a lower rate, and read it back."""
        self._rates[link.name].append(rate_bps)
        for end in (link.lower, link.upper):
            self._reshape(link, end)

    def end_degrade(self, link: Link, rate_bps: int) -> None:
        """Undo one lower rate; set the lowest remaining rate, and read it back."""
        self._rates[link.name].remove(rate_bps)
        for end in (link.lower, link.upper):
            with suppress(LinkEndGone):
                self._reshape(link, end)

    def _reshape(self, link: Link, end: Port) -> None:
        with self._place(end, "rate cannot be changed") as (netlink, index):
            reshape(netlink, index, self._shaper(link))
            check_shaped(netlink, index, _name(end), self._shaper(link))

    def shape_again(self, link: Link, end: Port) -> None:
        """Restore a shaper that Open vSwitch may have wiped, with current faults; read it back."""
        problem = "shaper cannot be restored"
        with suppress(LinkEndGone), self._place(end, problem) as (netlink, index):
            if any(q["handle"] == ROOT for q in netlink.get_qdiscs(index=index)):
                netlink.tc("del", "htb", index, ROOT)
            shape(netlink, index, self._shaper(link))
            check_shaped(netlink, index, _name(end), self._shaper(link))
            self._links.impair_again(end)
            if self._dropping[end] > 0:
                start_blackhole(netlink, index)

    def _shaper(self, link: Link) -> Shaper:
        return replace(link.shaper, rate_bps=min([link.rate_bps, *self._rates[link.name]]))

    @contextmanager
    def _place(self, end: Port, problem: str) -> Iterator[tuple[RouteSocket, int]]:
        """A netlink socket and the index of an end's interface; errors name `problem`."""
        with _explained(end, problem), self._links.netlink_of(end) as netlink:
            yield netlink, self._links.index_of(end)


def _name(end: Port) -> str:
    return f"{end.node}: interface {end.interface}"


@contextmanager
def _explained(end: Port, problem: str) -> Iterator[None]:
    """Turn an error into `EmulationError` with end and problem, or into `LinkEndGone`."""
    try:
        yield
    except (NetlinkError, OSError) as error:
        if error.args[0] in GONE:
            raise LinkEndGone(f"{_name(end)} {problem}: not found") from error
        raise EmulationError(f"{_name(end)} {problem}: {error}") from error
