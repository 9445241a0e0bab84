"""Byte counters of OpenFlow switches' rules, read without the controller."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from linux.processes.lifetime import output_of
from testbed.nodes.openvswitch import OpenVSwitch

ANYWHERE = IPv4Network("0.0.0.0/0")
TIMEOUT_S = 10
_RULE = re.compile(r"n_packets=\d+, n_bytes=(?P<bytes>\d+),(?P<rest>.*)")
_DESTINATION = re.compile(r"nw_dst=([\d./]+)")


@dataclass(frozen=True)
class RuleCount:
    """Bytes that a rule has forwarded; `ANYWHERE` for a rule that matches no destination."""

    destination: IPv4Network
    bytes: int


def rule_counters(switch: OpenVSwitch, bridges: Sequence[str]) -> dict[str, list[RuleCount]]:
    """Return the current counters of each switch's rules, by bridge name."""
    # The data path's own counters reach the rules with the next round of its revalidators.
    wait_for_revalidators(switch)
    return {bridge: parse_rules(dump_rules(switch, bridge)) for bridge in bridges}


def wait_for_revalidators(switch: OpenVSwitch) -> None:
    """Wait until a round of the revalidators has ended; it may have begun before."""
    # Open vSwitch waits for two rounds.
    timeout_s = TIMEOUT_S + 2 * switch.revalidation_ms / 1000
    switch.control("revalidator/wait", timeout_s=timeout_s)


def dump_rules(switch: OpenVSwitch, bridge: str) -> str:
    """The rules of a switch as ovs-ofctl(8) prints them."""
    return output_of(*switch.openflow_command(bridge, "dump-flows"), timeout_s=TIMEOUT_S)


def parse_rules(dump: str) -> list[RuleCount]:
    """Parse a dump of rules; rules that drop are left out."""
    return [
        RuleCount(_destination(found["rest"]), int(found["bytes"]))
        for found in _RULE.finditer(dump)
        if not found["rest"].endswith("actions=drop")
    ]


def _destination(rule: str) -> IPv4Network:
    found = _DESTINATION.search(rule)
    return ANYWHERE if found is None else IPv4Network(found[1])
