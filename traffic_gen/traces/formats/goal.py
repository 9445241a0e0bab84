"""GOAL schedules, as text (Hoefler, Siebert and Lumsdaine, ICPP 2009).

The grammar is that of `txt2bin.re` of LogGOPSim, a statement a line:

    num_ranks 2
    rank 0 {
    a: calc 1000 cpu 0
    b: send 4096b to 1 tag 7 cpu 0 nic 0
    b requires a
    }

`calc` takes nanoseconds. `b irequires a` lets b begin when a begins. Processors (`cpu`) and
interfaces (`nic`) are read and left out: a rank does at once what nothing holds up.
"""

import re
from io import StringIO

from model.workload.trace import NodeKind, Trace
from traffic_gen.traces.formats.nodes import (
    MOST_SECONDS,
    Defaults,
    Malformed,
    Node,
    Nodes,
    require_bytes,
    require_ranks,
)

NUMBER = r"[0-9]{1,18}"
STATEMENT = re.compile(
    r"\s*(?:([A-Za-z]\w*)\s*:\s*)?(?:"
    rf"(send|recv)\s+({NUMBER})b\s+(?:to|from)\s+(-1|{NUMBER})(?:\s+tag\s+(-1|{NUMBER}))?"
    rf"|calc\s+({NUMBER}))((?:\s+(?:cpu|nic)\s+{NUMBER})*)\s*"
)
WAIT = re.compile(r"\s*([A-Za-z]\w*)\s+(i?)requires\s+([A-Za-z]\w*)\s*")
RANK = re.compile(rf"\s*rank\s+({NUMBER})\s*\{{\s*")
COUNT = re.compile(rf"\s*num_ranks\s+({NUMBER})\s*")
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
    """Reads one statement after the other."""

    def __init__(self) -> None:
        self.nodes = Nodes(ranks=0)
        self.rank: int | None = None
        self.labels: dict[str, int] = {}
        # The node that ends when another one begins, if a node depends on that begin.
        self.begins: dict[int, int] = {}
        self.seen: set[int] = set()
        self.placed = 0

    def read(self, text: str) -> Trace:
        """Read a whole text."""
        number = 0
        for number, statement in enumerate(StringIO(text), start=1):
            if statement and not statement.isspace():
                self.statement(statement, number)
        if self.rank is not None:
            raise Malformed(number, f"ends within rank {self.rank}", "close it with `}`")
        self._follow_begins()
        if self.placed:
            self.nodes.left_out.append(f"processors and interfaces of {self.placed} statements")
        return self.nodes.trace("GOAL")

    def statement(self, statement: str, number: int) -> None:
        """Read one statement."""
        if self.rank is None:
            self._outside(statement, number)
        elif matched := STATEMENT.fullmatch(statement):
            self._node(matched, self.rank, number)
        elif matched := WAIT.fullmatch(statement):
            self._wait(matched, number)
        elif statement.strip() == "}":
            self.rank, self.labels = None, {}
        else:
            self._refuse(statement, number)

    def _outside(self, statement: str, number: int) -> None:
        """Read a statement between the ranks."""
        if matched := COUNT.fullmatch(statement):
            if self.nodes.ranks:
                raise Malformed(number, "duplicate num_ranks", "leave one of them out")
            self.nodes.ranks = require_ranks(int(matched[1]), number)
        elif matched := RANK.fullmatch(statement):
            self.rank = self._known(int(matched[1]), number)
            if self.rank in self.seen:
                raise Malformed(number, f"duplicate rank {self.rank}")
            self.seen.add(self.rank)
        else:
            self._refuse(statement, number)

    def _refuse(self, statement: str, number: int) -> None:
        shown = statement.strip()[:60]
        raise Malformed(number, f"unknown statement {shown!r}", f"expected {EXPECTED}")

    def _known(self, rank: int, number: int) -> int:
        if not self.nodes.ranks:
            raise Malformed(number, "needs num_ranks before the first rank")
        if not 0 <= rank < self.nodes.ranks:
            raise Malformed(number, f"rank must be 0 to {self.nodes.ranks - 1}, got {rank}")
        return rank

    def _node(self, matched: re.Match[str], rank: int, number: int) -> None:
        label, what, size, peer, tag, nanoseconds, places = matched.groups()
        self.placed += bool(places)
        if what is None:
            seconds = int(nanoseconds) / 1e9
            if seconds > MOST_SECONDS:
                raise Malformed(number, f"must take at most a day, got {seconds:.3g} s")
            node = self.nodes.add(Node(NodeKind.COMPUTE, rank, number, seconds=seconds))
        else:
            node = self._message(what, int(size), int(peer), int(tag or 0), rank, number)
        if label is not None:
            if label in self.labels:
                raise Malformed(number, f"duplicate label {label!r}")
            self.labels[label] = node

    def _message(self, what: str, size: int, peer: int, tag: int, rank: int, number: int) -> int:
        if peer < 0 or tag < 0:
            raise Malformed(number, "has the wildcard -1 as rank or tag", "name its rank and tag")
        require_bytes(size, number)
        peer = self._known(peer, number)
        if what == "recv":
            return self.nodes.add(Node(NodeKind.RECEIVE, rank, number, peer, tag=tag, room=size))
        return self.nodes.add(Node(NodeKind.SEND, rank, number, peer, size, tag))

    def _wait(self, matched: re.Match[str], number: int) -> None:
        later, at_begin, earlier = matched.groups()
        for label in (later, earlier):
            if label not in self.labels:
                what = f"unknown label {label!r}; labels are defined before their use"
                raise Malformed(number, what)
        node = self.labels[earlier]
        self.nodes.wait(self.labels[later], self._begin(node, number) if at_begin else node)

    def _begin(self, node: int, number: int) -> int:
        """Return a node without duration that ends when this node begins."""
        if node not in self.begins:
            rank = self.nodes.added[node].rank
            self.begins[node] = self.nodes.add(Node(NodeKind.COMPUTE, rank, number))
        return self.begins[node]

    def _follow_begins(self) -> None:
        """Let the node at the begin of another node have the same dependencies."""
        for later, earlier in zip(list(self.nodes.later), list(self.nodes.earlier), strict=True):
            if later in self.begins:
                self.nodes.wait(self.begins[later], earlier)
