"""Chakra execution traces, written: the bytes of each rank's file (see `chakra`)."""

from collections.abc import Iterator, Mapping

from model.workload.trace import Action, Trace
from model.workload.transfers.collective import Collective

SCHEMA_VERSION = "0.0.4"
TYPE_OF = {Action.COMPUTE: 4, Action.SEND: 5, Action.RECEIVE: 6, Action.COLLECTIVE: 7}
# Values of `CollectiveCommType`, from 0 on: a barrier is the smallest AllReduce.
COMM_TYPES = {
    "AllReduce": Collective.ALL_REDUCE,
    "Reduce": Collective.REDUCE,
    "AllGather": Collective.ALL_GATHER,
    "Gather": Collective.GATHER,
    "Scatter": Collective.SCATTER,
    "Broadcast": Collective.BROADCAST,
    "AllToAll": Collective.ALL_TO_ALL,
    "ReduceScatter": Collective.REDUCE_SCATTER,
    "ReduceScatterBlock": Collective.REDUCE_SCATTER,
    "Barrier": Collective.ALL_REDUCE,
}
COLLECTIVES = list(COMM_TYPES.values())
# The input of a rank is a part of the size.
GATHERED = (Collective.ALL_GATHER, Collective.GATHER)
# Fields of a node and of an attribute.
ID, NAME, TYPE, DATA, START, DURATION, ATTRIBUTE = 1, 2, 3, 5, 6, 7, 10
INT64, BOOL, STRING = 9, 27, 29
Span = tuple[int, int]
"""When a node began, and how long it took, in microseconds."""


def chakra_files(trace: Trace, spans: Mapping[int, Span] | None = None) -> list[bytes]:
    """Return the file of each rank; ids are the numbers of nodes, tags those of sends.

    `spans` has the measured times of nodes, if they ran.
    """
    metadata = _framed(_text(1, SCHEMA_VERSION))
    files = [[metadata] for _ in range(trace.ranks)]
    for node, after in enumerate(trace.after_lists):
        computed = 0, round(float(trace.seconds[node]) * 1e6)
        span = computed if spans is None else spans.get(node, computed)
        message = b"".join(_fields(trace, node, after, span))
        files[int(trace.rank[node])].append(_framed(message))
    return [b"".join(parts) for parts in files]


def _fields(trace: Trace, node: int, after: tuple[int, ...], span: Span) -> Iterator[bytes]:
    """Yield the fields of a node, of which its send, receive or operation are attributes."""
    kind = Action(trace.kind[node])
    yield _number(ID, node) + _text(NAME, kind.name) + _number(TYPE, TYPE_OF[kind])
    if after:
        yield _content(DATA, b"".join(map(_varint, after)))
    yield _number(START, span[0]) + _number(DURATION, span[1])
    yield _attribute("is_cpu_op", BOOL, 0)
    if kind is Action.COMPUTE:
        # On a stream of its own, compute waits for its dependencies alone.
        yield _attribute("stream", INT64, node)
    rank, peer = int(trace.rank[node]), int(trace.peer[node])
    if kind is Action.COLLECTIVE:
        yield from _collective(trace, int(trace.operation[node]))
    elif kind is not Action.COMPUTE:
        send = node if kind is Action.SEND else int(trace.sent_by[node])
        source, to = (rank, peer) if kind is Action.SEND else (peer, rank)
        yield _attribute("comm_src", INT64, source)
        yield _attribute("comm_dst", INT64, to)
        yield _attribute("comm_tag", INT64, send)
        yield _attribute("comm_size", INT64, int(trace.size_bytes[send]))


def _collective(trace: Trace, number: int) -> Iterator[bytes]:
    operation = trace.operations[number]
    inputs = len(operation.ranks) if operation.collective in GATHERED else 1
    yield _attribute("comm_type", INT64, COLLECTIVES.index(operation.collective))
    yield _attribute("comm_size", INT64, operation.size_bytes // inputs)
    if operation.collective.has_root:
        yield _attribute("comm_src", INT64, operation.ranks[0])
    if len(operation.ranks) < trace.ranks:
        group = "-".join(map(str, sorted(operation.ranks)))
        yield _content(ATTRIBUTE, _text(1, "pg_name") + _text(STRING, group))


def _attribute(name: str, field: int, value: int) -> bytes:
    return _content(ATTRIBUTE, _text(1, name) + _number(field, value))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, text: str) -> bytes:
    return _content(field, text.encode())


def _content(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _framed(content)


def _framed(message: bytes) -> bytes:
    """Return a message behind its length."""
    return _varint(len(message)) + message


def _varint(value: int) -> bytes:
    """Return a number without sign, seven bits a byte, the lowest first."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
