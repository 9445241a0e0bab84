"""Chakra execution traces (MLCommons, `schema/protobuf/et_def.proto`), a file for each rank.

A file is a `GlobalMetadata` and `Node` messages, each behind its length; it may be gzipped. All
nodes without communication compute. A collective operation is of all ranks, or of the ranks that
name its process group (`pg_name`). The n-th operation of a group in one rank's file is the n-th in
the other ranks' files. `comm_size` is the input of each rank.
"""

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import pairwise

import numpy as np

from model.arrays import Bools, Floats, Ints
from model.workload.trace import Contradiction, NodeKind, Operation, Trace, matched
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import NONE, Rows
from traffic_gen.traces.formats import protobuf
from traffic_gen.traces.formats.chakra_nodes import NodeColumns, read_columns
from traffic_gen.traces.formats.chakra_writing import COMM_TYPE_OF, TYPE_OF
from traffic_gen.traces.formats.nodes import (
    MOST_BYTES,
    MOST_SECONDS,
    Malformed,
    require_nodes,
    require_ranks,
)

GZIP, GZIP_WBITS = b"\x1f\x8b", zlib.MAX_WBITS | 16
# Limit of all files together, after decompression.
MOST_CONTENT_BYTES = 2**29
# Nodes that begin within this many bytes are read together.
BATCH_BYTES = 2**24
# Limit of the dependencies of all nodes, as in a replay.
MOST_DEPENDENCIES = 20_000_000
# The version of the schema, as `0.0.4` or `1.0.2-chakra.0.0.4`; no text has it behind a length.
VERSION = re.compile(rb"[0-9]+\.[0-9]+[!-~]*")
LONGEST_BEGIN = 64
MOST_TYPE = 10
BARRIER = 9
# A barrier is the smallest AllReduce; ReduceScatter has a second number.
COLLECTIVES = {
    **{number: collective for collective, number in COMM_TYPE_OF.items()},
    8: Collective.REDUCE_SCATTER,
    BARRIER: Collective.ALL_REDUCE,
}


def is_chakra(content: bytes) -> bool:
    """Whether a file begins as a Chakra execution trace does, with the version of its schema."""
    try:
        begin = _begin(content)
        length, first = protobuf.varint(begin, 0)
        size, offset = protobuf.varint(begin, first + 1)
    except (protobuf.Damaged, zlib.error):
        return False
    is_version = VERSION.fullmatch(begin[offset : offset + size]) is not None
    return begin[first : first + 1] == b"\x0a" and is_version and offset + size <= first + length


def _begin(content: bytes) -> bytes:
    """Return the first bytes of a file's content, which may be gzipped."""
    if not content.startswith(GZIP):
        return content[:LONGEST_BEGIN]
    return zlib.decompressobj(wbits=GZIP_WBITS).decompress(content[:65536], LONGEST_BEGIN)


def read_chakra(files: Sequence[bytes]) -> Trace:
    """Read a trace from the files of all ranks; raise `Malformed` for any other content."""
    require_ranks(len(files), "")
    frames = _frames(files)
    columns = frames.columns()
    return _Assembly(frames, columns).trace(len(files))


def _unpacked(content: bytes, most_bytes: int, file: int) -> bytes:
    """Return the content of a file, which may be gzipped, in one or several members."""
    plain, what = content, ""
    if content.startswith(GZIP):
        try:
            plain = gzip.GzipFile(fileobj=BytesIO(content)).read(most_bytes + 1)
        except EOFError:
            what = "compressed data ends early"
        except (gzip.BadGzipFile, zlib.error) as error:
            what = f"cannot be decompressed: {error}"
    if len(plain) > most_bytes:
        what = f"decompressed files must have at most {MOST_CONTENT_BYTES} bytes together"
    if what:
        raise Malformed(": byte 0", what, file=file)
    return plain


@dataclass(frozen=True)
class _Frames:
    """The joined content of all files, with the range and the rank of each node."""

    content: protobuf.Bytes
    file_begin: Ints
    rank: Ints
    begin: Ints
    end: Ints

    def malformed(self, offset: int, what: str) -> Malformed:
        """Return an error at an offset."""
        file = int(np.searchsorted(self.file_begin, offset, side="right")) - 1
        return Malformed(f": byte {offset - int(self.file_begin[file])}", what, file=file)

    def at(self, node: int, what: str) -> Malformed:
        """Return an error at a node."""
        return self.malformed(int(self.begin[node]), what)

    def columns(self) -> NodeColumns:
        """Read all nodes."""
        parts, waits = list[NodeColumns](), 0
        for first, last in self._batches():
            try:
                part = read_columns(self.content, self.begin[first:last], self.end[first:last])
            except protobuf.Damaged as error:
                raise self.malformed(error.offset, error.what) from None
            parts.append(part)
            waits += len(part.waits.values)
            if waits > MOST_DEPENDENCIES:
                what = f"trace must have at most {MOST_DEPENDENCIES} dependencies"
                raise self.at(first, what)
        return NodeColumns.joined(parts)

    def _batches(self) -> Iterator[tuple[int, int]]:
        """Yield the first node of each part that is read together, and the end of the part."""
        limits = np.arange(BATCH_BYTES, len(self.content), BATCH_BYTES)
        ends = np.unique(np.searchsorted(self.begin, limits)).tolist()
        yield from pairwise([0, *ends, len(self.begin)])


def _frames(files: Sequence[bytes]) -> _Frames:
    contents: list[bytes] = []
    begins, ends, counts = list[int](), list[int](), list[int]()
    base, file_begin = 0, list[int]()
    for number, packed_content in enumerate(files):
        content = _unpacked(packed_content, MOST_CONTENT_BYTES - base, number)
        try:
            first, last = _ranges(content)
        except protobuf.Damaged as error:
            raise Malformed(f": byte {error.offset}", error.what, file=number) from None
        begins += [base + begin for begin in first[1:]]
        ends += [base + end for end in last[1:]]
        counts.append(len(first) - 1)
        require_nodes(len(begins), f": byte {len(content)}", file=number)
        contents.append(content)
        file_begin.append(base)
        base += len(content)
    return _Frames(
        content=np.frombuffer(b"".join(contents), np.uint8),
        file_begin=np.array(file_begin, np.int64),
        rank=np.repeat(np.arange(len(files)), counts),
        begin=np.array(begins, np.int64),
        end=np.array(ends, np.int64),
    )


def _ranges(content: bytes) -> tuple[list[int], list[int]]:
    """Return where each message of a file begins and ends."""
    begins, ends, offset = list[int](), list[int](), 0
    while offset < len(content) or not begins:
        length, begin = protobuf.varint(content, offset)
        offset = begin + length
        if offset > len(content):
            raise protobuf.Damaged(begin, f"ends within a message of {length} bytes")
        begins.append(begin)
        ends.append(offset)
    return begins, ends


class _Assembly:
    """Puts a trace together from the nodes of all files."""

    def __init__(self, frames: _Frames, columns: NodeColumns) -> None:
        self.kind = np.zeros(len(frames.rank), np.int64)
        for kind, type_ in TYPE_OF.items():
            self.kind[columns.type == type_] = kind
        barriers = (self.kind == NodeKind.COLLECTIVE) & (columns.comm_type == BARRIER)
        comm_size = np.where(barriers, 0, columns.comm_size)
        self.frames, self.columns = frames, replace(columns, comm_size=comm_size)

    def trace(self, ranks: int) -> Trace:
        """Return the trace; raise `Malformed` where nodes do not fit together."""
        frames, columns, kind = self.frames, self.columns, self.kind
        self._require((columns.type > 0) & (columns.type <= MOST_TYPE), "unknown type of node")
        peer, seconds = self._peers(ranks), self._seconds()
        operation, operations = self._operations(ranks)
        try:
            trace = Trace(
                format="Chakra",
                ranks=ranks,
                kind=kind,
                rank=frames.rank,
                peer=peer,
                size_bytes=self._sizes(),
                seconds=seconds,
                after=self._after(),
                sent_by=matched(kind, frames.rank, peer, np.maximum(0, columns.comm_tag)),
                operation=operation,
                operations=operations,
            )
            _ = trace.order
        except Contradiction as error:
            raise frames.at(error.node, str(error)) from None
        return trace

    def _require(self, right: Bools, what: str) -> None:
        """Raise `Malformed` at the first node that is not right."""
        if not right.all():
            raise self.frames.at(int(np.argmin(right)), what)

    def _peers(self, ranks: int) -> Ints:
        sends, receives = self.kind == NodeKind.SEND, self.kind == NodeKind.RECEIVE
        peer = np.where(sends, self.columns.comm_dst, self.columns.comm_src)
        peer = np.where(sends | receives, peer, NONE)
        right = (peer >= 0) & (peer < ranks)
        self._require(~sends | right, f"comm_dst must be one of the ranks 0 to {ranks - 1}")
        self._require(~receives | right, f"comm_src must be one of the ranks 0 to {ranks - 1}")
        return peer

    def _sizes(self) -> Ints:
        size_bytes, sends = self.columns.comm_size, self.kind == NodeKind.SEND
        communicates = sends | (self.kind == NodeKind.COLLECTIVE)
        right = ~communicates | (size_bytes >= 0) & (size_bytes <= MOST_BYTES)
        self._require(right, f"comm_size must be 0 to {MOST_BYTES} bytes")
        return np.where(sends, size_bytes, 0)

    def _seconds(self) -> Floats:
        columns = self.columns
        micros = np.where(columns.microseconds > 0, columns.microseconds, columns.runtime)
        seconds = np.where(self.kind == NodeKind.COMPUTE, np.maximum(0, micros), 0) / 1e6
        self._require(seconds <= MOST_SECONDS, "must take at most a day")
        return seconds

    def _after(self) -> Rows:
        """Turn ids into numbers of nodes, each within its rank's file."""
        rank, waits = self.frames.rank, self.columns.waits
        ids, place = np.unique(self.columns.id, return_inverse=True)
        key = rank * len(ids) + place
        order = np.argsort(key, kind="stable")
        ordered = key[order]
        if (twice := np.flatnonzero(np.diff(ordered) == 0)).size:
            raise self.frames.at(int(order[twice[0] + 1]), "duplicate id")
        if not len(waits.values):
            return waits
        nearest = np.minimum(np.searchsorted(ids, waits.values), len(ids) - 1)
        wanted = rank[waits.row] * len(ids) + nearest
        at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
        right = (ids[nearest] == waits.values) & (ordered[at] == wanted)
        if not right.all():
            wrong = int(np.argmin(right))
            what = f"depends on unknown node {waits.values[wrong]} of this file"
            raise self.frames.at(int(waits.row[wrong]), what)
        return Rows(order[at], waits.starts)

    def _operations(self, ranks: int) -> tuple[Ints, tuple[Operation, ...]]:
        """Return the operation of each node, and all of them."""
        calls = self._calls(ranks)
        operation, operations = np.full(len(self.kind), NONE), list[Operation]()
        for of_rank in calls.values():
            counts = {rank: len(nodes) for rank, nodes in of_rank.items()}
            fewest = min(counts, key=counts.__getitem__)
            for nodes in of_rank.values():
                if len(nodes) > counts[fewest]:
                    what = f"rank {fewest} takes no part in this collective operation"
                    raise self.frames.at(nodes[counts[fewest]], what)
            for together in zip(*of_rank.values(), strict=True):
                operation[list(together)] = len(operations)
                operations.append(self._operation(together, tuple(of_rank)))
        return operation, tuple(operations)

    def _calls(self, ranks: int) -> dict[str | None, dict[int, list[int]]]:
        """Return the nodes of each process group, by rank; without a group, of all ranks."""
        calls: dict[str | None, dict[int, list[int]]] = {}
        for node in np.flatnonzero(self.kind == NodeKind.COLLECTIVE).tolist():
            group = self.columns.group[node]
            if group not in calls:
                members = range(ranks) if group is None else ()
                calls[group] = {rank: [] for rank in members}
            of_rank = calls[group]
            of_rank.setdefault(int(self.frames.rank[node]), []).append(node)
        return calls

    def _operation(self, nodes: tuple[int, ...], ranks: tuple[int, ...]) -> Operation:
        types, sizes = self.columns.comm_type, self.columns.comm_size
        first = nodes[0]
        for node in nodes:
            if types[node] != types[first] or sizes[node] != sizes[first]:
                raise self.frames.at(
                    node, f"differs from the collective operation of rank {ranks[0]}"
                )
        collective = COLLECTIVES.get(int(types[first]))
        if collective is None:
            raise self.frames.at(first, f"comm_type {types[first]} cannot be replayed")
        gathers = collective is Collective.ALL_GATHER
        size_bytes = int(sizes[first]) * (len(ranks) if gathers else 1)
        return Operation(collective, size_bytes, self._rooted(first, collective, ranks))

    def _rooted(self, node: int, collective: Collective, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """Begin with the root, if the collective has one: `comm_src`, or the lowest rank."""
        root = int(self.columns.comm_src[node])
        if not collective.has_root or root not in ranks:
            return ranks
        place = ranks.index(root)
        return ranks[place:] + ranks[:place]
