"""Matrices of bytes, as for the alltoallv of nccl-tests: the bytes from each rank to each other.

A line has the bytes that one rank sends to every rank, separated by spaces, tabs or commas. Empty
lines and comments after `#` are left out. All messages are sent at once, as in a group of NCCL.
Numbers may have fractions, of which a size is the whole (as `NCCL_TESTS_ALLTOALLV_MATRIX_SCALE`),
and the suffixes of nccl-tests' sizes: K, M and G are powers of 1024. Parts of a byte are cut off.
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

FORMAT = "byte matrix"
# An exabyte has 19 digits.
NUMBER = re.compile(r"((?:[0-9]{1,19}\.?|\.[0-9])[0-9]{0,19}(?:[eE][+-]?[0-9]{1,2})?)([KMGkmg]?)")
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
# A number, and what separates it from the next one.
LONGEST_WORD = 45


def is_byte_matrix(text: str) -> bool:
    """Whether the first line with content begins with a number."""
    for written in StringIO(text[:65536]):
        if words := _words(written):
            return words[0].lstrip("+-.")[:1].isdecimal()
    return False


def read_byte_matrix(text: str, defaults: Defaults) -> Trace:
    """Read a matrix, whose numbers the default size multiplies; raise `Malformed` otherwise."""
    rows = _rows(text, 1 if defaults.size_bytes is None else defaults.size_bytes)
    ranks = require_ranks(len(rows), 1)
    nodes = Nodes(ranks)
    for rank, (place, row) in enumerate(rows):
        if len(row) != ranks:
            raise Malformed(place, f"must have {ranks} numbers, one for each row, got {len(row)}")
        for peer, size_bytes in enumerate(row):
            if size_bytes and peer != rank:
                nodes.add(Node(NodeKind.SEND, rank, place, peer=peer, size_bytes=size_bytes))
                nodes.add(Node(NodeKind.RECEIVE, peer, place, peer=rank))
    return nodes.trace(FORMAT)


def row_of(written: str, scale: int = 1) -> list[int]:
    """Return the bytes in a line of a matrix, scaled; raise `ValueError` with a sentence."""
    return [_bytes_of(word, scale) for word in _words(written)]


def _bytes_of(word: str, scale: int) -> int:
    matched = NUMBER.fullmatch(word)
    if matched is None:
        raise ValueError(f"must be numbers of bytes, such as 64 or 1.5M, got {word[:40]!r}")
    number, unit = matched[1], UNITS[matched[2].upper()] * scale
    size_bytes = int(number) * unit if number.isdecimal() else float(number) * unit
    if 0 < size_bytes < 1:
        raise ValueError(
            f"must be at least a byte, got {word}; a trace's size multiplies fractions"
        )
    return int(size_bytes)


def _words(written: str) -> list[str]:
    """Return the numbers of a line as words, without its comment."""
    return written.partition("#")[0].replace(",", " ").split()


def _rows(text: str, scale: int) -> list[tuple[int, list[int]]]:
    """Return the rows with their line numbers."""
    rows, count = list[tuple[int, list[int]]](), 0
    for number, written in enumerate(StringIO(text), start=1):
        if len(written) > MOST_RANKS * LONGEST_WORD:
            raise Malformed(number, f"must have at most {MOST_RANKS} numbers")
        try:
            row = row_of(written, scale)
        except ValueError as error:
            raise Malformed(number, str(error)) from error
        if row:
            count += len(row)
            require_nodes(count, number)
            rows.append((number, [require_bytes(size, number) for size in row]))
            require_ranks(len(rows), number)
    return rows
