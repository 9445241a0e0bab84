"""What the rules of OpenFlow switches have counted, read past the controller."""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from model.errors import EmulationError
from testbed.nodes.openvswitch import OpenVSwitch

ANYWHERE = IPv4Network("0.0.0.0/0")
TIMEOUT_S = 10
_RULE = re.compile(r"n_packets=\d+, n_bytes=(?P<bytes>\d+),(?P<rest>.*)")
_DESTINATION = re.compile(r"nw_dst=([\d./]+)")


@dataclass(frozen=True)
class RuleCount:
    """The bytes that a rule has forwarded; one that matches no destination is for any."""

    destination: IPv4Network
    bytes: int


def rule_counters(switch: OpenVSwitch, bridges: Sequence[str]) -> dict[str, list[RuleCount]]:
    """What the rules of each OpenFlow switch have counted until now."""
    # The data path's own counters reach the rules with the next round of its revalidators.
    control = f"{switch.folder}/ovs-vswitchd.{switch.process_id}.ctl"
    _output("ovs-appctl", "-t", control, "revalidator/wait")
    return {bridge: parse_rules(dump_rules(switch, bridge)) for bridge in bridges}


def dump_rules(switch: OpenVSwitch, bridge: str) -> str:
    """The rules of a switch as ovs-ofctl(8) prints them."""
    management = f"unix:{switch.folder}/{bridge}.mgmt"
    return _output("ovs-ofctl", "-OOpenFlow13", "dump-flows", management)


def parse_rules(dump: str) -> list[RuleCount]:
    """The rules of a dump that forward anything."""
    return [
        RuleCount(_destination(found["rest"]), int(found["bytes"]))
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
