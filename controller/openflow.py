"""Rules as OpenFlow 1.3 messages (ONF TS-006) and back."""

from ipaddress import IPv4Network
from typing import Any

from controller.desired import Rule
from controller.reconcile import Difference, vacated

# The upper half of a cookie marks rules as ours, the lower is the controller's generation.
COOKIE_MARK = 0x5241494C << 32  # "RAIL"
COOKIE_MASK = 0xFFFFFFFF << 32
# Longer prefixes win, as in a routing table: while a rail's rule and rules for single GPUs of it
# are both installed, no packet takes the wrong one (OpenFlow leaves ties open, section 5.3).
BASE_PRIORITY = 100
ETHERTYPE_IPV4 = 0x0800
PERMANENT = 0
APPLY_ACTIONS = 4  # OFPIT_APPLY_ACTIONS
# No switch has this port, so a rule that leads there is never desired.
NO_PORT = 0


def cookie(generation: int) -> int:
    """The cookie of rules of a generation."""
    return COOKIE_MARK | generation


def priority(destination: IPv4Network) -> int:
    """The priority of a rule for these addresses."""
    return BASE_PRIORITY + destination.prefixlen


def update(datapath: Any, change: Difference[Rule], generation: int) -> list[Any]:
    """The messages that make a change: what is new, then what goes, and a barrier (7.3.8)."""
    added = [addition(datapath, rule, generation) for rule in change.additions]
    removed = [removal(datapath, rule) for rule in vacated(change)]
    return [*added, *removed, datapath.ofproto_parser.OFPBarrierRequest(datapath)]


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
        priority=priority(rule.destination),
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
        priority=priority(rule.destination),
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
    """Rules in a reply that stand where ours do and carry our mark, with their generations."""
    return {
        Rule(destination, *_actions(entry)): entry.cookie & ~COOKIE_MASK
        for entry in entries
        if entry.cookie & COOKIE_MASK == COOKIE_MARK
        and (destination := _destination(entry)) is not None
    }


def _destination(entry: Any) -> IPv4Network | None:
    """Where a rule leads, if its match and its priority are as we write them."""
    fields = dict(entry.match.items())
    if fields.keys() != {"eth_type", "ipv4_dst"} or fields["eth_type"] != ETHERTYPE_IPV4:
        return None
    destination = _network(fields["ipv4_dst"])
    return destination if entry.priority == priority(destination) else None


def _actions(entry: Any) -> tuple[int, str | None]:
    """Port and hardware address of a rule. What someone else made of ours leads to no port."""
    if [instruction.type for instruction in entry.instructions] != [APPLY_ACTIONS]:
        return NO_PORT, None
    match [_action(action) for action in entry.instructions[0].actions]:
        case [("output", int(port))]:
            return port, None
        case [("eth_dst", str(address)), ("output", int(port))]:
            return port, address
    return NO_PORT, None


def _action(action: Any) -> tuple[str, object]:
    if hasattr(action, "port"):
        return "output", action.port
    return getattr(action, "key", "other"), getattr(action, "value", None)


def _network(value: str | tuple[str, str]) -> IPv4Network:
    """A match without a mask is one address."""
    return IPv4Network(value if isinstance(value, str) else "/".join(value))
