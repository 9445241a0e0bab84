"""Shaped links: token buckets (tc-htb(8)) with a class for acknowledgements, delay and loss.

With traffic both ways, acknowledgements wait behind data in the queue and completion times grow
by half. A class of higher priority for packets too short to carry data keeps completion time
within 1 % of the model. Both classes may borrow up to the link's rate, and data borrows all of it.

Delay and loss are a netem queue (tc-netem(8)) under each class: a packet is held for its delay
first, then waits for tokens, in the queue of a switch's port (`queues.py`) if it has one.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl.tcmsg.common import calc_xmittime

from linux.network.namespaces import private_namespace
from linux.network.netlink import HEADER, Request, requests_in_batch
from linux.network.route_socket import RouteBatch, RouteSocket
from model.errors import EmulationError, RailbedError
from model.fabric.shaping import (
    ACKNOWLEDGEMENT_BELOW_BYTES,
    ACKNOWLEDGEMENT_CLASS,
    ACKNOWLEDGEMENT_SHARE,
    DEFAULT_DEPTH_S,
    MTU_BYTES,
    Impairment,
    Shaper,
)

ROOT = 0x1_0000
LINK_CLASS = ROOT | 1
DATA_CLASS = ROOT | 2
LEAVES = (DATA_CLASS, ACKNOWLEDGEMENT_CLASS)

QUANTUM_BYTES = 16 * 1024
# HTB does not ask the link's bucket for what a class sends at its own rate (htb_class_mode and
# htb_activate_prios in the kernel's net/sched/sch_htb.c): acknowledgements would come on top of the
# link's rate. A class must have a rate: this one, in bytes/s, is the least for which tc-htb's table
# of transmission times, of packets up to 2 kB in ticks of 64 ns, has numbers of 32 bits.
DATA_CLASS_RATE, DATA_CLASS_BURST_BYTES = 8, MTU_BYTES
# Length of each leaf's queue: the interface's (ip-link(8), txqueuelen).
QUEUE_PACKETS = 1000
ETHERTYPE_IPV4 = 0x0800
# struct tcmsg and struct ifinfomsg (linux/rtnetlink.h): four bytes, then the interface.
INTERFACE, INTERFACE_AT = struct.Struct("=i"), HEADER.size + 4
# u32 reads the total length of the IP header, 16 bits at offset 2 (RFC 791, section 3.1).
_LENGTH_MASK = 0xFFFF & ~(ACKNOWLEDGEMENT_BELOW_BYTES - 1)
_SHORT_PACKET = f"0x0000/{_LENGTH_MASK:#06x}+2"
# Data of RDMA is data, however short: a message's last packet must not overtake the others. It has
# UDP in the IP header, port 4791, and behind the UDP header an opcode of 6 to 11 (RDMA WRITE).
_ROCE, _OPCODES = ("0x11/0xff+9", "0x12b7/0xffff+22"), ("0x06/0xfe+28", "0x08/0xfc+28")
# A link to test what this kernel supports.
TRIAL_NAME = "trial"
TRIAL_SHAPER = Shaper(10_000_000, DEFAULT_DEPTH_S)
NETEM = "netem"
# The handle of netem under each class.
HELD_UP = {DATA_CLASS: 0x2_0000, ACKNOWLEDGEMENT_CLASS: 0x3_0000}
# Packets held for their delay, in addition to the queue of an unimpaired class. netem counts both
# together, unless a queue below it has those that wait.
HELD_UP_PACKETS = 10_000


def shape(netlink: RouteSocket, interface: int, shaper: Shaper) -> None:
    """Shape the egress of the interface with this index, in the namespace of `netlink`."""
    netlink.tc("add", "htb", interface, ROOT, default=DATA_CLASS & 0xFFFF)
    for handle, options in _classes(shaper).items():
        netlink.tc("add-class", "htb", interface, handle, **options)
    add_acknowledgement_filter(netlink, interface)


def add_acknowledgement_filter(netlink: RouteSocket, interface: int) -> None:
    """Classify packets too short for data into the acknowledgement class of an interface."""
    classes = [([*_ROCE, opcode], DATA_CLASS) for opcode in _OPCODES]
    for keys, target in (*classes, ([_SHORT_PACKET], ACKNOWLEDGEMENT_CLASS)):
        netlink.tc(
            "add-filter",
            "u32",
            interface,
            parent=ROOT,
            prio=1 if target == DATA_CLASS else 2,
            protocol=ETHERTYPE_IPV4,
            target=target,
            keys=keys,
        )


@cache
def _requests(shaper: Shaper) -> bytes:
    """The encoded requests of `shape`, for interface index 0."""
    with RouteBatch() as compiler:
        shape(compiler, 0, shaper)
        return bytes(compiler.batch)


def shape_requests(what: str, interface: int, shaper: Shaper) -> Iterator[Request]:
    """The requests that shape an interface; each shaper is encoded once, which is slow."""
    return addressed(what, _requests(shaper), interface)


def addressed(what: str, encoded: bytes, interface: int) -> Iterator[Request]:
    """Yield requests that were encoded for interface index 0 as those for another one."""
    for about, request in requests_in_batch(what, encoded):
        begin, end = request[:INTERFACE_AT], request[INTERFACE_AT + INTERFACE.size :]
        yield about, begin + INTERFACE.pack(interface) + end


def reshape(netlink: RouteSocket, interface: int, shaper: Shaper) -> None:
    """Change the rate of a shaped interface; queued packets stay."""
    for handle, options in _classes(shaper).items():
        netlink.tc("change-class", "htb", interface, handle, **options)


def _classes(shaper: Shaper) -> dict[int, dict[str, int]]:
    """HTB options of each class, by handle; rates in bytes/s."""
    rate = shaper.rate_bps // 8
    common = {
        "ceil": rate,
        "burst": shaper.burst_bytes,
        "cburst": shaper.burst_bytes,
        "quantum": QUANTUM_BYTES,
    }
    return {
        LINK_CLASS: {**common, "parent": ROOT, "rate": rate},
        DATA_CLASS: {
            **common,
            "parent": LINK_CLASS,
            "rate": DATA_CLASS_RATE,
            "burst": DATA_CLASS_BURST_BYTES,
            "prio": 1,
        },
        ACKNOWLEDGEMENT_CLASS: {
            **common,
            "parent": LINK_CLASS,
            "rate": round(rate * ACKNOWLEDGEMENT_SHARE),
            "prio": 0,
        },
    }


def check_shaped(netlink: RouteSocket, interface: int, name: str, shaper: Shaper) -> None:
    """Read the shaper back; raise `EmulationError` if it is not there as asked."""
    try:
        classes = _read_classes(netlink, interface)
        filters = list(netlink.get_filters(index=interface, parent=ROOT))
    except NetlinkError as error:
        raise EmulationError(f"{name}: cannot read its shaper back: {error}") from error
    wanted = {
        handle: (
            options["rate"],
            options["ceil"],
            calc_xmittime(options["ceil"], options["cburst"]),
        )
        for handle, options in _classes(shaper).items()
    }
    if classes != wanted or not filters:
        raise EmulationError(
            f"{name}: wrong shaper: classes with (rate, ceiling, depth) in bytes/s and ticks must "
            f"be {wanted}, got {classes} and {len(filters)} filters; does another program change "
            "this machine's traffic control?"
        )


def _read_classes(netlink: RouteSocket, interface: int) -> dict[int, tuple[int, int, int]]:
    """Rate and ceiling in bytes/s and bucket depth in scheduler ticks, by class handle."""
    classes = {}
    of_shaper = (m for m in netlink.get_classes(index=interface) if m["handle"] & ROOT)
    for message in of_shaper:
        options = message.get_attr("TCA_OPTIONS")
        parameters = options.get_attr("TCA_HTB_PARMS")
        rate = options.get_attr("TCA_HTB_RATE64") or parameters["rate"]
        ceiling = options.get_attr("TCA_HTB_CEIL64") or parameters["ceil"]
        classes[message["handle"]] = (rate, ceiling, parameters["cbuffer"])
    return classes


@contextmanager
def trial_link() -> Iterator[tuple[RouteSocket, int]]:
    """Shape a link in a temporary namespace; yield its netlink socket and the shaped end's index.

    Raises `NetlinkError` or `OSError` if the kernel cannot make it.
    """
    with private_namespace(), RouteSocket() as netlink:
        netlink.link("add", ifname=TRIAL_NAME, kind="veth", peer=f"{TRIAL_NAME}-peer")
        index = netlink.link_lookup(ifname=TRIAL_NAME)[0]
        shape(netlink, index, TRIAL_SHAPER)
        yield netlink, index


def impair(netlink: RouteSocket, interface: int, impairment: Impairment) -> int:
    """Add delay and loss to a shaped interface; raise `EmulationError` if netem is not in place.

    Returns the class of data below, of a queue in which packets wait after their delay.
    """
    for leaf, handle in HELD_UP.items():
        netlink.tc(
            "replace",
            NETEM,
            interface,
            parent=leaf,
            handle=handle,
            delay=round(impairment.delay_s * 1e6),
            loss=impairment.loss * 100,
            limit=QUEUE_PACKETS + HELD_UP_PACKETS,
        )
    check_leaves(netlink, interface, NETEM)
    return HELD_UP[DATA_CLASS] | 1


def check_leaves(netlink: RouteSocket, interface: int, kind: str) -> None:
    """Read back the queues under both classes; raise `EmulationError` if one is not of a kind."""
    queues = netlink.get_qdiscs(index=interface)
    parents = {queue["parent"] for queue in queues if queue.get_attr("TCA_KIND") == kind}
    if parents != set(LEAVES):
        raise EmulationError(f"{kind} queues must be under {LEAVES}, got {parents}")


def missing_netem() -> str | None:
    """Say what this kernel lacks for delay and loss, as a sentence; None if it supports both."""
    impairment = Impairment(delay_s=0.001, loss=0.01)
    what = "delay and loss of links need netem"
    return missing(what, "sch_netem", lambda netlink, index: impair(netlink, index, impairment))


def missing(what: str, module: str, attempt: Callable[[RouteSocket, int], object]) -> str | None:
    """Say that this kernel lacks the module that is needed for `what`; None if an attempt succeeds.

    It is made on a trial link in a temporary namespace.
    """
    try:
        with trial_link() as place:
            attempt(*place)
    except (OSError, NetlinkError, RailbedError) as error:
        return (
            f"{what}, which this kernel lacks ({error.args[-1]}); load it with "
            f"`sudo modprobe {module}`, or run with `--clock virtual`, whose kernel has it"
        )
    return None
