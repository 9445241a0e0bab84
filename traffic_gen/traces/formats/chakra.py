"""Chakra execution traces (MLCommons, `schema/protobuf/et_def.proto`), a file for each rank.

A file is a `GlobalMetadata` and `Node` messages, each behind its length. Read are the schemas 0.0.4
and 1.0, whose numbers are the same. All nodes without communication compute.
A collective operation is of all ranks, or of those of its group (see `chakra_groups`). The n-th
operation of a group in one rank's file is the n-th in the other ranks' files. `comm_size` is the
input of each rank.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from model.arrays import Ints
from model.workload.trace import MOST_WAITS, Trace
from model.workload.transfers.columns import starts_of
from traffic_gen.traces.formats import protobuf
from traffic_gen.traces.formats.chakra_nodes import NodeColumns, Source, read_columns
from traffic_gen.traces.formats.chakra_trace import Assembly
from traffic_gen.traces.formats.nodes import Defaults, Malformed, of_file, require_nodes

# Nodes that begin within this many bytes are read together.
BATCH_BYTES = 2**24
# Of a file, to know its format.
LONGEST_BEGIN = 4096
# First bytes of the fields of metadata, and of nodes: no text has one behind the length of a
# message, but for that of a version, which is a line feed.
VERSION, ATTRIBUTE = 0x0A, 0x12
ID, NAME, TYPE = 0x08, 0x12, 0x18


def is_chakra(content: bytes) -> bool:
    """Whether a file begins as a Chakra execution trace does: with metadata, or, of old, a node."""
    try:
        begin = content[:LONGEST_BEGIN]
        length, offset = protobuf.varint(begin, 0)
        end = offset + length
        if not length:
            return end == len(begin) or begin[protobuf.varint(begin, end)[1]] in (ID, NAME, TYPE)
        if _is_node(begin[offset:end]):
            return True
        keys = set[int]()
        while offset < min(end, len(begin)):
            key, (size, offset) = begin[offset], protobuf.varint(begin, offset + 1)
            text = begin[offset : offset + size] if key == VERSION else b""
            if key not in (VERSION, ATTRIBUTE) or not all(0x20 < byte < 0x7F for byte in text):
                return False
            keys.add(key)
            offset += size
    except (protobuf.Damaged, IndexError):
        return False
    return offset == end or (ATTRIBUTE in keys and len(begin) < end)


def _is_node(message: bytes) -> bool:
    """Whether a message begins as a node: with an id, a type, or a name before its type."""
    if message[0] != NAME:
        return message[0] in (ID, TYPE)
    size, offset = protobuf.varint(message, 1)
    return message[offset + size : offset + size + 1] == bytes([TYPE])


def read_chakra(files: Sequence[bytes], given: Defaults) -> Trace:
    """Read a trace from the files of all ranks; raise `Malformed` for any other content."""
    file_begin = starts_of([len(content) for content in files])[:-1]
    begins, ends, counts = list[int](), list[int](), list[int]()
    for file, (content, base) in enumerate(zip(files, file_begin.tolist(), strict=True)):
        with of_file(file):
            first, last = _ranges(content)
            begins += [base + begin for begin in first[1:]]
            ends += [base + end for end in last[1:]]
            counts.append(len(first) - 1)
            require_nodes(len(begins), f": byte {len(content)}")
    rank, begin = np.repeat(np.arange(len(files)), counts), np.array(begins, np.int64)
    try:
        columns = _columns(b"".join(files), begin, np.array(ends, np.int64))
    except protobuf.Damaged as error:
        file = int(np.searchsorted(file_begin, error.offset, side="right")) - 1
        place = f": byte {error.offset - int(file_begin[file])}"
        raise Malformed(place, error.what, file=file) from None
    source = Source(
        rank, lambda node: f": byte {begin[node] - file_begin[rank[node]]}", range(len(files))
    )
    return Assembly(source, columns, given).trace()


def _columns(content: bytes, begin: Ints, end: Ints) -> NodeColumns:
    """Read all nodes; those that begin within some bytes are read together."""
    data, parts, waits = np.frombuffer(content, np.uint8), list[NodeColumns](), 0
    limits = np.arange(BATCH_BYTES, len(content), BATCH_BYTES)
    firsts = np.unique(np.searchsorted(begin, limits)).tolist()
    for first, last in pairwise([0, *firsts, len(begin)]):
        parts.append(part := read_columns(data, begin[first:last], end[first:last]))
        waits += len(part.data.values) + len(part.control.values)
        if waits > MOST_WAITS:
            what = f"trace must have at most {MOST_WAITS} dependencies"
            raise protobuf.Damaged(int(begin[first]), what)
    return NodeColumns.joined(parts)


def _ranges(content: bytes) -> tuple[list[int], list[int]]:
    """Return where each message of a file begins and ends."""
    if not is_chakra(content):
        raise Malformed(": byte 0", "must begin with metadata, as Chakra traces do")
    begins, ends, offset = list[int](), list[int](), 0
    try:
        while offset < len(content):
            length, begin = content[offset], offset + 1
            if length >= 0x80:
                length, begin = protobuf.varint(content, offset)
            offset = begin + length
            if offset > len(content):
                raise protobuf.Damaged(begin, f"ends within a message of {length} bytes")
            begins.append(begin)
            ends.append(offset)
    except protobuf.Damaged as error:
        raise Malformed(f": byte {error.offset}", error.what) from None
    if begins[0] < ends[0] and _is_node(content[begins[0] : ends[0]]):
        what = "begins with a node, without metadata, as in schemas before 0.0.3"
        raise Malformed(": byte 0", what, "convert the trace, or write metadata before it")
    return begins, ends
