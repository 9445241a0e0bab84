"""Connection matrices of htsim (Broadcom/csg-htsim, `connection_matrix.cpp`).

    Nodes 4
    Connections 2
    Triggers 1
    0->1 id 1 start 1000000 size 2000000 send_done_trigger 1
    0->2 id 2 trigger 1 size 2000000
    trigger id 1 oneshot

A connection sends `size` bytes, `start` picoseconds after the begin, or when its trigger fires:
`oneshot` at the end of its one connection, a `barrier` after `count` of them; at the n-th one that
ends, a `multishot` starts its n-th target, which is here that of its n-th connection in the file.

A node of a trace waits for others of its own rank: a connection ends for its source when it is
confirmed, for its destination when it has arrived, whichever of the two htsim means.
"""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from io import StringIO
from itertools import pairwise

from model.workload.trace import Action, Trace
from traffic_gen.traces.formats.nodes import Defaults, Malformed, Node, Nodes, require_ranks

FORMAT = "htsim"
COUNTED = r"(Nodes|Connections|Triggers|Failures)\s"
BEGIN = re.compile(rf"(?:\s*#[^\n]*\n|\s)*{COUNTED}")
COUNT = re.compile(rf"{COUNTED}+([0-9]{{1,18}})")
CONNECTION = re.compile(r"([0-9]{1,9})->([0-9]{1,9})((?:\s+addon|\s+[a-z_]+\s+[0-9.]{1,40})*)")
TRIGGER = re.compile(r"trigger(?:\s+(?:id|count)\s+[0-9]{1,9}|\s+(?:oneshot|multishot|barrier))+")
KINDS = ("oneshot", "multishot", "barrier")
MULTISHOT, BARRIER = KINDS[1:]
NUMBER = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?")
DONE = ("send_done_trigger", "recv_done_trigger")
KEYS = ("id", "start", "trigger", "size", *DONE, "prio")
PS_PER_S = 1e12


def is_htsim(text: str) -> bool:
    """Whether a text begins with a number of nodes, connections, triggers or failures."""
    return BEGIN.match(text[:65536]) is not None


def read_htsim(text: str, _defaults: Defaults) -> Trace:
    """Read a connection matrix; raise `Malformed` for any other text."""
    return _Reader().read(text)


@dataclass
class _Trigger:
    """A trigger: its line, its kind, and the sends of connections that fire it, or that it starts.

    The node behind a send is its receive.
    """

    place: int = 0
    kind: str = ""
    count: int = 1
    ends: list[int] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)


class _Reader:
    def __init__(self) -> None:
        self.nodes = Nodes(ranks=0)
        # The number of each, and the line that has it.
        self.announced: dict[str, tuple[int, int]] = {}
        self.counts = Counter[str]()
        self.triggers: dict[int, _Trigger] = defaultdict(_Trigger)

    def read(self, text: str) -> Trace:
        for place, line in enumerate(StringIO(text), start=1):
            if written := line.partition("#")[0].strip():
                self._line(written, place)
        for key, (count, place) in self.announced.items():
            if key != "Nodes" and self.counts[key] != count:
                raise Malformed(place, f"must have {count} {key}, got {self.counts[key]}")
        for number, trigger in self.triggers.items():
            self._fire(number, trigger)
        for key, what in (("Failures", "failures of links"), ("prio", "priorities of connections")):
            self.nodes.left_out += [f"{self.counts[key]} {what}"] * (self.counts[key] > 0)
        return self.nodes.trace(FORMAT)

    def _line(self, written: str, place: int) -> None:
        if matched := COUNT.fullmatch(written):
            if matched[1] in self.announced:
                raise Malformed(place, f"duplicate {matched[1]}", "leave one of them out")
            self.announced[matched[1]] = int(matched[2]), place
            if matched[1] == "Nodes":
                self.nodes.ranks = require_ranks(int(matched[2]), place)
        elif matched := CONNECTION.fullmatch(written):
            self.counts["Connections"] += 1
            self._connect(matched, place)
        elif written.startswith("failure "):
            self.counts["Failures"] += 1
        elif TRIGGER.fullmatch(written):
            self.counts["Triggers"] += 1
            self._specify(written.split(), place)
        else:
            hint = "expected `0->1 start 0 size 1`, or `trigger id 1 oneshot`"
            raise Malformed(place, f"unknown line {written[:60]!r}", hint)

    def _connect(self, matched: re.Match[str], place: int) -> None:
        source, to = int(matched[1]), int(matched[2])
        # htsim itself reads `addon`, and makes nothing of it.
        words = [word for word in matched[3].split() if word != "addon"]
        given = dict(zip(words[::2], words[1::2], strict=True))
        if len(given) < len(words) // 2:
            raise Malformed(place, "duplicate key", "leave one of them out")
        if not self.nodes.ranks:
            raise Malformed(place, "needs Nodes before the first connection")
        if (most := max(source, to)) >= self.nodes.ranks:
            raise Malformed(place, f"node must be 0 to {self.nodes.ranks - 1}, got {most}")
        for key, number in given.items():
            if key not in KEYS or not NUMBER.fullmatch(number):
                raise Malformed(place, f"must be a key and a number, got '{key} {number}'")
        size_bytes = int(float(given.get("size", "0")))
        if ("start" in given) == ("trigger" in given) or not size_bytes:
            what = "needs a start or a trigger, and a size of at least 1 byte"
            raise Malformed(place, what, "htsim's connections of size 0 have no end")
        send = self.nodes.message(source, to, place, size_bytes, tag=self.counts["Connections"])
        if seconds := float(given.get("start", "0")) / PS_PER_S:
            delay = self.nodes.add(Node(Action.COMPUTE, source, place, seconds=seconds))
            self.nodes.wait(send, delay)
        if "trigger" in given:
            self.triggers[int(float(given["trigger"]))].begins.append(send)
        for number in {int(float(given.get(key, "0"))) for key in DONE} - {0}:  # 0 is none
            self.triggers[number].ends.append(send)
        self.counts["prio"] += "prio" in given

    def _specify(self, words: list[str], place: int) -> None:
        given = dict(pairwise(words))
        kinds = [word for word in words if word in KINDS]
        if len(kinds) != 1 or words.count("id") != 1 or words.count("count") > 1:
            hint = f"kinds: {', '.join(KINDS)}"
            raise Malformed(place, "a trigger needs one id and one kind", hint)
        trigger = self.triggers[int(given["id"])]
        if trigger.kind:
            raise Malformed(place, f"duplicate trigger {given['id']}", "leave one of them out")
        trigger.place, trigger.kind = place, kinds[0]
        if trigger.kind == BARRIER:
            trigger.count = int(given.get("count", "0"))

    def _fire(self, number: int, trigger: _Trigger) -> None:
        """Let the connections that a trigger starts wait for those that fire it."""
        begins, ends, added = trigger.begins, trigger.ends, self.nodes.added
        place = added[(begins + ends)[0]].line if begins + ends else trigger.place
        if not trigger.kind:
            hint = f"add `trigger id {number} oneshot`"
            raise Malformed(place, f"unknown trigger {number}", hint)
        needs = len(begins) if trigger.kind == MULTISHOT else trigger.count
        if begins and (len(ends) < needs or (len(ends) > needs and trigger.kind != MULTISHOT)):
            what = f"trigger {number} needs the ends of {needs} connections, got {len(ends)}"
            raise Malformed(place, what)
        if begins and trigger.kind != MULTISHOT:
            # Each receive waits for its send, too.
            waits = len(begins) * len(ends) + self.counts["Connections"]
            self.nodes.require_waits(waits, added[begins[-1]].line)
        for index, later in enumerate(begins):
            for earlier in ends[index : index + 1] if trigger.kind == MULTISHOT else ends:
                source, other = added[later].rank, added[earlier]
                if source not in (other.rank, other.peer):
                    what = f"waits for line {other.line}, which is not of node {source}"
                    hint = "a connection can wait for those that its source sends or receives"
                    raise Malformed(added[later].line, what, hint)
                self.nodes.wait(later, earlier + (source == other.peer))
