"""Rules as OpenFlow 1.3 messages (ONF TS-006) and back."""

from ipaddress import IPv4Network
from typing import Any

from controller.desired import Rule

# The upper half of a cookie marks rules as ours, the lower is the controller's generation.
COOKIE_MARK = 0x5241494C << 32  # "RAIL"
COOKIE_MASK = 0xFFFFFFFF << 32
PRIORITY = 100
ETHERTYPE_IPV4 = 0x0800
PERMANENT = 0


def cookie(generation: int) -> int:
    """The cookie of rules of a generation."""
    return COOKIE_MARK | generation


def addition(datapath: Any, rule: Rule, generation: int) -> Any:
    """The message that installs a rule (section 7.3.4.1)."""
    parser, protocol = datapath.ofproto_parser, datapath.ofproto
    actions = [parser.OFPActionOutput(rule.port)]
    if rule.hardware_address is not None:
        actions.insert(0, parser.OFPActionSetField(eth_dst=rule.hardware_address))
    apply = parser.OFPInstructionActions(protocol.OFPIT_APPLY_ACTIONS, actions)
    return parser.OFPFlowMod(
        datapath,
        command=protocol.OFPFC_ADD,
        cookie=cookie(generation),
        priority=PRIORITY,
        idle_timeout=PERMANENT,
        hard_timeout=PERMANENT,
        match=_match(parser, rule),
        instructions=[apply],
    )


def removal(datapath: Any, rule: Rule) -> Any:
    """The message that removes a rule of ours, whatever its generation."""
    parser, protocol = datapath.ofproto_parser, datapath.ofproto
    return parser.OFPFlowMod(
        datapath,
        command=protocol.OFPFC_DELETE_STRICT,
        cookie=COOKIE_MARK,
        cookie_mask=COOKIE_MASK,
        priority=PRIORITY,
        out_port=protocol.OFPP_ANY,
        out_group=protocol.OFPG_ANY,
        match=_match(parser, rule),
    )


def _match(parser: Any, rule: Rule) -> Any:
    network = rule.destination
    destination = (str(network.network_address), str(network.netmask))
    return parser.OFPMatch(eth_type=ETHERTYPE_IPV4, ipv4_dst=destination)


def request_rules(datapath: Any) -> Any:
    """The message that asks for all installed rules of ours (section 7.3.5.2)."""
    parser, protocol = datapath.ofproto_parser, datapath.ofproto
    return parser.OFPFlowStatsRequest(
        datapath,
        0,
        protocol.OFPTT_ALL,
        protocol.OFPP_ANY,
        protocol.OFPG_ANY,
        COOKIE_MARK,
        COOKIE_MASK,
        parser.OFPMatch(),
    )


def installed_rules(entries: list[Any]) -> dict[Rule, int]:
    """Rules of ours in a reply, with their generations."""
    return {_rule(entry): entry.cookie & ~COOKIE_MASK for entry in entries}


def _rule(entry: Any) -> Rule:
    (apply,) = entry.instructions
    output = apply.actions[-1]
    hardware_address = apply.actions[0].value if len(apply.actions) > 1 else None
    return Rule(_network(entry.match["ipv4_dst"]), output.port, hardware_address)


def _network(value: str | tuple[str, str]) -> IPv4Network:
    """A match without a mask is one address."""
    return IPv4Network(value if isinstance(value, str) else "/".join(value))
