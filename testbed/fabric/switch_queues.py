"""Queues of switches' ports below the shaper: a buffer of bytes (tc-bfifo(8)), or tc-red(8).

Packets of the data class wait here; short ones, acknowledgements and congestion notifications, have
a class of their own, as they have in a switch.
"""

from typing import Any

from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import TC_H_ROOT
from pyroute2.netlink.rtnl.tcmsg import plugins, sched_choke, sched_pfifo

from linux.network.route_socket import RouteSocket
from model.errors import EmulationError, RailbedError
from model.fabric.shaping import SwitchQueue
from model.fabric.spec import Datapath, FabricSpec
from testbed.fabric.shaping import DATA_CLASS, trial_link
from testbed.nodes.datapath import default_datapath

BUFFER, MARKING = "bfifo", "red"
# By default a packet in 1 / 2p is marked, not one in p: RED spaces marks evenly, at random up to
# 1 / p packets apart (Floyd and Jacobson 1993, section 7, method 2).
EVENLY = 0.5
# RED's weight of a new length in the average, as a power of two: the queue itself is compared.
WEIGHT = 0
# An average that idleness halves this often is none (Stab in linux/pkt_sched.h).
FORGOTTEN, STEPS = 31, 256
ECN = 1  # TC_RED_ECN
# The kernel's datapath hands on a packet with its sender's socket, whose send buffer it fills until
# it has left the last queue: no switch's queue would grow. A packet that netem delays is released
# from it (skb_orphan_partial in net/sched/sch_netem.c). In user space, packets are copied.
RELEASED_S = 1e-6


class Red:
    """RED as pyroute2 encodes a queue: its attributes are numbered and built like CHOKe's."""

    parent = TC_H_ROOT
    options = sched_choke.options

    @staticmethod
    def get_parameters(asked: dict[str, Any]) -> dict[str, Any]:
        """Return the attributes of a `SwitchQueue` (struct tc_red_qopt in linux/pkt_sched.h)."""
        parameters = {
            "limit": asked["limit"],
            "qth_min": asked["kmin"],
            "qth_max": asked["kmax"],
            "Wlog": WEIGHT,
            "Plog": 0,
            "Scell_log": 0,
            "flags": ECN,
        }
        return {
            "attrs": [
                ("TCA_CHOKE_PARMS", parameters),
                ("TCA_CHOKE_STAB", [FORGOTTEN] * STEPS),
                ("TCA_CHOKE_MAX_P", round(asked["pmax"] * EVENLY * (2**32 - 1))),
            ]
        }


plugins.setdefault(BUFFER, sched_pfifo)
plugins.setdefault(MARKING, Red)


def forwards_in_kernel(spec: FabricSpec) -> bool:
    """Whether switches forward packets in the kernel's datapath."""
    return (spec.datapath or default_datapath()) is Datapath.KERNEL


def set_queue(netlink: RouteSocket, interface: int, parent: int, queue: SwitchQueue) -> None:
    """Put a switch's queue under `parent`; raise `EmulationError` if it is not in place."""
    kind = MARKING if queue.ecn else BUFFER
    marks = {"kmin": queue.kmin_bytes, "kmax": queue.kmax_bytes, "pmax": queue.pmax}
    netlink.tc(
        "replace",
        kind,
        interface,
        parent=parent,
        limit=queue.buffer_bytes,
        **(marks if queue.ecn else {}),
    )
    queues = netlink.get_qdiscs(index=interface)
    kinds = [found.get_attr("TCA_KIND") for found in queues if found["parent"] == parent]
    if kinds != [kind]:
        raise EmulationError(f"queue under {parent:#x} must be {kind}, got {kinds}")


def missing_red() -> str | None:
    """Say what this kernel lacks for marks by the queue's length, as a sentence; None if nothing.

    Tested on a trial link in a temporary namespace.
    """
    try:
        with trial_link() as (netlink, index):
            set_queue(netlink, index, DATA_CLASS, SwitchQueue(SwitchQueue.kmax_bytes, ecn=True))
    except (OSError, NetlinkError, RailbedError) as error:
        return (
            f"ecn of switch_queue needs sch_red, which this kernel lacks ({error.args[-1]}); "
            "load it with `sudo modprobe sch_red`, or add `--clock virtual`, whose kernel has it"
        )
    return None
