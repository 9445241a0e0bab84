"""Matrices of bytes, as for the alltoallv of nccl-tests: what each rank sends to each other one.

A line has what one rank has for every one, in bytes, with spaces, tabs or commas between. Empty
lines, and what follows `#`, do not count. All messages are sent at once, as in a group of NCCL.
"""

import re

from model.workload.trace import NodeKind, Trace
from traffic_gen.traces.nodes import (
    Defaults,
    Malformed,
    Nodes,
    line,
    require_bytes,
    require_nodes,
    require_ranks,
)

NUMBER = re.compile(r"[0-9]{1,18}")
# A text that begins with a row of numbers, each of which may be a fraction.
BEGIN = re.compile(r"(?:\s*(?:#[^\n]*)?\n)*[ \t]*[0-9.]+(?:[ \t]*[, \t][ \t]*[0-9.]+)*[ \t]*[,#\n]")


def is_byte_matrix(text: str) -> bool:
    """Whether a text begins with a row of numbers."""
    return BEGIN.match(text[:65536] + "\n") is not None


def read_byte_matrix(text: str, _defaults: Defaults) -> Trace:
    """Read a matrix; raise `Malformed` where it is none."""
    rows = list(_rows(text))
    ranks = require_ranks(len(rows), line(1))
    require_nodes(2 * sum(sum(map(bool, row)) for _, row in rows), line(1))
    nodes = Nodes(ranks)
    for rank, (place, row) in enumerate(rows):
        if len(row) != ranks:
            raise Malformed(line(place), f"has {len(row)} numbers, but there are {ranks} rows")
        for peer, size_bytes in enumerate(row):
            if size_bytes and peer != rank:
                nodes.add(NodeKind.SEND, rank, place, peer=peer, size_bytes=size_bytes)
                nodes.add(NodeKind.RECEIVE, peer, place, peer=rank)
    return nodes.trace("byte matrix")


def _rows(text: str) -> "list[tuple[int, list[int]]]":
    """Return the rows with their lines."""
    found = []
    for number, written in enumerate(text.split("\n"), start=1):
        words = written.partition("#")[0].replace(",", " ").split()
        for word in words:
            if not NUMBER.fullmatch(word):
                what = f"must be whole numbers of bytes, got {word[:40]!r}"
                raise Malformed(line(number), what)
        if words:
            found.append((number, [require_bytes(int(word), line(number)) for word in words]))
    return found
