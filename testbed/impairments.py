"""Delay and loss of links: a netem queue (tc-netem(8)) under each class of a shaper.

A packet waits in the class for its delay, and for its tokens afterwards.
"""

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from model.errors import EmulationError, RailbedError
from model.shaping import DEFAULT_DEPTH_S, Impairment, Shaper
from testbed.namespace import private_namespace
from testbed.shapers import ACKNOWLEDGEMENT_CLASS, DATA_CLASS, shape

NETEM = "netem"
LEAVES = (DATA_CLASS, ACKNOWLEDGEMENT_CLASS)
# As many as an unimpaired class holds (txqueuelen), and what is held up besides.
QUEUE_PACKETS = 1000
HELD_UP_PACKETS = 10_000
PROBE = Shaper(10_000_000, DEFAULT_DEPTH_S)


def impair(netlink: IPRoute, interface: int, impairment: Impairment) -> None:
    """Delay and lose what leaves by a shaped interface; `EmulationError` if it is not so then."""
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
    """What this kernel lacks for delay and loss, as a sentence; None if it can do both.

    Found by trying, in a namespace that goes at once.
    """
    try:
        with private_namespace(), IPRoute() as netlink:
            netlink.link("add", ifname="probe", kind="veth", peer="probe-peer")
            index = netlink.link_lookup(ifname="probe")[0]
            shape(netlink, index, PROBE)
            impair(netlink, index, Impairment(delay_s=0.001, loss=0.01))
    except (OSError, NetlinkError, RailbedError) as error:
        return (
            f"delay and loss of links need netem, which this kernel lacks ({error.args[-1]}); "
            "load it with `sudo modprobe sch_netem`, or boot a kernel that has it"
        )
    return None
