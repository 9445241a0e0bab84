"""What the switches count: packets in each direction of each link, packets and bytes of each rule.

Directions are counted where they arrive, as far as that is at a switch: what a link has lost did
not take it.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from model.errors import EmulationError
from model.topology import Hop, LinkKind, Topology
from testbed.openvswitch import OpenVSwitch

ANYWHERE = IPv4Network("0.0.0.0/0")
TIMEOUT_S = 10
# The columns of packets among those of an interface: first received, then sent.
RECEIVED, SENT = 1, 9
_INTERFACE = re.compile(r"^ *(?P<name>[^\s:]+):(?P<columns>.*)$", re.MULTILINE)
_RULE = re.compile(r"n_packets=(?P<packets>\d+), n_bytes=(?P<bytes>\d+),(?P<rest>.*)")
_DESTINATION = re.compile(r"nw_dst=([\d./]+)")


def port_counters(topology: Topology, switch: OpenVSwitch) -> dict[Hop, int]:
    """The packets that each direction of each link has carried until now, in one dump.

    The dump is the kernel's table for reading, of the namespace that Open vSwitch is in: what
    netlink tells of 80 interfaces takes pyroute2 20 ms to decode.
    """
    return parse_ports(topology, Path(f"/proc/{switch.process_id}/net/dev").read_text())


def parse_ports(topology: Topology, dump: str) -> dict[Hop, int]:
    """The packets of each direction in a dump in the form of `/proc/net/dev` (proc_net(5))."""
    counted = dict(_counted(topology))
    return {
        hop: int(row["columns"].split()[column])
        for row in _INTERFACE.finditer(dump)
        for column, hop in counted.get(row["name"], {}).items()
    }


def _counted(topology: Topology) -> Iterator[tuple[str, dict[int, Hop]]]:
    """By the interfaces of switches: which column counts which direction."""
    for link in topology.links:
        upwards, downwards = Hop(link, link.lower.node), Hop(link, link.upper.node)
        if link.kind is LinkKind.UPLINK:
            yield link.upper.interface, {RECEIVED: upwards}
            yield link.lower.interface, {RECEIVED: downwards}
        else:
            yield link.upper.interface, {RECEIVED: upwards, SENT: downwards}


def increase(before: Mapping[Hop, int], after: Mapping[Hop, int]) -> dict[Hop, int]:
    """What each direction has carried between two readings."""
    return {hop: count - before.get(hop, 0) for hop, count in after.items()}


@dataclass(frozen=True)
class RuleCount:
    """What a rule that forwards has counted; one without a destination matches any."""

    destination: IPv4Network
    packets: int
    bytes: int


def rule_counters(switch: OpenVSwitch, bridge: str) -> list[RuleCount]:
    """What the rules of an OpenFlow switch have counted until now."""
    # The data path's own counters reach the rules with the next round of its revalidators.
    control = f"{switch.folder}/ovs-vswitchd.{switch.process_id}.ctl"
    _output("ovs-appctl", "-t", control, "revalidator/wait")
    management = f"unix:{switch.folder}/{bridge}.mgmt"
    return parse_rules(_output("ovs-ofctl", "-OOpenFlow13", "dump-flows", management))


def parse_rules(dump: str) -> list[RuleCount]:
    """The rules of a dump of `ovs-ofctl` that forward anything."""
    return [
        RuleCount(_destination(found["rest"]), int(found["packets"]), int(found["bytes"]))
        for found in _RULE.finditer(dump)
        if not found["rest"].endswith("actions=drop")
    ]


def _destination(rule: str) -> IPv4Network:
    found = _DESTINATION.search(rule)
    return ANYWHERE if found is None else IPv4Network(found[1])


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode != 0:
        raise EmulationError(f"{command[0]} failed: {done.stderr.strip()}")
    return done.stdout
