"""OpenFlow 1.3 (ONF TS-006): rules as messages, replies as rules, the session of a switch."""

from collections.abc import Iterable
from ipaddress import IPv4Network
from threading import Event
from typing import Any, NamedTuple

from controller.planner import Rule, difference

# The upper half of a cookie marks rules as ours, the lower is the controller's generation.
COOKIE_MARK = 0x5241494C << 32  # "RAIL"
COOKIE_MASK = 0xFFFFFFFF << 32
# The longest prefix wins, as in a routing table: a rule for one GPU overrides the rule for its rail
# while both are installed (OpenFlow leaves ties undefined, section 5.3).
BASE_PRIORITY = 100
# Of two rules with the same prefix length, the one with an in-port wins, then that with UDP's port.
IN_PORT_PRIORITY, UDP_PRIORITY, PREFIX_PRIORITY = 2, 1, 4
ETHERTYPE_IPV4, UDP = 0x0800, 17
APPLY_ACTIONS = 4  # OFPIT_APPLY_ACTIONS
# No switch has this port, so a rule that outputs to it is never desired.
NO_PORT = 0
# Open vSwitch numbers ports below 0xff00, OpenFlow 1.0's OFPP_MAX (1.3: below 0xffffff00).
BACKUP_BITS = 16


class Group(NamedTuple):
    """A fast-failover group: its number, and ports, of which a switch uses the first live one.

    OpenFlow 1.3, section 5.6.1.
    """

    place: int
    buckets: tuple[int, ...]


def priority(rule: Rule) -> int:
    """The priority of a rule."""
    from_one_port = 0 if rule.in_port is None else IN_PORT_PRIORITY
    of_some = 0 if rule.udp_source is None else UDP_PRIORITY
    return BASE_PRIORITY + PREFIX_PRIORITY * rule.destination.prefixlen + from_one_port + of_some


def group_id(port: int, backup: int) -> int:
    """The number of the fast-failover group of two ports; it encodes both."""
    return port << BACKUP_BITS | backup


def wanted_groups(rules: Iterable[Rule]) -> frozenset[Group]:
    """The groups that rules refer to, with their numbers."""
    pairs = {(rule.port, rule.backup) for rule in rules if rule.backup is not None}
    return frozenset(Group(group_id(port, backup), (port, backup)) for port, backup in pairs)


def _group(datapath: Any, command: int, number: int, ports: Iterable[int]) -> Any:
    """The message that adds, modifies or deletes a fast-failover group (section 7.3.4.2)."""
    parser, protocol = datapath.ofproto_parser, datapath.ofproto
    buckets = [
        parser.OFPBucket(watch_port=port, actions=[parser.OFPActionOutput(port)]) for port in ports
    ]
    return parser.OFPGroupMod(datapath, command, protocol.OFPGT_FF, number, buckets)


def addition(datapath: Any, rule: Rule, generation: int) -> Any:
    """The message that installs a rule (section 7.3.4.1)."""
    parser, protocol = datapath.ofproto_parser, datapath.ofproto
    if rule.backup is None:
        actions = [parser.OFPActionOutput(rule.port)]
    else:
        actions = [parser.OFPActionGroup(group_id(rule.port, rule.backup))]
    if rule.hardware_address is not None:
        actions.insert(0, parser.OFPActionSetField(eth_dst=rule.hardware_address))
    apply = parser.OFPInstructionActions(protocol.OFPIT_APPLY_ACTIONS, actions)
    return parser.OFPFlowMod(
        datapath,
        command=protocol.OFPFC_ADD,
        cookie=COOKIE_MARK | generation,
        priority=priority(rule),
        match=_match(parser, rule),
        instructions=[apply],
    )


def removal(datapath: Any, rule: Rule) -> Any:
    """The message that removes a rule of ours, of any generation."""
    parser, protocol = datapath.ofproto_parser, datapath.ofproto
    return parser.OFPFlowMod(
        datapath,
        command=protocol.OFPFC_DELETE_STRICT,
        cookie=COOKIE_MARK,
        cookie_mask=COOKIE_MASK,
        priority=priority(rule),
        out_port=protocol.OFPP_ANY,
        out_group=protocol.OFPG_ANY,
        match=_match(parser, rule),
    )


def _match(parser: Any, rule: Rule) -> Any:
    network = rule.destination
    destination = (str(network.network_address), str(network.netmask))
    some: dict[str, Any] = {} if rule.in_port is None else {"in_port": rule.in_port}
    if rule.udp_source is not None:
        some |= {"ip_proto": UDP, "udp_src": rule.udp_source}
    return parser.OFPMatch(eth_type=ETHERTYPE_IPV4, ipv4_dst=destination, **some)


def has_carrier(datapath: Any, port: Any) -> bool:
    """Whether a port, as a switch describes it, is up and has carrier (section 7.2.1)."""
    protocol = datapath.ofproto
    down = port.config & protocol.OFPPC_PORT_DOWN or port.state & protocol.OFPPS_LINK_DOWN
    return not down


def installed_groups(datapath: Any, entries: list[Any]) -> frozenset[Group]:
    """Groups in a reply whose numbers encode two ports, as those of ours do.

    Groups other than fast-failover groups of ports get no buckets.
    """
    ours = (entry for entry in entries if all(divmod(entry.group_id, 1 << BACKUP_BITS)))
    return frozenset(Group(entry.group_id, _buckets(datapath, entry)) for entry in ours)


def _buckets(datapath: Any, entry: Any) -> tuple[int, ...]:
    actions = [[_action(action) for action in bucket.actions] for bucket in entry.buckets]
    ports = tuple(bucket.watch_port for bucket in entry.buckets)
    if entry.type != datapath.ofproto.OFPGT_FF or actions != [[("output", p)] for p in ports]:
        return ()
    return ports


def requests_of_state(datapath: Any) -> list[Any]:
    """The messages that ask for all ports, groups and rules of ours (sections 7.3.5.7, .10, .2)."""
    parser = datapath.ofproto_parser
    return [
        parser.OFPPortDescStatsRequest(datapath),
        parser.OFPGroupDescStatsRequest(datapath),
        parser.OFPFlowStatsRequest(datapath, cookie=COOKIE_MARK, cookie_mask=COOKIE_MASK),
    ]


def installed_rules(entries: list[Any]) -> dict[Rule, int]:
    """Rules in a reply with our cookie, match and priority, and their generations."""
    return {
        rule: entry.cookie & ~COOKIE_MASK
        for entry in entries
        if entry.cookie & COOKIE_MASK == COOKIE_MARK and (rule := _rule(entry)) is not None
    }


def _rule(entry: Any) -> Rule | None:
    """Parse a rule; `None` if the controller writes no such match or priority."""
    fields = dict(entry.match.items())
    in_port, udp_source = fields.pop("in_port", None), fields.pop("udp_src", None)
    if (fields.pop("ip_proto", None) == UDP) != isinstance(udp_source, tuple):
        return None
    if fields.keys() != {"eth_type", "ipv4_dst"} or fields["eth_type"] != ETHERTYPE_IPV4:
        return None
    port, address, backup = _actions(entry)
    to = fields["ipv4_dst"]  # a match without a mask is one address
    destination = IPv4Network(to if isinstance(to, str) else "/".join(to))
    rule = Rule(destination, port, address, backup, in_port, udp_source)
    return rule if entry.priority == priority(rule) else None


def _actions(entry: Any) -> tuple[int, str | None, int | None]:
    """Port, hardware address and backup; `NO_PORT` if someone else changed the actions."""
    if [instruction.type for instruction in entry.instructions] != [APPLY_ACTIONS]:
        return NO_PORT, None, None
    match [_action(action) for action in entry.instructions[0].actions]:
        case [("output", int(port))]:
            return port, None, None
        case [("group", int(number))]:
            return number >> BACKUP_BITS, None, number & (1 << BACKUP_BITS) - 1
        case [("eth_dst", str(address)), ("output", int(port))]:
            return port, address, None
        case _:
            return NO_PORT, None, None


def _action(action: Any) -> tuple[str, object]:
    if hasattr(action, "port"):
        return "output", action.port
    if hasattr(action, "group_id"):
        return "group", action.group_id
    return getattr(action, "key", "other"), getattr(action, "value", None)


class SwitchSession:
    """One connection of a switch; after a reconnect, a new session starts empty.

    `unreported` are the parts of its state that are not yet reported, `rules` and `groups` those
    reported or sent. `awaited` is the number of barriers that it has not answered; `done` is set by
    each answer, and when the connection ends.
    """

    def __init__(self, datapath: Any, done: Event) -> None:
        self.datapath = datapath
        self.unreported = {"ports", "groups", "rules"}
        self.rules: frozenset[Rule] = frozenset()
        self.groups: frozenset[Group] = frozenset()
        self.awaited = 0
        self.done = done

    def missing(self, wanted: frozenset[Rule]) -> tuple[int, int]:
        """Numbers of entries (rules and groups) to add and to remove."""
        rules = difference(self.rules, wanted)
        groups = difference(self.groups, wanted_groups(wanted))
        return len(rules[0]) + len(groups[0]), len(rules[1]) + len(groups[1])

    def install(self, wanted: frozenset[Rule], generation: int) -> None:
        """Send the difference to the wanted rules, if there is one, and a barrier."""
        if messages := self.updates(wanted, generation):
            # Its reply confirms all messages sent before it (section 7.3.8).
            barrier = self.datapath.ofproto_parser.OFPBarrierRequest(self.datapath)
            for message in (*messages, barrier):
                self.datapath.send_msg(message)
            self.awaited += 1
        self.rules, self.groups = wanted, wanted_groups(wanted)

    def updates(self, wanted: frozenset[Rule], generation: int) -> list[Any]:
        """Return the messages that lead to the wanted rules, additions first.

        Groups are there before the rules that refer to them, and go after them. A group whose
        buckets contradict its number is modified.
        """
        datapath, protocol = self.datapath, self.datapath.ofproto
        added, removed = difference(self.rules, wanted)
        more, fewer = difference(self.groups, wanted_groups(wanted))
        known, messages = {number for number, _ in self.groups}, []
        for number, ports in more:
            command = protocol.OFPGC_MODIFY if number in known else protocol.OFPGC_ADD
            messages.append(_group(datapath, command, number, ports))
        messages += [addition(datapath, rule, generation) for rule in added]
        messages += [removal(datapath, rule) for rule in removed]
        messages += [_group(datapath, protocol.OFPGC_DELETE, number, ()) for number, _ in fewer]
        return messages

    def confirmed(self) -> None:
        """Record that the switch has answered a barrier."""
        self.awaited -= 1
        self.done.set()
