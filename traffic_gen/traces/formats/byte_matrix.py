"""Matrices of bytes, as for the alltoallv of nccl-tests: the bytes from each rank to each other.

A line has the bytes that one rank sends to every rank, separated by spaces, tabs or commas. Empty
lines and comments after `#` are left out. All messages are sent at once, as in a group of NCCL.
"""

import re
from io import StringIO

from model.workload.trace import NodeKind, Trace
from traffic_gen.traces.formats.nodes import (
    MOST_RANKS,
    Defaults,
    Malformed,
    Node,
    Nodes,
    require_bytes,
    require_nodes,
    require_ranks,
)

# An exabyte has 19 digits.
NUMBER = re.compile(r"[0-9]{1,19}")
FRACTION = re.compile(r"[0-9.][0-9.eE+-]*")
# A number, and what separates it from the next one.
LONGEST_WORD = 20


def is_byte_matrix(text: str) -> bool:
    """Whether the first line with content has numbers alone, in any notation."""
    for written in StringIO(text[:65536]):
        if words := _words(written):
            return all(map(FRACTION.fullmatch, words))
    return False


def read_byte_matrix(text: str, _defaults: Defaults) -> Trace:
    """Read a matrix; raise `Malformed` for any other text."""
    rows = _rows(text)
    ranks = require_ranks(len(rows), 1)
    nodes = Nodes(ranks)
    for rank, (place, row) in enumerate(rows):
        if len(row) != ranks:
            raise Malformed(place, f"must have {ranks} numbers, one for each row, got {len(row)}")
        for peer, size_bytes in enumerate(row):
            if size_bytes and peer != rank:
                nodes.add(Node(NodeKind.SEND, rank, place, peer=peer, size_bytes=size_bytes))
                nodes.add(Node(NodeKind.RECEIVE, peer, place, peer=rank))
    return nodes.trace("byte matrix")


def row_of(written: str) -> list[int]:
    """Return the numbers of a line of a matrix; raise `ValueError` with a sentence."""
    words = _words(written)
    for word in words:
        if not NUMBER.fullmatch(word):
            raise ValueError(f"must be whole numbers of bytes, got {word[:40]!r}")
    return [int(word) for word in words]


def _words(written: str) -> list[str]:
    """Return the numbers of a line as words, without its comment."""
    return written.partition("#")[0].replace(",", " ").split()


def _rows(text: str) -> list[tuple[int, list[int]]]:
    """Return the rows with their line numbers."""
    rows, count = list[tuple[int, list[int]]](), 0
    for number, written in enumerate(StringIO(text), start=1):
        if len(written) > MOST_RANKS * LONGEST_WORD:
            raise Malformed(number, f"must have at most {MOST_RANKS} numbers")
        try:
            row = row_of(written)
        except ValueError as error:
            raise Malformed(number, str(error)) from error
        if row:
            count += len(row)
            require_nodes(count, number)
            rows.append((number, [require_bytes(size, number) for size in row]))
            require_ranks(len(rows), number)
    return rows
