"""Queues below the shaper, for packets of the data class: of switches' ports, and of NICs.

A switch's port has a buffer of bytes (tc-bfifo(8)), or tc-red(8). Short packets, acknowledgements
and congestion notifications, have a class of their own, as they have in a switch.

At a NIC, where flows contend, all GPUs that send by it take turns. In one queue, packets that a GPU
forwards for others would outnumber its own: TCP keeps two segments of a flow in its own queue, and
as many as the flow's window has in that of another. So each sender has a queue, and the queues take
turns by bytes (deficit round robin, tc-htb(8)), as a NIC arbitrates its queue pairs.
"""

from collections.abc import Sequence
from ipaddress import IPv4Network
from typing import Any

from pyroute2.netlink.rtnl import TC_H_ROOT
from pyroute2.netlink.rtnl.tcmsg import plugins, sched_choke, sched_pfifo

from linux.network.route_socket import RouteSocket
from model.errors import EmulationError
from model.fabric.addressing import rail_network
from model.fabric.shaping import SEGMENT_PACKETS, SwitchQueue
from model.fabric.spec import Datapath, FabricSpec
from model.fabric.topology import Link, LinkKind, Port, Topology
from testbed.fabric.shaping import DATA_CLASS, ETHERTYPE_IPV4, missing
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
# The handle of the queues that take turns.
TURNS = 0x4_0000
OWN = TURNS | 1
# Bytes/s, and bytes at once, that no shaper above lets through.
UNLIMITED, UNLIMITED_BURST = 1_000_000_000, 1 << 20


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
    """Say what this kernel lacks for marks by the queue's length, a sentence; None if nothing."""
    queue = SwitchQueue(SwitchQueue.kmax_bytes, ecn=True)
    return missing(
        "ecn of switch_queue needs sch_red",
        "sch_red",
        lambda netlink, index: set_queue(netlink, index, DATA_CLASS, queue),
    )


def other_senders(topology: Topology, link: Link, end: Port) -> tuple[IPv4Network, ...]:
    """Return the addresses of the GPUs that send by a NIC which is not theirs, at this end."""
    gpu = topology.gpu_by_name.get(end.node)
    if gpu is None or link.kind is not LinkKind.NIC:
        return ()
    if topology.spec.grain_packets >= SEGMENT_PACKETS:  # segments are short where flows contend
        return ()
    peers = (peer for peer in topology.domain(gpu.domain) if peer != gpu)
    return tuple(rail_network(peer.rail) for peer in peers)


def take_turns(
    netlink: RouteSocket,
    interface: int,
    parent: int,
    others: Sequence[IPv4Network],
    turn_bytes: int,
) -> None:
    """Give own packets, and those from each of the `others`, a queue of their own under `parent`.

    In a turn, a queue sends `turn_bytes`, at least one segment. Raises `EmulationError` if the
    queues are not in place.
    """
    netlink.tc("replace", "htb", interface, TURNS, parent=parent, default=OWN & 0xFFFF)
    for number, sender in enumerate((None, *others)):
        netlink.tc(
            "add-class",
            "htb",
            interface,
            OWN + number,
            parent=TURNS,
            rate=UNLIMITED,
            burst=UNLIMITED_BURST,
            cburst=UNLIMITED_BURST,
            quantum=turn_bytes,
        )
        if sender:
            netlink.tc(
                "add-filter",
                "u32",
                interface,
                parent=TURNS,
                prio=1,
                protocol=ETHERTYPE_IPV4,
                target=OWN + number,
                keys=[f"{int(sender.network_address):#x}/{int(sender.netmask):#x}+12"],
            )
    wanted = {OWN + number for number in range(1 + len(others))}
    classes = {found["handle"] for found in netlink.get_classes(index=interface)}
    if not wanted <= classes:
        raise EmulationError(f"classes under {parent:#x} must be {wanted}, got {classes}")
