"""Flows stay in order on the links of HB domains, also on a machine of several cores.

A bucket of such a link lets several segments leave at once, from different cores. If one of the
cores is paused, the others' segments overtake its own; TCP takes these for lost, and sends them
again. All links of an HB switch therefore have one core. NIC links need none: at 20 Mbit/s, a
segment takes 26 ms, longer than usual pauses.
"""

import os
from collections import defaultdict
from collections.abc import Mapping

from linux.network.packet_steering import steer_packets
from model.fabric.topology import LinkKind, Topology

LINKS = (LinkKind.HB, LinkKind.HB_TRUNK)


def keep_flows_in_order(topology: Topology, process_ids: Mapping[str, int], switches: int) -> None:
    """Steer packets at both ends of HB links and of trunks to the core of their HB switch.

    The cores that this process may use are given to the HB switches in turn. `process_ids` are
    those of the GPU proxies by GPU name; `switches` is a process in the switches' network
    namespace. Does nothing on a single core.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        steer_packets(_cores_of_interfaces(topology, process_ids, switches, cores))


def _cores_of_interfaces(
    topology: Topology, process_ids: Mapping[str, int], switches: int, cores: list[int]
) -> dict[int, dict[str, int]]:
    """Return the core of each interface, by a process in its network namespace."""
    hb_switches = (*topology.hb_leaves, *topology.hb_switches)
    core_of = {name: cores[place % len(cores)] for place, name in enumerate(hb_switches)}
    chosen = defaultdict[int, dict[str, int]](dict)
    for link in topology.links:
        if link.kind in LINKS:
            for port in (link.lower, link.upper):
                process_id = process_ids.get(port.node, switches)
                chosen[process_id][port.interface] = core_of[link.upper.node]
    return chosen
