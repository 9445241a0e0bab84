"""Rules as OpenFlow bytes and back, through a flow table that acts like a switch."""

import struct
import warnings
from ipaddress import IPv4Network
from threading import Event
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.planner import Rule
from controller.southbound import openflow
from model.fabric import addressing
from model.fabric.topology import Gpu, Topology
from tests.unit.fabrics import desired_state, topologies

with warnings.catch_warnings():  # Ryu is old: its modules warn
    warnings.simplefilter("ignore")
    from ryu.ofproto import ofproto_v1_3 as protocol
    from ryu.ofproto import ofproto_v1_3_parser as parser
    from ryu.ofproto.ofproto_protocol import ProtocolDesc

HEADER = struct.Struct("!BBHI")
FLOW_MOD_MATCH = protocol.OFP_FLOW_MOD_SIZE - protocol.OFP_MATCH_SIZE
GENERATION = 5
MAX_SWITCH_PORT = 0xFEFF  # OpenFlow 1.3, section 7.2.1

gpus = st.builds(Gpu, st.integers(0, 100), st.integers(0, 100))
networks = st.builds(
    lambda address, prefix: IPv4Network((address, prefix), strict=False),
    st.integers(0, 2**32 - 1),
    st.integers(1, 32),
)
rules = st.builds(
    Rule,
    destination=networks,
    port=st.integers(1, protocol.OFPP_MAX),
    hardware_address=st.none() | st.builds(addressing.nic_mac, gpus),
    in_port=st.none() | st.integers(1, protocol.OFPP_MAX),
    udp_source=st.none() | st.integers(1, 15).map(lambda number: (number, 15)),
) | st.builds(
    Rule,
    destination=networks,
    port=st.integers(1, MAX_SWITCH_PORT),
    backup=st.integers(1, MAX_SWITCH_PORT),
)


class Table:
    """A flow table that is changed and read by messages as bytes."""

    def __init__(self) -> None:
        self.datapath = ProtocolDesc(protocol.OFP_VERSION)
        self.datapath.send_msg = self.receive
        self.groups: dict[int, Any] = {}
        self.received: list[str] = []
        self._entries: dict[tuple[int, str], tuple[Any, bytes]] = {}

    def receive(self, message: Any) -> None:
        """Apply a message (OpenFlow 1.3, sections 6.4 and 6.7); a barrier changes nothing."""
        message.xid = 1
        message.serialize()
        self.received.append(f"{type(message).__name__} {getattr(message, 'command', '')}")
        if isinstance(message, parser.OFPGroupMod):
            assert (message.command == protocol.OFPGC_ADD) == (message.group_id not in self.groups)
            self.groups[message.group_id] = message
            if message.command == protocol.OFPGC_DELETE:
                del self.groups[message.group_id]
        if isinstance(message, parser.OFPFlowMod):
            header = HEADER.unpack_from(message.buf)
            mod = parser.OFPFlowMod.parser(self.datapath, *header, bytearray(message.buf))
            self._modify(mod, bytes(message.buf[FLOW_MOD_MATCH:]))

    def _modify(self, mod: Any, match_and_instructions: bytes) -> None:
        place = mod.priority, str(mod.match)
        if mod.command == protocol.OFPFC_ADD:
            self._entries[place] = mod, match_and_instructions
            return
        assert mod.command == protocol.OFPFC_DELETE_STRICT
        found, _ = self._entries.get(place, (mod, b""))
        if found.cookie & mod.cookie_mask == mod.cookie & mod.cookie_mask:
            self._entries.pop(place, None)

    def reply(self) -> list[Any]:
        """Return all entries, as parsed from a flow statistics reply."""
        return [self._stats(mod, rest) for mod, rest in self._entries.values()]

    @staticmethod
    def _stats(mod: Any, match_and_instructions: bytes) -> Any:
        length = protocol.OFP_FLOW_STATS_0_SIZE + len(match_and_instructions)
        fields = (length, 0, 0, 0, mod.priority, 0, 0, 0, mod.cookie, 0, 0)
        head = struct.pack(protocol.OFP_FLOW_STATS_0_PACK_STR, *fields)
        return parser.OFPFlowStats.parser(bytearray(head + match_and_instructions), 0)

    def installed(self) -> dict[Rule, int]:
        """Return the rules that the controller reads from the reply, with their generations."""
        return openflow.installed_rules(self.reply())

    def become(self, desired: frozenset[Rule], generation: int = GENERATION) -> list[Any]:
        """Return the controller's messages that lead to `desired`, without applying them."""
        session = openflow.SwitchSession(self.datapath, Event())
        session.rules = frozenset(self.installed())
        session.groups = openflow.wanted_groups(session.rules)
        return session.updates(desired, generation)

    def port(self, gpu: Gpu) -> int | None:
        """Return the egress port of a packet to a GPU; fail on a tie, undefined in OpenFlow."""
        address = addressing.nic_address(gpu)
        found = [
            (mod.priority, rule.port)
            for mod, rest in self._entries.values()
            for rule in openflow.installed_rules([self._stats(mod, rest)])
            if address in rule.destination
        ]
        highest = [port for priority, port in found if priority == max(found)[0]]
        assert len(highest) <= 1
        return highest[0] if highest else None


def table(*messages: Any) -> Table:
    """Return a table that has applied these messages."""
    made = Table()
    for message in messages:
        made.receive(message)
    return made


DATAPATH = Table().datapath


@given(rules, rules)
def test_the_longest_prefix_wins_then_an_in_port_then_a_udp_port(one: Rule, other: Rule) -> None:
    first, second = (
        (rule.destination.prefixlen, rule.in_port is not None, rule.udp_source is not None)
        for rule in (one, other)
    )
    assert (openflow.priority(one) > openflow.priority(other)) == (first > second)


@given(rules, st.integers(0, 2**32 - 1))
def test_a_rule_comes_back_as_it_was_installed(rule: Rule, generation: int) -> None:
    there = table(openflow.addition(DATAPATH, rule, generation))
    assert there.installed() == {rule: generation}


# The order of messages: groups are there before rules that refer to them, and go after them.
ORDER = [
    f"OFPGroupMod {protocol.OFPGC_ADD}",
    f"OFPFlowMod {protocol.OFPFC_ADD}",
    f"OFPFlowMod {protocol.OFPFC_DELETE_STRICT}",
    f"OFPGroupMod {protocol.OFPGC_DELETE}",
    "OFPBarrierRequest ",
]


@given(topologies(4, 3))
def test_what_is_sent_makes_the_table_the_desired_one(topology: Topology) -> None:
    """Change from one switch's rules to the next switch's; then no message is left to send."""
    there = Table()
    session = openflow.SwitchSession(there.datapath, Event())
    for desired in desired_state(topology).rules.values():
        changes = session.missing(desired) != (0, 0)
        for awaited in (changes, False):
            session.install(desired, GENERATION)
            assert there.received == sorted(there.received, key=ORDER.index)
            assert there.received.count(ORDER[-1]) == session.awaited == awaited
            there.received.clear()
            session.awaited = 0
        assert there.installed().keys() == desired
        groups = openflow.installed_groups(there.datapath, list(there.groups.values()))
        assert groups == openflow.wanted_groups(desired)


@given(
    st.dictionaries(st.integers(0, 7), st.integers(1, 9), min_size=8, max_size=8),
    st.integers(1, 9),
    st.booleans(),
)
def test_no_packet_is_dropped_or_sent_elsewhere_while_rules_change(
    ports: dict[int, int], port: int, towards_one: bool
) -> None:
    """Change between one rule for a rail and rules for its GPUs; check after each message."""
    members = {Gpu(domain, 0): to for domain, to in ports.items()}
    single = frozenset(Rule(_only(gpu), to) for gpu, to in members.items())
    one = frozenset({Rule(addressing.rail_network(0), port)})
    before, after = (single, one) if towards_one else (one, single)
    there = table(*Table().become(before))
    for message in there.become(after):
        there.receive(message)
        for gpu, own in members.items():
            assert there.port(gpu) in (own, port)
    assert there.installed().keys() == after


def _only(gpu: Gpu) -> IPv4Network:
    return IPv4Network(addressing.nic_address(gpu))


def test_what_does_not_carry_our_mark_is_neither_seen_nor_removed() -> None:
    rule = Rule(_only(Gpu(0, 0)), 1)
    foreign = openflow.addition(DATAPATH, rule, GENERATION)
    foreign.cookie = 7
    there = table(foreign, openflow.removal(DATAPATH, rule))
    assert there.installed() == {}
    assert len(there.reply()) == 1


def test_groups_are_ours_by_number_and_as_they_were_only_if_nobody_changed_them() -> None:
    one, two, three = (
        parser.OFPBucket(watch_port=port, actions=[parser.OFPActionOutput(to)])
        for port, to in ((1, 1), (2, 2), (2, 3))
    )
    failover, select = protocol.OFPGT_FF, protocol.OFPGT_SELECT
    for kind, buckets, ports in (
        (failover, [one, two], (1, 2)),
        (failover, [one, three], ()),
        (select, [one, two], ()),
    ):
        ours, foreign = (
            SimpleNamespace(group_id=number, type=kind, buckets=buckets)
            for number in (1 << 16 | 2, 7)
        )
        found = openflow.installed_groups(DATAPATH, [ours, foreign])
        assert found == {openflow.Group(1 << 16 | 2, ports)}


def test_a_rule_of_ours_that_someone_changed_is_replaced() -> None:
    rule = Rule(_only(Gpu(0, 0)), 1, addressing.nic_mac(Gpu(0, 0)))
    output = parser.OFPActionOutput(1)
    apply, clear = protocol.OFPIT_APPLY_ACTIONS, protocol.OFPIT_CLEAR_ACTIONS
    for instructions in (
        [],
        [parser.OFPInstructionActions(clear, [])],
        [parser.OFPInstructionActions(apply, [])],
        [parser.OFPInstructionActions(apply, [output, output])],
        [parser.OFPInstructionActions(apply, [parser.OFPActionDecNwTtl(), output])],
        [parser.OFPInstructionActions(apply, [output]), parser.OFPInstructionGotoTable(1)],
    ):
        changed = openflow.addition(DATAPATH, rule, GENERATION)
        changed.instructions = instructions
        there = table(changed)
        for message in there.become(frozenset({rule})):
            there.receive(message)
        assert there.installed() == {rule: GENERATION}


def test_a_new_generation_marks_only_what_is_new() -> None:
    kept, added = (Rule(_only(Gpu(domain, 0)), 1) for domain in (0, 1))
    there = table(*Table().become(frozenset({kept})))
    for message in there.become(frozenset({kept, added}), GENERATION + 1):
        there.receive(message)
    assert there.installed() == {kept: GENERATION, added: GENERATION + 1}
