"""Kernel notifications about interfaces of the current namespace: carrier and rate (rtnetlink(7)).

Interfaces whose alias is `DRAINED` are to be taken out of use before they go down.

A real switch reports the current speed of a port (OpenFlow 1.3, section 7.2.1, `curr_speed`).
Here it is the rate of the root HTB class, which all packets of an interface pass. The kernel
reports every change at once (RTM_NEWTCLASS; linux/pkt_sched.h).
"""

import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress

from linux.network.netlink import (
    DRAINED,
    RTM_NEWLINK,
    SHAPER,
    TC_H_ROOT,
    TCA_KIND,
    TCA_OPTIONS,
    TCMSG,
    Message,
    NetlinkSocket,
    attributes_in,
    link_of,
)

RTMGRP_LINK, RTMGRP_TC = 1, 8
HTB_OPTIONS = struct.Struct("=8xI")  # struct tc_htb_opt, up to rate.rate
RATE64 = struct.Struct("=Q")
RTM_NEWTCLASS, RTM_GETTCLASS = 40, 42
TCA_HTB_PARMS, TCA_HTB_RATE64 = 1, 6

# An interface's name, whether it is up (RFC 2863), and whether it is to be drained.
Carrier = tuple[str, bool, bool]
# An interface's name, and its sending rate in bit/s.
Rate = tuple[str, int]


class GroupReader:
    """A socket for notifications of a multicast group, and one to read the current state."""

    def __init__(self, groups: int) -> None:
        self._group = NetlinkSocket(groups)
        self._reader = NetlinkSocket()
        self.sock = self._group.sock  # readable when something has changed

    def close(self) -> None:
        """Release the namespace."""
        self._group.close()
        self._reader.close()


class LinkCarriers(GroupReader):
    """Reports interfaces that appear, disappear, and gain or lose carrier."""

    def __init__(self) -> None:
        super().__init__(RTMGRP_LINK)
        self._known: frozenset[str] = frozenset()

    def present(self) -> list[Carrier]:
        """All interfaces; those that have disappeared are reported as down."""
        links = self._reader.interfaces()
        carriers = [(name, up, alias == DRAINED) for name, _, up, alias in links]
        gone = self._known - {name for name, *_ in carriers}
        self._known = frozenset(name for name, *_ in carriers)
        return [*carriers, *((name, False, False) for name in gone)]

    def changed(self) -> list[Carrier]:
        """Wait for notifications; return the changed interfaces, or all if some were lost."""
        notified = self._group.notifications()
        if notified is None:
            return self.present()
        links = ((kind, *link_of(payload)) for kind, payload in notified)
        changes = [
            (name, up and kind == RTM_NEWLINK, alias == DRAINED)
            for kind, name, _, up, alias in links
        ]
        self._known |= {name for name, *_ in changes}
        return changes


class LinkRates(GroupReader):
    """Reports the rates of interfaces that have a shaper."""

    def __init__(self) -> None:
        super().__init__(RTMGRP_TC)

    def present(self) -> list[Rate]:
        """The rates of all shaped interfaces."""
        names = {index: name for name, index, *_ in self._reader.interfaces()}
        return [
            (names[index], rate_bps)
            for asked in names
            for index, rate_bps in root_rates(
                self._reader.dumped(RTM_GETTCLASS, TCMSG.pack(socket.AF_UNSPEC, asked, 0, 0, 0))
            )
        ]

    def changed(self) -> list[Rate]:
        """Wait for notifications; return the changed rates, or all if some were lost."""
        notified = self._group.notifications()
        return self.present() if notified is None else list(_named(root_rates(notified)))


def root_rates(messages: Iterable[Message]) -> Iterator[tuple[int, int]]:
    """Interface indexes, and the rates of their root HTB classes in bit/s."""
    for kind, payload in messages:
        if kind == RTM_NEWTCLASS:
            _family, index, _handle, parent, _info = TCMSG.unpack_from(payload)
            attributes = attributes_in(payload[TCMSG.size :])
            if parent == TC_H_ROOT and attributes[TCA_KIND] == SHAPER:
                yield index, _rate_bps(attributes_in(attributes[TCA_OPTIONS]))


def _rate_bps(options: dict[int, bytes]) -> int:
    """Convert a class's rate from bytes/s, a 64-bit attribute from 34 Gbit/s on, to bit/s."""
    if TCA_HTB_RATE64 in options:
        (rate,) = RATE64.unpack(options[TCA_HTB_RATE64])
    else:
        (rate,) = HTB_OPTIONS.unpack_from(options[TCA_HTB_PARMS])
    return 8 * int(rate)


def _named(rates: Iterable[tuple[int, int]]) -> Iterator[Rate]:
    for index, rate_bps in rates:
        with suppress(OSError):  # the interface is gone
            yield socket.if_indextoname(index), rate_bps
