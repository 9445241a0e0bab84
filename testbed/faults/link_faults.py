"""Link faults of a fabric: ends without carrier, ends that blackhole, links at a lower rate.

Faults may overlap: an end recovers when the last fault on it is undone, and a link has the lowest
of the requested rates.
"""

import errno
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl.tcmsg import plugins, sched_template

from linux.network.netlink import DRAINED, Refused, Request, taken_down
from linux.network.route_socket import RouteBatch, RouteSocket
from linux.processes.threads import real_time
from model.errors import EmulationError
from model.fabric.shaping import Shaper
from model.fabric.topology import Link, Port
from testbed.fabric.links import LinkEndGone, Links
from testbed.fabric.shaping import LEAVES, ROOT, addressed, check_shaped, reshape, shape

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
        netlink.tc("del", BLACKHOLE, interface, parent=leaf)


class LinkFaults:
    """Faults in effect on one fabric's links; undoing a fault ignores ends that are gone.

    `moments_ns` of CLOCK_MONOTONIC are those directly before the system calls that take effect,
    which wait for `due_ns`: encoding them takes milliseconds.
    """

    def __init__(self, links: Links) -> None:
        self._links = links
        self.due_ns = 0
        self.moments_ns: list[int] = []
        self._down: Counter[Port] = Counter()
        self._dropping: Counter[Port] = Counter()
        self._rates: defaultdict[str, list[int]] = defaultdict(list)

    def note(self) -> None:
        """Wait until it is due, and note that something is broken or repaired at this moment."""
        time.sleep(max(0, self.due_ns - time.monotonic_ns()) / 1e9)
        self.moments_ns.append(time.monotonic_ns())

    def set_down(self, links: Sequence[Link]) -> None:
        """Take links down with one call, so that they lose carrier together.

        Raises `LinkEndGone` for an interface that is gone; the others are down all the same.
        """
        self._down.update(link.carrier_end for link in links)
        asked = [
            (f"{link.name}: taking it down", taken_down(self._links.index_of(link.carrier_end)))
            for link in links
        ]
        try:
            with real_time():  # the kernel waits for each, and a busy machine between them
                self.note()
                self._links.sockets[""].send(asked)
        except Refused as error:
            if error.number != errno.ENODEV:
                raise
            raise LinkEndGone(str(error)) from error

    def follow(self, old: Link, new: Link) -> None:
        """Keep the faults of a link whose upper end gets another port."""
        for counts in (self._down, self._dropping):
            counts[new.upper] = counts.pop(old.upper, 0)
        self._rates[new.name] = self._rates.pop(old.name, [])

    def leave(self, link: Link) -> None:
        """End the faults of both ends of a link: those of a switch that it leaves."""
        ends = [end for end in (link.lower, link.upper) if self._dropping.pop(end, 0)]
        self._down.pop(link.upper, None)
        self.drain([link], alias="")
        self._change(ends, end_blackhole, "cannot send again", (*GONE, *NO_BLACKHOLE))

    def drain(self, links: Sequence[Link], alias: str = DRAINED) -> None:
        """Ask the controller to take links out of use; an empty alias ends it."""
        ends = [link.carrier_end for link in links]
        self._change(ends, _link_set(ifalias=alias), "cannot be drained")

    def set_up(self, links: Sequence[Link]) -> None:
        """Restore carrier, except on links that another fault keeps down."""
        ends = [link.carrier_end for link in links]
        self._down.subtract(ends)
        lasting = [end for end in ends if self._down[end] <= 0]
        self._change(lasting, _link_set(state="up"), "cannot be brought up", GONE)

    def blackhole(self, ends: Sequence[Port]) -> None:
        """Blackhole all packets that these ends send; carrier stays."""
        self._dropping.update(ends)
        self._change(ends, start_blackhole, "cannot be blackholed")

    def end_blackhole(self, ends: Sequence[Port]) -> None:
        """Let these ends send again, except those that another fault blackholes."""
        self._dropping.subtract(ends)
        free, problem = [end for end in ends if self._dropping[end] <= 0], "cannot send again"
        self._change(free, end_blackhole, problem, (*GONE, *NO_BLACKHOLE))
        for end in free:
            with suppress(LinkEndGone), _explained(end, problem):
                self._links.impair_again(end)

    def degrade(self, link: Link, rate_bps: int) -> None:
        """Give both directions of a link a lower rate, and read it back."""
        self._rates[link.name].append(rate_bps)
        self._reshape(link)

    def end_degrade(self, link: Link, rate_bps: int) -> None:
        """Undo one lower rate; set the lowest remaining rate, and read it back."""
        self._rates[link.name].remove(rate_bps)
        self._reshape(link, GONE)

    def _reshape(self, link: Link, forgiven: Collection[int] = ()) -> None:
        ends, shaper = (link.lower, link.upper), self._shaper(link)
        changed = partial(reshape, shaper=shaper)
        self._change(ends, changed, "rate cannot be changed", forgiven)
        for end in ends:
            with suppress(LinkEndGone), self._place(end, "rate cannot be read") as place:
                check_shaped(*place, _name(end), shaper)

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

    def _change(
        self,
        ends: Sequence[Port],
        encode: Callable[[RouteBatch, int], None],
        problem: str,
        forgiven: Collection[int] = (),
    ) -> None:
        """Send requests to the interfaces of all ends together, once they are encoded.

        `encode` makes those for an interface's index. Errors with a number in `forgiven` are
        ignored; others name the end and `problem`.
        """
        with RouteBatch() as compiler:
            encode(compiler, 0)
            encoded = bytes(compiler.batch)
        asked = [
            (end, request)
            for end in ends
            for request in addressed(_name(end), encoded, self._links.index_of(end))
        ]
        with real_time():  # a busy machine would pause between the ends
            self.note()
            for end, request in asked:
                number = self._error_of(end, request)
                if number and number not in forgiven:
                    raised = LinkEndGone if number in GONE else EmulationError
                    raise raised(f"{_name(end)} {problem}: {os.strerror(number)}")

    def _error_of(self, end: Port, request: Request) -> int:
        """Send a request in an end's namespace; return its error's number (errno(3)), or 0."""
        place, _ = self._links.key_of(end)
        if place not in self._links.sockets:
            return errno.ENODEV
        try:
            self._links.sockets[place].send([request])
        except Refused as error:
            return error.number
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    @contextmanager
    def _place(self, end: Port, problem: str) -> Iterator[tuple[RouteSocket, int]]:
        """A netlink socket and the index of an end's interface; errors name `problem`."""
        with _explained(end, problem), self._links.netlink_of(end) as netlink:
            yield netlink, self._links.index_of(end)


def _link_set(**properties: str) -> Callable[[RouteBatch, int], None]:
    """The change of an interface's properties, as `ip link set` does (ip-link(8))."""
    return lambda netlink, index: netlink.link("set", index=index, **properties)


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
