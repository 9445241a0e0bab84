"""Rules, groups and routes installed in a running fabric, as `ovs-ofctl` and `ip` show them."""

import json
import subprocess
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from controller.planner import Route, Rule
from controller.southbound.host_routes import PROTOCOL
from controller.southbound.openflow import BACKUP_BITS, COOKIE_MARK, Group, wanted_groups
from execution.cases.emulation import Experiment
from model.fabric.health import HEALTHY, Health
from testbed.nodes.controller_process import read_journal
from tests.unit.fabrics import desired_state


@dataclass(frozen=True)
class Contents:
    """The controller's rules and groups by switch, and its routes by GPU."""

    rules: dict[str, frozenset[Rule]]
    groups: dict[str, frozenset[Group]]
    routes: dict[str, frozenset[Route]]


def desired(fabric: Experiment, health: Health = HEALTHY) -> Contents:
    """Contents that should be installed for this health."""
    state = desired_state(fabric.topology, health)
    groups = {name: wanted_groups(rules) for name, rules in state.rules.items()}
    return Contents(state.rules, groups, state.routes)


def installed(fabric: Experiment) -> Contents:
    """Contents that are installed."""
    names = fabric.topology.openflow_switches
    return Contents(
        {name: frozenset(rules(fabric, name)) for name in names},
        {name: groups(fabric, name) for name in names},
        {gpu.name: routes(fabric, gpu.name) for gpu in fabric.topology.gpus},
    )


def ofctl(fabric: Experiment, verb: str, switch: str, *words: str) -> str:
    """Run `ovs-ofctl` on a switch, bypassing the controller."""
    target = f"unix:{fabric.bed.open_vswitch.folder}/{switch}.mgmt"
    return output("ovs-ofctl", "-OOpenFlow13", "--no-names", "--no-stats", verb, target, *words)


def in_proxy(fabric: Experiment, gpu: str, *command: str) -> str:
    """Run a command in the network namespace of a proxy."""
    process_id = fabric.bed.proxies[gpu].process_id
    return output("nsenter", f"--target={process_id}", "--net", *command)


def output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def rules(fabric: Experiment, switch: str) -> dict[Rule, int]:
    """Rules with the controller's cookie, each with the generation that installed it."""
    lines = ofctl(fabric, "dump-flows", switch).splitlines()
    found = [parse_rule(line) for line in lines if "actions=" in line]
    return {
        rule: cookie ^ COOKIE_MARK for rule, cookie in found if cookie >> 32 << 32 == COOKIE_MARK
    }


def parse_rule(line: str) -> tuple[Rule, int]:
    """Parse a line of `ovs-ofctl dump-flows` to the rule and its cookie."""
    head, actions = line.split(" actions=")
    match = dict(word.strip().partition("=")[::2] for word in head.split(","))
    port, backup, hardware_address = parse_actions(actions)
    in_port = int(match["in_port"]) if "in_port" in match else None
    ports = match.get("tp_src", "").split("/")
    udp_source = (int(ports[0], 0), int(ports[1], 0)) if len(ports) == 2 else None
    rule = Rule(IPv4Network(match["nw_dst"]), port, hardware_address, backup, in_port, udp_source)
    return rule, int(match["cookie"], 16)


def parse_actions(actions: str) -> tuple[int, int | None, str | None]:
    """Parse actions to port, backup port and MAC address; port 0 if not the controller's."""
    address, arrow, rest = actions.removeprefix("set_field:").partition("->eth_dst,")
    verb, _, number = (rest if arrow else actions).partition(":")
    if verb == "group":
        return int(number) >> BACKUP_BITS, int(number) % (1 << BACKUP_BITS), None
    return int(number) if verb == "output" else 0, None, address if arrow else None


def groups(fabric: Experiment, switch: str) -> frozenset[Group]:
    """Groups by number, each with the ports that it watches and sends to."""
    lines = ofctl(fabric, "dump-groups", switch).splitlines()
    return frozenset(parse_group(line) for line in lines if "group_id=" in line)


def parse_group(line: str) -> Group:
    """Parse a line of `ovs-ofctl dump-groups`."""
    head, *buckets = line.split(",bucket=")
    number, kind = (word.split("=")[1] for word in head.split(","))
    watched = [bucket.split("watch_port:")[1].split(",")[0] for bucket in buckets]
    assert kind == "ff"
    assert [bucket.split("output:")[1] for bucket in buckets] == watched
    return Group(int(number), tuple(map(int, watched)))


def routes(fabric: Experiment, gpu: str) -> frozenset[Route]:
    """The controller's routes in a proxy."""
    shown = in_proxy(fabric, gpu, "ip", "-json", "route", "show", "proto", str(PROTOCOL))
    return frozenset(parse_route(route) for route in json.loads(shown))


def parse_route(shown: dict[str, Any]) -> Route:
    """Parse a route of `ip -json route`."""
    destination = IPv4Network(shown["dst"])
    if shown.get("type") == "unreachable":
        return Route(destination)
    assert "onlink" in shown["flags"]
    gateway, source = IPv4Address(shown["gateway"]), IPv4Address(shown["prefsrc"])
    return Route(destination, gateway, shown["dev"], source)


def events(fabric: Experiment, event: str, after_line: int = 0) -> list[dict[str, Any]]:
    """Journal lines of one event after a line number, oldest first."""
    lines = read_journal(fabric.bed.controller.journal)[after_line:]
    return [line for line in lines if line["event"] == event]
