"""Flows stay in order on the links of HB domains, also on a machine of several cores.

A bucket of such a link lets several segments leave at once, from different cores. If one of the
cores is paused, the others' segments overtake its own; TCP takes these for lost, and sends them
again. NIC links need no steering: at 20 Mbit/s, a segment takes 26 ms, longer than usual pauses.
"""

from collections import defaultdict
from collections.abc import Mapping

from linux.network.packet_steering import steer_packets
from model.fabric.topology import LinkKind, Topology

LINKS = (LinkKind.HB, LinkKind.HB_TRUNK)


def keep_flows_in_order(topology: Topology, process_ids: Mapping[str, int], switches: int) -> None:
    """Steer packets at both ends of HB links and of trunks between HB switches.

    `process_ids` are those of the GPU proxies by GPU name; `switches` is a process in the switches'
    network namespace.
    """
    interfaces = defaultdict[int, list[str]](list)
    for link in topology.links:
        if link.kind in LINKS:
            for port in (link.lower, link.upper):
                interfaces[process_ids.get(port.node, switches)].append(port.interface)
    steer_packets(interfaces)
