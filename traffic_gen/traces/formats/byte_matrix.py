"""Matrices of bytes, as for the alltoallv of nccl-tests: the bytes from each rank to each other.

A line has the bytes that one rank sends to every rank, separated by spaces, tabs or commas. Empty
lines and comments after `#` are left out. All messages are sent at once, as in a group of NCCL.
Numbers may have fractions, of which a size is the whole (as `NCCL_TESTS_ALLTOALLV_MATRIX_SCALE`),
and the suffixes of nccl-tests' sizes: K, M and G are powers of 1024. Parts of a byte are cut off.
"""

import re
from io import StringIO
from itertools import islice

from model.sentences import counted
from model.workload.trace import Trace
from traffic_gen.traces.formats.nodes import (
    MOST_RANKS,
    Defaults,
    Malformed,
    Nodes,
    require_bytes,
    require_nodes,
    require_ranks,
)

FORMAT = "byte matrix"
# An exabyte has 19 digits.
NUMBER = re.compile(
    r"((?:[0-9]{1,19}\.?|\.[0-9])[0-9]{0,19}(?:[eE][+-]?[0-9]{1,2})?)([KMGkmg]?)(?:(?<=[KMG])iB?)?"
)
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
# A number, and what separates it from the next one.
LONGEST_WORD = 45


def is_byte_matrix(text: str) -> bool:
    """Whether the first line with content begins with a number, or the second one is of numbers.

    Names of columns and of the row, which are refused, may be before these.
    """
    lines = islice(filter(None, map(_words, StringIO(text[:65536]))), 2)
    rows = [[word.lstrip("+-.[\"'")[:1].isdecimal() for word in words] for words in lines]
    return any(row[0] for row in rows[:1]) or any(all(row[len(row) > 2 :]) for row in rows[1:])


def read_byte_matrix(text: str, defaults: Defaults) -> Trace:
    """Read a matrix, whose numbers the default size multiplies; raise `Malformed` otherwise."""
    scale = 1 if defaults.size_bytes is None else defaults.size_bytes
    given, rows = numbers_in(text), list[tuple[int, list[int]]]()
    for place, row in given:
        try:
            rows.append((place, [require_bytes(scaled(one, scale), place) for one in row]))
        except ValueError as error:
            raise Malformed(place, str(error)) from None
    ranks = require_ranks(len(rows), 1)
    nodes = Nodes(ranks)
    if defaults.size_bytes is None and (cut := sum(one % 1 > 0 for _, row in given for one in row)):
        what = f"parts of bytes of {counted(cut, 'number')}; `size` multiplies fractions"
        nodes.left_out.append(what)
    if own := sum(row[rank] for rank, (_, row) in enumerate(rows)):
        nodes.left_out.append(f"{own} bytes of ranks to themselves")
    for rank, (place, sizes) in enumerate(rows):
        for peer, size_bytes in enumerate(sizes):
            if size_bytes and peer != rank:
                nodes.message(rank, peer, place, size_bytes)
    return nodes.trace(FORMAT)


def scaled(number: float, size_bytes: int) -> int:
    """Return a number of a matrix in bytes; raise `ValueError` for a part of a byte alone."""
    if 0 < number * size_bytes < 1:
        raise ValueError(f"must be at least a byte, got {number:g}; `size` multiplies fractions")
    return int(number * size_bytes)


def _number(word: str, place: int) -> int | float:
    matched = NUMBER.fullmatch(word)
    if matched is None:
        what = f"must be numbers of bytes, such as 64 or 1.5M, got {word[:40]!r}"
        raise Malformed(place, what, "give numbers alone, with spaces, tabs or commas between")
    number, unit = matched[1], UNITS[matched[2].upper()]
    value = int(number) * unit if number.isdecimal() else float(number) * unit
    require_bytes(int(value), place)
    return value


def _words(written: str) -> list[str]:
    """Return the numbers of a line as words, without its comment."""
    return written.partition("#")[0].replace(",", " ").split()


def numbers_in(text: str) -> list[tuple[int, list[int | float]]]:
    """Return the rows of a square matrix with their lines; raise `Malformed` for another text."""
    rows, count = list[tuple[int, list[int | float]]](), 0
    for place, written in enumerate(StringIO(text), start=1):
        if len(written) > MOST_RANKS * LONGEST_WORD:
            raise Malformed(place, f"must have at most {MOST_RANKS} numbers")
        if row := [_number(word, place) for word in _words(written)]:
            count += len(row)
            require_nodes(count, place)
            rows.append((place, row))
            require_ranks(len(rows), place)
    for place, row in rows:
        if len(row) != len(rows):
            what = f"must have {counted(len(rows), 'number')}, one for each row, got {len(row)}"
            raise Malformed(place, what)
    return rows
