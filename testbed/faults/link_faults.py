"""What is broken of a fabric's links: ends without carrier, ends that drop, links that are slow.

Faults may overlap, so it is counted how many hold an end: it is well again with the last of them,
and a link has the lowest of the rates that were asked for.
"""

import errno
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl.tcmsg import plugins, sched_template

from model.errors import EmulationError
from model.fabric.shaping import Shaper
from model.fabric.topology import Link, LinkKind, Port
from testbed.fabric.links import Wiring
from testbed.fabric.shaping import (
    LEAVES,
    ROOT,
    check_shaped,
    reshape,
    shape,
)

BLACKHOLE = "blackhole"
# No such interface, or a netlink socket that is closed.
GONE = (errno.ENODEV, errno.EBADF)
# The queue to be deleted is another, or the class is new.
NO_BLACKHOLE = (errno.EINVAL, errno.ENOENT)
# pyroute2 puts a queue that it does not know at the root, whatever parent is asked for.
plugins.setdefault(BLACKHOLE, sched_template)


class Gone(EmulationError):
    """An end of a link went with its GPU proxy, or with the whole fabric."""


def carrier_end(link: Link) -> Port:
    """The end at which a link is taken down: a switch's, as a GPU's own end would lose routes."""
    return link.lower if link.kind is LinkKind.UPLINK else link.upper


def drop_all(netlink: IPRoute, interface: int) -> None:
    """Make a shaped interface lose all it sends without a word, and what is queued.

    The kernel's blackhole queue reports success, so neither a sender nor a switch notices.
    """
    for leaf in LEAVES:
        netlink.tc("replace", BLACKHOLE, interface, parent=leaf)


def drop_no_more(netlink: IPRoute, interface: int) -> None:
    """Give a shaped interface its queues back; HTB makes those that it began with."""
    for leaf in LEAVES:
        try:
            netlink.tc("del", BLACKHOLE, interface, parent=leaf)
        except NetlinkError as error:
            if error.code not in NO_BLACKHOLE:
                raise


def check_dropping(netlink: IPRoute, interface: int) -> None:
    """Read back that a shaped interface loses all it sends; raise `EmulationError` if not."""
    queues = netlink.get_qdiscs(index=interface)
    found = {queue["parent"] for queue in queues if queue.get_attr("TCA_KIND") == BLACKHOLE}
    if found != set(LEAVES):
        raise EmulationError(f"blackhole queues wanted at {LEAVES}, found at {found}")


class Breakage:
    """The broken ends and links of one fabric; every way back survives ends that are gone."""

    def __init__(self, wires: Wiring) -> None:
        self._wires = wires
        self._down: Counter[Port] = Counter()
        self._dropping: Counter[Port] = Counter()
        self._rates: defaultdict[str, list[int]] = defaultdict(list)

    def take_carrier(self, links: Sequence[Link]) -> None:
        """Make links lose carrier, one right after the other."""
        ends = [carrier_end(link) for link in links]
        self._down.update(ends)
        places = [(end, self._place(end)) for end in ends]
        for end, (netlink, index) in places:
            with _explained(end, "cannot be taken down"):
                netlink.link("set", index=index, state="down")

    def give_carrier(self, links: Sequence[Link]) -> None:
        """Links have carrier again, but for those that another fault holds."""
        ends = [carrier_end(link) for link in links]
        self._down.subtract(ends)
        for end in ends:
            if self._down[end] <= 0:
                with suppress(Gone), _explained(end, "cannot be brought up"):
                    netlink, index = self._place(end)
                    netlink.link("set", index=index, state="up")

    def silence(self, ends: Sequence[Port]) -> None:
        """Let nothing out of these ends any more; carrier stays."""
        self._dropping.update(ends)
        for end in ends:
            with _explained(end, "cannot be made to drop everything"):
                drop_all(*self._place(end))

    def end_silence(self, ends: Sequence[Port]) -> None:
        """These ends send again, but for those that another fault holds."""
        self._dropping.subtract(ends)
        for end in ends:
            if self._dropping[end] <= 0:
                with suppress(Gone), _explained(end, "cannot be made to send again"):
                    drop_no_more(*self._place(end))
                    self._wires.impair_again(end)

    def slow_down(self, link: Link, rate_bps: int) -> None:
        """Give both directions of a link a lower rate, and read it back."""
        self._rates[link.name].append(rate_bps)
        for end in (link.lower, link.upper):
            self._reshape(link, end)

    def end_slowness(self, link: Link, rate_bps: int) -> None:
        """Take a lower rate back, and read back which rate the link has now."""
        self._rates[link.name].remove(rate_bps)
        for end in (link.lower, link.upper):
            with suppress(Gone):
                self._reshape(link, end)

    def _reshape(self, link: Link, end: Port) -> None:
        with _explained(end, "cannot be given another rate"):
            netlink, index = self._place(end)
            reshape(netlink, index, self._shaper(link))
            check_shaped(netlink, index, _name(end), self._shaper(link))

    def shape_again(self, link: Link, end: Port) -> None:
        """Shape an end that Open vSwitch may have wiped, as faults have it now; read it back."""
        with suppress(Gone), _explained(end, "cannot be shaped again"):
            netlink, index = self._place(end)
            if any(q["handle"] == ROOT for q in netlink.get_qdiscs(index=index)):
                netlink.tc("del", "htb", index, ROOT)
            shape(netlink, index, self._shaper(link))
            check_shaped(netlink, index, _name(end), self._shaper(link))
            self._wires.impair_again(end)
            if self._dropping[end] > 0:
                drop_all(netlink, index)

    def is_whole(self, link: Link) -> bool:
        """Whether nothing that a link is given is lost."""
        ends = link.lower, link.upper
        return not any(self._down[end] > 0 or self._dropping[end] > 0 for end in ends)

    def _shaper(self, link: Link) -> Shaper:
        return replace(link.shaper, rate_bps=min([link.rate_bps, *self._rates[link.name]]))

    def _place(self, end: Port) -> tuple[IPRoute, int]:
        if end.node in self._wires.lost:
            raise Gone(f"{_name(end)} is gone: this GPU proxy is dead")
        return self._wires.netlink_of(end), self._wires.index_of(end)


def _name(end: Port) -> str:
    return f"{end.node}'s interface {end.interface}"


@contextmanager
def _explained(end: Port, problem: str) -> Iterator[None]:
    """Say in an `EmulationError` what could not be done, and where."""
    try:
        yield
    except (NetlinkError, OSError) as error:
        if error.args[0] in GONE:
            raise Gone(f"{_name(end)} {problem}: it is gone") from error
        raise EmulationError(f"{_name(end)} {problem}: {error}") from error
