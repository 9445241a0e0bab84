"""Links shaped by HFSC (tc-hfsc(7)) instead of HTB: for a benchmark that compares the two.

HFSC follows a service curve: a backlogged link makes up afterwards for a pause of any length.
"""

from collections.abc import Sequence

from pyroute2.netlink.exceptions import NetlinkError

from linux.network.route_socket import RouteSocket
from model.errors import NotReady
from model.fabric.shaping import ACKNOWLEDGEMENT_CLASS, ACKNOWLEDGEMENT_SHARE, Shaper
from model.fabric.topology import Link
from testbed.fabric.links import Links
from testbed.fabric.shaping import (
    DATA_CLASS,
    LINK_CLASS,
    ROOT,
    add_acknowledgement_filter,
)


def shape_by_hfsc(links: Links, shaped: Sequence[Link]) -> None:
    """Replace the shapers of these links; raises `NotReady` on a kernel without HFSC."""
    for link in shaped:
        for end in (link.lower, link.upper):
            with links.netlink_of(end) as netlink:
                _replace(netlink, links.index_of(end), link.shaper)


def _replace(netlink: RouteSocket, interface: int, shaper: Shaper) -> None:
    rate = shaper.rate_bps
    acknowledgements = round(rate * ACKNOWLEDGEMENT_SHARE)
    whole, data, short = (
        {"m2": f"{bps}bit"} for bps in (rate, rate - acknowledgements, acknowledgements)
    )
    netlink.tc("del", "htb", interface, ROOT)
    try:
        netlink.tc("add", "hfsc", interface, ROOT, default=DATA_CLASS & 0xFFFF)
    except NetlinkError as error:
        raise NotReady(f"this kernel has no HFSC ({error.args[-1]})") from error
    netlink.tc("add-class", "hfsc", interface, LINK_CLASS, parent=ROOT, fsc=whole, usc=whole)
    netlink.tc("add-class", "hfsc", interface, DATA_CLASS, parent=LINK_CLASS, fsc=data)
    # HFSC serves the real-time curve (rsc) first.
    netlink.tc(
        "add-class",
        "hfsc",
        interface,
        ACKNOWLEDGEMENT_CLASS,
        parent=LINK_CLASS,
        rsc=short,
        fsc=short,
    )
    add_acknowledgement_filter(netlink, interface)
