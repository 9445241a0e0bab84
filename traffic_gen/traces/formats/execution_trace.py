"""Execution traces of PyTorch (`ExecutionTraceObserver`), a file for each rank.

A file has the operators of a rank in the order of their ids; `record_param_comms` are its
communications, which PARAM replays. There are no times. Collectives of a process group follow each
other; all that comes after a `wait` waits for the call with its request, or else for all calls. As
in PARAM, a collective without a flag or a `wait` holds up all after it: PyTorch 2.7 waits for none.
"""

import re
from collections import defaultdict
from collections.abc import Container, Sequence
from itertools import chain

from traffic_gen.traces.formats.chakra_nodes import GROUPS
from traffic_gen.traces.formats.json_items import Item
from traffic_gen.traces.formats.pytorch import MESSAGES, RankNodes, called, decoded

FORMAT, KEYS = "execution trace of PyTorch", (b"schema", b"nodes")
OLDEST = (1, 1)
COMMUNICATION = "record_param_comms"
# The inputs of other calls begin with the tensors; a request, the group and a rank follow.
WITHOUT_TENSORS = ("wait", "barrier", "init")
UNKNOWN_WAIT = "requests of {} waits, which no call before them has: they wait for all"
COMPUTE = "{} operators: execution traces have no times"
LINKED = "times that chakra_trace_link added: chakra_converter makes Chakra of them"


def read_rank(whole: Item, rank: int, ranks: int) -> RankNodes:
    """Return the nodes of a file."""
    schema = str(whole.of("schema").value)
    version = re.match(r"([0-9]{1,9})\.([0-9]{1,9})", schema)
    if version is None or tuple(map(int, version.groups())) < OLDEST:
        hint = "record with PyTorch 2.4 or later, which writes schema 1.1.0 or later"
        whole.refuse(f"schema {schema[:40]!r} has no sizes of communications", hint)
    nodes = RankNodes(rank, ranks)
    calls, operators = list[Item](), 0
    listed = whole.each("nodes")
    for node in sorted(listed, key=lambda node: node.number("id", 0, 2**63)):
        name, at = node.value.get("name"), Item(node.value, f"node {node.value['id']}")
        if name == GROUPS:
            for groups in at.of("inputs").each("values"):
                nodes.define(decoded(groups.value))
        elif name == COMMUNICATION:
            calls.append(_call(at))
        else:
            operators += 1
        nodes.left_out[LINKED] |= "dur" in node.value
    nodes.left_out[COMPUTE] += operators
    order = _Order(nodes, {call.value["request"] for call in calls if called(call) == "wait"})
    for call in calls:
        order.add(call)
    return nodes


def _call(node: Item) -> Item:
    """Return the attributes of a communication, its request in its group, and its root or peer."""
    call = {str(one.of("name").value): one.of("value").value for one in node.each("attrs")}
    inputs = [one.value for one in node.of("inputs").each("values")]
    begin = called(Item(call, node.place)) not in WITHOUT_TENSORS
    call["input_dims"] = [one.value for one in node.of("inputs").each("shapes")]
    call["request"] = str(inputs[begin : begin + 2])
    if len(inputs) > begin + 2:
        call["rank"] = inputs[begin + 2]
    return Item(call, node.place)


class _Order:
    """The order of a rank's calls: `after` is what all later ones wait for.

    `last` has the last collective of each group, `begun` the calls that nobody waited for, by their
    request, which calls of one batch share. `awaited` has the requests of all waits.
    """

    def __init__(self, nodes: RankNodes, awaited: Container[str]) -> None:
        self.nodes, self.awaited, self.after = nodes, awaited, list[int]()
        self.last: dict[str, int] = {}
        self.begun: dict[str, list[int]] = defaultdict(list)
        self.requests = set[str]()

    def add(self, call: Item) -> None:
        """Add a call, or a wait for one."""
        name, request = called(call), call.value["request"]
        if name == "wait":
            known = request in self.requests
            self.nodes.left_out[UNKNOWN_WAIT] += not known and bool(self.begun)
            ended = [self.begun.pop(one, []) for one in ([request] if known else [*self.begun])]
            self._wait(call, list(chain(*ended)))
        elif name != "init":
            group = "" if name in MESSAGES else str(call.value.get("pg_name"))
            before = [self.last[group]] if group in self.last else []
            end = self.nodes.call(call, [*self.after, *before])
            self.requests.add(request)
            if group:
                self.last[group] = end
            is_awaited = not group or request in self.awaited
            if str(call.value.get("is_asynchronized_op", is_awaited)).lower() == "false":
                self._wait(call, [end])
            else:
                self.begun[request].append(end)

    def _wait(self, call: Item, ended: Sequence[int]) -> None:
        self.after = self.nodes.joined(call, [*self.after, *ended])
