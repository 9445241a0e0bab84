"""Connection matrices of htsim (Broadcom/csg-htsim, `connection_matrix.cpp`).

    Nodes 4
    Connections 2
    0->1 id 1 start 0 size 2000000
    0->2 id 2 start 1000000 size 2000000

A connection sends `size` bytes, `start` picoseconds after the begin. Triggers, by which one waits
for the end of others on any node, are refused: nodes of a trace wait for their own rank's.
"""

import re
from collections import Counter
from io import StringIO

from model.workload.trace import NodeKind, Trace
from traffic_gen.traces.formats.nodes import Defaults, Malformed, Node, Nodes, require_ranks

BEGIN = re.compile(r"(?:\s*#[^\n]*\n|\s)*Nodes\s")
COUNT = re.compile(r"(Nodes|Connections|Triggers|Failures)\s+([0-9]{1,18})")
CONNECTION = re.compile(r"([0-9]{1,9})->([0-9]{1,9})((?:\s+[a-z_]+\s+[0-9.]{1,40})*)")
NUMBER = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?")
KEYS = ("id", "start", "size", "send_done_trigger", "recv_done_trigger", "prio")
PS_PER_S = 1e12


def is_htsim(text: str) -> bool:
    """Whether a text begins with the number of nodes."""
    return BEGIN.match(text[:65536]) is not None


def read_htsim(text: str, _defaults: Defaults) -> Trace:
    """Read a connection matrix; raise `Malformed` for any other text."""
    nodes, announced, counts = Nodes(ranks=0), dict[str, int](), Counter[str]()
    for place, line in enumerate(StringIO(text), start=1):
        written = line.partition("#")[0].strip()
        if matched := COUNT.fullmatch(written):
            if matched[1] in announced:
                raise Malformed(place, f"duplicate {matched[1]}", "leave one of them out")
            announced[matched[1]] = int(matched[2])
            if matched[1] == "Nodes":
                nodes.ranks = require_ranks(int(matched[2]), place)
        elif matched := CONNECTION.fullmatch(written):
            counts["Connections"] += 1
            _connect(nodes, matched, counts, place)
        elif written.startswith("failure "):
            counts["Failures"] += 1
        elif written.startswith("trigger "):
            counts["Triggers"] += 1
        elif written:
            hint = "expected `0->1 start 0 size 1`"
            raise Malformed(place, f"unknown line {written[:60]!r}", hint)
    for key, count in announced.items():
        if key != "Nodes" and counts[key] != count:
            raise Malformed(1, f"must have {count} {key}, got {counts[key]}")
    for key, what in (("Failures", "failures of links"), ("prio", "priorities of connections")):
        nodes.left_out += [f"{counts[key]} {what}"] * (counts[key] > 0)
    return nodes.trace("htsim")


def _connect(nodes: Nodes, matched: re.Match[str], counts: Counter[str], place: int) -> None:
    """Add the nodes of a connection."""
    source, to, words = int(matched[1]), int(matched[2]), matched[3].split()
    given = dict(zip(words[::2], words[1::2], strict=True))
    if len(given) < len(words) // 2:
        raise Malformed(place, "has a key twice", "leave one of them out")
    if max(source, to) >= nodes.ranks:
        raise Malformed(place, f"node must be 0 to {nodes.ranks - 1}, got {max(source, to)}")
    if "trigger" in given:
        raise Malformed(place, "waits for a trigger, which cannot be replayed", "give it a start")
    for key, number in given.items():
        if key not in KEYS or not NUMBER.fullmatch(number):
            raise Malformed(place, f"must be a key and a number, got '{key} {number}'")
    size_bytes = int(float(given.get("size", "0")))
    if "start" not in given or not size_bytes:
        hint = "htsim's connections of size 0 have no end"
        raise Malformed(place, "needs a start, and a size of at least 1 byte", hint)
    seconds = float(given["start"]) / PS_PER_S
    send = nodes.message(source, to, place, size_bytes, tag=counts["Connections"])
    if seconds:
        nodes.wait(send, nodes.add(Node(NodeKind.COMPUTE, source, place, seconds=seconds)))
    counts["prio"] += "prio" in given
