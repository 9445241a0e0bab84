"""Delay and loss of links: a netem queue (tc-netem(8)) under each class of a shaper.

A packet is held for its delay first, then waits for tokens.
"""

from pyroute2.netlink.exceptions import NetlinkError

from linux.network.route_socket import RouteSocket
from model.errors import EmulationError, RailbedError
from model.fabric.shaping import Impairment
from testbed.fabric.shaping import LEAVES, QUEUE_PACKETS, trial_link

NETEM = "netem"
# Packets held for their delay, in addition to the queue of an unimpaired class.
HELD_UP_PACKETS = 10_000


def impair(netlink: RouteSocket, interface: int, impairment: Impairment) -> None:
    """Add delay and loss to a shaped interface; raise `EmulationError` if netem is not in place."""
    for leaf in LEAVES:
        netlink.tc(
            "replace",
            NETEM,
            interface,
            parent=leaf,
            delay=round(impairment.delay_s * 1e6),
            loss=impairment.loss * 100,
            limit=QUEUE_PACKETS + HELD_UP_PACKETS,
        )
    queues = netlink.get_qdiscs(index=interface)
    found = {queue["parent"] for queue in queues if queue.get_attr("TCA_KIND") == NETEM}
    if found != set(LEAVES):
        raise EmulationError(f"netem queues wanted under {LEAVES}, found under {found}")


def missing_netem() -> str | None:
    """Say what this kernel lacks for delay and loss, as a sentence; None if it supports both.

    Tested on a trial link in a temporary namespace.
    """
    try:
        with trial_link() as (netlink, index):
            impair(netlink, index, Impairment(delay_s=0.001, loss=0.01))
    except (OSError, NetlinkError, RailbedError) as error:
        return (
            f"delay and loss of links need netem, which this kernel lacks ({error.args[-1]}); "
            "load it with `sudo modprobe sch_netem`, or boot a kernel that has it"
        )
    return None
