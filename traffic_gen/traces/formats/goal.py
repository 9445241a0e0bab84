"""GOAL schedules, as text (Hoefler, Siebert and Lumsdaine, ICPP 2009).

The grammar is that of `txt2bin.re` of LogGOPSim, a statement a line:

    num_ranks 2
    rank 0 {
    a: calc 1000 cpu 0
    b: send 4096b to 1 tag 7 cpu 0 nic 0
    b requires a
    }

`calc` takes nanoseconds. Those of a rank on one processor (`cpu`, else 0) take turns, first come,
first served. `b irequires a` lets b begin when a could begin. Interfaces (`nic`), and processors of
sends and receives, which take no time there, are read and left out.
"""

import re
from collections import Counter
from io import StringIO

from model.sentences import counted
from model.workload.trace import Action, Trace
from model.workload.transfers.columns import NONE
from traffic_gen.traces.formats.nodes import Defaults, Malformed, Node, Nodes, require_ranks

NUMBER = r"[0-9]{1,18}"
STATEMENT = re.compile(
    r"(?:([A-Za-z]\w*)\s*:\s*)?(?:"
    rf"(send|recv)\s+({NUMBER})b\s+(?:to|from)\s+(-1|{NUMBER})(?:\s+tag\s+(-1|{NUMBER}))?"
    rf"|calc\s+({NUMBER}))((?:\s+(?:cpu|nic)\s+{NUMBER})*)"
)
WAIT = re.compile(r"([A-Za-z]\w*)\s+(i?)requires\s+([A-Za-z]\w*)")
RANK = re.compile(rf"rank\s+({NUMBER})\s*\{{")
# What follows a brace may be in its line.
BRACE = re.compile(r"(?<=[{}])")
COUNT = re.compile(rf"num_ranks\s+({NUMBER})")
# An unclosed comment ends with the text.
COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
EXPECTED = "`num_ranks N`, `rank R {`, a send, recv or calc, `a requires b`, or `}`"


def is_goal(text: str) -> bool:
    """Whether a text begins as a GOAL schedule does."""
    begin = COMMENT.sub("", text[:65536]).lstrip()
    return begin.startswith("num_ranks") or RANK.match(begin) is not None


def read_goal(text: str, _defaults: Defaults) -> Trace:
    """Read a GOAL schedule; raise `Malformed` for any other text."""
    # Lines keep their numbers.
    return _Reader().read(COMMENT.sub(lambda found: " " + "\n" * found[0].count("\n"), text))


class _Reader:
    def __init__(self) -> None:
        self.nodes = Nodes(ranks=0)
        self.rank: int | None = None
        self.labels: dict[str, int] = {}
        # The node that ends when another one begins, if a node depends on that begin.
        self.begins: dict[int, int] = {}
        self.seen: set[int] = set()
        self.placed = 0

    def read(self, text: str) -> Trace:
        place = 0
        for place, line in enumerate(StringIO(text), start=1):
            for statement in filter(None, map(str.strip, BRACE.split(line))):
                self._statement(statement, place)
        if self.rank is not None:
            raise Malformed(place, f"ends within rank {self.rank}", "close it with `}`")
        # The node at the begin of another node has the same dependencies.
        for later, earlier in zip(list(self.nodes.later), list(self.nodes.earlier), strict=True):
            if later in self.begins:
                self.nodes.wait(self.begins[later], earlier)
        if self.placed:
            what = f"processors of messages, and interfaces, in {counted(self.placed, 'statement')}"
            self.nodes.left_out.append(what)
        added = self.nodes.added
        turns = Counter((one.rank, one.processor) for one in added if one.processor != NONE)
        if late := sum(turns[added[node].rank, added[node].processor] > 1 for node in self.begins):
            what = f"turns of {counted(late, 'calculation')} at whose start (irequires) others"
            self.nodes.left_out.append(f"{what} start, without waiting for them")
        return self.nodes.trace("GOAL")

    def _statement(self, statement: str, place: int) -> None:
        rank = self.rank
        if rank is not None and (matched := STATEMENT.fullmatch(statement)):
            self._node(matched, rank, place)
        elif rank is not None and (matched := WAIT.fullmatch(statement)):
            self._wait(matched, rank, place)
        elif rank is not None and statement == "}":
            self.rank, self.labels = None, {}
        elif rank is None and (matched := COUNT.fullmatch(statement)):
            if self.nodes.ranks:
                raise Malformed(place, "duplicate num_ranks", "leave one of them out")
            self.nodes.ranks = require_ranks(int(matched[1]), place)
        elif rank is None and (matched := RANK.fullmatch(statement)):
            self.rank = self._known(int(matched[1]), place)
            if self.rank in self.seen:
                raise Malformed(place, f"duplicate rank {self.rank}")
            self.seen.add(self.rank)
        else:
            what = f"unknown statement {statement[:60]!r}"
            raise Malformed(place, what, f"expected {EXPECTED}")

    def _known(self, rank: int, place: int) -> int:
        if not self.nodes.ranks:
            raise Malformed(place, "needs num_ranks before the first rank")
        if not 0 <= rank < self.nodes.ranks:
            raise Malformed(place, f"rank must be 0 to {self.nodes.ranks - 1}, got {rank}")
        return rank

    def _node(self, matched: re.Match[str], rank: int, place: int) -> None:
        label, what, size, peer, tag, nanoseconds, words = matched.groups(default="")
        places = words.split()
        given = dict(zip(places[::2], map(int, places[1::2]), strict=True))
        if len(given) < len(places) // 2:
            raise Malformed(place, "duplicate processor or interface", "leave one of them out")
        processor = given.pop("cpu", 0) if not what else NONE
        self.placed += bool(given)
        if not what:
            seconds = int(nanoseconds) / 1e9
            node = Node(Action.COMPUTE, rank, place, seconds=seconds, processor=processor)
        elif "-1" in (peer, tag):
            raise Malformed(place, "has the wildcard -1 as rank or tag", "name its rank and tag")
        else:
            to, mark = self._known(int(peer), place), int(tag or 0)
            if what == "send":
                node = Node(Action.SEND, rank, place, to, int(size), mark)
            else:
                node = Node(Action.RECEIVE, rank, place, to, tag=mark, room=int(size))
        number = self.nodes.add(node)
        if label in self.labels:
            raise Malformed(place, f"duplicate label {label!r}")
        if label:
            self.labels[label] = number

    def _wait(self, matched: re.Match[str], rank: int, place: int) -> None:
        later, at_begin, earlier = matched.groups()
        for label in (later, earlier):
            if label not in self.labels:
                what = f"unknown label {label!r}; labels are defined before their use"
                raise Malformed(place, what)
        node = self.labels[earlier]
        if at_begin:
            # A node without duration that ends when this one begins.
            if node not in self.begins:
                self.begins[node] = self.nodes.add(Node(Action.COMPUTE, rank, place))
            node = self.begins[node]
        self.nodes.wait(self.labels[later], node)
