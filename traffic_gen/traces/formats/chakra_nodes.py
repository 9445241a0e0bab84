"""The nodes of Chakra execution traces as columns, from their bytes.

Read are ids, types, dependencies and durations, the attributes of communication and compute, and
the inputs of metadata nodes; other attributes are counted.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as fields_of
from functools import cache
from typing import TypeVar

import numpy as np

from model.arrays import Bools, Floats, Ints
from model.workload.transfers.columns import Rows, starts_of
from traffic_gen.traces.formats import protobuf
from traffic_gen.traces.formats.nodes import Malformed

ID, LABEL, TYPE, CONTROL, DATA, START, MICROSECONDS, INPUTS, ATTRIBUTE = 1, 2, 3, 4, 5, 6, 7, 8, 10
# A field of the schemas before 0.0.4: of every node of 0.0.2 and 0.0.3, and of sizes in 0.0.1.
OLD_FIELDS = 11
METADATA = 1
# Name of PyTorch's node of groups, which MLCommons' converter once wrote as compute.
GROUPS = "## process_group:init ##"
VALUES = 1
# The lists are of integers, and of truth values.
NAME, TEXT, LISTS = 1, 29, (8, 10, 12, 14, 28)
TRUTHS = {0: False, 1: True}
# Attributes have negative numbers, too.
MISSING = -(2**63)
UNSIGNED, ZIGZAG = (11, 13, 21), (15, 17)
INTEGERS = (7, 9, 27, *UNSIGNED, *ZIGZAG)
# Of double, float and the numbers of fixed size, the wire type and the form of the bytes.
FIXED = {
    **{3: (protobuf.FIXED64, "<f8"), 5: (protobuf.FIXED32, "<f4")},
    **{19: (protobuf.FIXED32, "<u4"), 21: (protobuf.FIXED64, "<u8")},
    **{23: (protobuf.FIXED32, "<i4"), 25: (protobuf.FIXED64, "<i8")},
}
NUMBERS = (
    *("comm_type", "comm_size", "comm_dst", "comm_src", "comm_tag", "comm_priority", "comm_group"),
    *("runtime", "num_ops", "tensor_size", "is_cpu_op", "msg_chunk_cnt", "total_chunk_cnt"),
    "stream",
)
# Attributes that say where a node comes from, in PyTorch or in the symbolic tensor graph.
ORIGINS = (
    *("rf_id", "fw_parent", "fw_tid", "tid", "seq_id", "scope", "parent", "op_schema"),
    *("op_type", "inputs", "outputs"),
)
TEXTS = ("pg_name", "involved_dim")
# Hint for a rank that has no file.
ALL_FILES = "put the files of all ranks into a folder"
Value = TypeVar("Value")


@dataclass(frozen=True)
class Source:
    """Where nodes come from: the rank and the place of each, and the number of each rank's file."""

    rank: Ints
    place: Callable[[int], str]
    file_of: Sequence[int]

    def at(self, node: int, what: str, hint: str = "") -> Malformed:
        """Return an error at a node."""
        return Malformed(self.place(node), what, hint, file=self.file_of[int(self.rank[node])])


@dataclass(frozen=True)
class NodeColumns:
    """Fields of the nodes, with a value or a row for each node; missing numbers are `MISSING`.

    By node, `group` has the name of a process group, `involved` whether each dimension of the
    network is in the group, and `inputs` the inputs of a metadata node. `unread` has the number of
    nodes with each other attribute, or a time to start.
    """

    id: Ints
    type: Ints
    duration_micros: Ints | Floats
    data: Rows
    control: Rows
    comm_type: Ints
    comm_size: Ints
    comm_dst: Ints
    comm_src: Ints
    comm_tag: Ints
    comm_priority: Ints
    comm_group: Ints
    runtime: Ints | Floats
    num_ops: Ints
    tensor_size: Ints
    is_cpu_op: Ints
    msg_chunk_cnt: Ints
    total_chunk_cnt: Ints
    stream: Ints
    group: dict[int, str]
    involved: dict[int, tuple[bool, ...]]
    inputs: dict[int, str]
    unread: Counter[str]

    @classmethod
    def joined(cls, parts: Sequence["NodeColumns"]) -> "NodeColumns":
        """Put the nodes of all parts one after the other."""
        firsts = starts_of([len(part.id) for part in parts]).tolist()
        columns: dict[str, object] = {}
        for name in (field.name for field in fields_of(cls)):
            values = [getattr(part, name) for part in parts]
            if isinstance(values[0], Rows):
                columns[name] = Rows.joined(values)
            elif isinstance(values[0], Counter):
                columns[name] = sum(values, Counter[str]())
            elif isinstance(values[0], dict):
                shifted = zip(firsts[:-1], values, strict=True)
                columns[name] = {first + n: v for first, of in shifted for n, v in of.items()}
            else:
                columns[name] = np.concatenate(values)
        return cls(**columns)  # type: ignore[arg-type]


def read_columns(data: protobuf.Bytes, begin: Ints, end: Ints) -> NodeColumns:
    """Read some nodes; raise `Damaged` for other content."""
    fields, count = protobuf.fields(data, begin, end), len(begin)
    if (old := fields.where(fields.number >= OLD_FIELDS)).number.size:
        what = f"node has a field {old.number[0]}, as in schemas before 0.0.4; convert the trace"
        raise protobuf.Damaged(int(begin[old.message[0]]), what)
    type_ = _spread(fields.only(TYPE, protobuf.VARINT), count, 0)
    names = fields.only(LABEL, protobuf.LENGTH)
    type_[names.message[protobuf.equals(data, names, GROUPS.encode())]] = METADATA
    micros = fields.only(MICROSECONDS, protobuf.VARINT)
    _require_signed("duration_micros", micros, micros.value < 0)
    attributes = _Attributes(data, fields.only(ATTRIBUTE, protobuf.LENGTH), count)
    started = fields.only(START, protobuf.VARINT).value
    return NodeColumns(
        id=_spread(fields.only(ID, protobuf.VARINT), count, 0),
        type=type_,
        duration_micros=_spread(micros, count, 0),
        data=_waits(data, fields.where(fields.number == DATA), count),
        control=_waits(data, fields.where(fields.number == CONTROL), count),
        **{name: attributes.numbers(name) for name in NUMBERS},
        group=attributes.contents("pg_name", (TEXT,), "a text", _text),
        involved=attributes.contents("involved_dim", LISTS, "a list of truth values", _truths),
        inputs=_inputs(data, fields, type_),
        unread=attributes.unread(type_ != METADATA)
        + Counter(start_time_micros=int((started != 0).sum())),
    )


class _Attributes:
    """The attributes of some nodes, chosen by their names."""

    def __init__(self, data: protobuf.Bytes, attributes: protobuf.Fields, count: int) -> None:
        self.data, self.attributes, self.count = data, attributes, count
        self.content = protobuf.fields(data, attributes.begin, attributes.begin + attributes.value)
        self.names = self.content.only(NAME, protobuf.LENGTH)
        self.integers = _integers(data, self.content)

    def numbers(self, name: str) -> Ints:
        """Return the integer of this name for each node, `MISSING` without one."""
        named = self._named(name, self.integers, "a whole number")
        is_above = (named.value < 0) & np.isin(named.number, UNSIGNED)
        _require_signed(name, named, is_above | (named.value == MISSING))
        return _spread(named, self.count, MISSING)

    def contents(
        self, name: str, numbers: tuple[int, ...], kind: str, read: Callable[[bytes], Value]
    ) -> dict[int, Value]:
        """Return what is read from the content of one of some fields, by node."""
        given = np.isin(self.content.number, numbers) & (self.content.wire == protobuf.LENGTH)
        values = self._named(name, self.content.where(given), kind)
        read, found = cache(read), dict[int, Value]()
        for node, begin, content in _contents(self.data, values):
            try:
                found[node] = read(content)
            except (protobuf.Damaged, KeyError):
                raise protobuf.Damaged(begin, f"{name} must be {kind}") from None
        return found

    def unread(self, nodes: Bools) -> Counter[str]:
        """Return how many of the nodes have each attribute that is not read."""
        unread = nodes[self.attributes.message[self.names.message]]
        for name in (*NUMBERS, *TEXTS, *ORIGINS):
            unread &= ~protobuf.equals(self.data, self.names, name.encode())
        left = _contents(self.data, self.names.where(unread))
        return Counter(_text(name) for _, _, name in left)

    def _named(self, name: str, values: protobuf.Fields, kind: str) -> protobuf.Fields:
        """Return the values of the attributes with a name, each with its node as its message."""
        named = self.names.message[protobuf.equals(self.data, self.names, name.encode())]
        chosen = np.zeros(len(self.attributes.message), bool)
        chosen[named] = True
        nodes = self.attributes.message[named]
        twice = np.bincount(nodes, minlength=1) > 1
        if twice.any():
            offset = int(self.attributes.begin[named[nodes == np.argmax(twice)][1]])
            raise protobuf.Damaged(offset, f"duplicate {name} of a node; leave one of them out")
        of_it = values.where(chosen[values.message])
        chosen[of_it.message] = False
        if chosen.any():
            offset = int(self.attributes.begin[int(np.argmax(chosen))])
            raise protobuf.Damaged(offset, f"{name} must be {kind}")
        return replace(of_it, message=self.attributes.message[of_it.message])


def _require_signed(name: str, fields: protobuf.Fields, is_above: Bools) -> None:
    """Raise `Damaged` for a number that an integer of 64 bits with a sign does not hold."""
    if is_above.any():
        first = int(np.argmax(is_above))
        got = int(fields.value[first]) % 2**64
        last_byte = int(fields.begin[first]) - 1
        raise protobuf.Damaged(last_byte, f"{name} must be below 2^63, got {got}")


def _contents(data: protobuf.Bytes, fields: protobuf.Fields) -> Iterator[tuple[int, int, bytes]]:
    """Yield the message, the begin and the content of each field."""
    columns = (fields.message.tolist(), fields.begin.tolist(), fields.value.tolist())
    for message, begin, length in zip(*columns, strict=True):
        yield message, begin, data[begin : begin + length].tobytes()


def _text(content: bytes) -> str:
    return content.decode(errors="replace")


def _truths(content: bytes) -> tuple[bool, ...]:
    """Return truth values, packed or one by one; raise `Damaged` or `KeyError` for others."""
    whole = np.frombuffer(content, np.uint8)
    listed = _waits(whole, protobuf.fields(whole, np.array([0]), np.array([len(content)])), 1)
    return tuple(TRUTHS[value] for value in listed.values.tolist())


def _inputs(data: protobuf.Bytes, fields: protobuf.Fields, type_: Ints) -> dict[int, str]:
    """Return the values that metadata nodes have as inputs, by node."""
    inputs = fields.only(INPUTS, protobuf.LENGTH)
    inputs = inputs.where(type_[inputs.message] == METADATA)
    content = protobuf.fields(data, inputs.begin, inputs.begin + inputs.value)
    values = content.only(VALUES, protobuf.LENGTH)
    of_nodes = replace(values, message=inputs.message[values.message])
    return {node: _text(text) for node, _, text in _contents(data, of_nodes)}


def _spread(fields: protobuf.Fields, count: int, missing: int) -> Ints:
    """Return the value of a field for each message; a repeated field has its last value."""
    values = np.full(count, missing, np.int64)
    values[fields.message] = fields.value
    return values


def _waits(data: protobuf.Bytes, waits: protobuf.Fields, count: int) -> Rows:
    """Return the numbers of a repeated field of each message, packed or one by one."""
    lists, single = waits.where(waits.wire == protobuf.LENGTH), waits.where(waits.wire == 0)
    listed = protobuf.packed(data, lists.begin, lists.value)
    row = np.concatenate([lists.message[listed.row], single.message])
    return Rows.grouped(np.concatenate([listed.values, single.value]), row, count)


def _integers(data: protobuf.Bytes, attributes: protobuf.Fields) -> protobuf.Fields:
    """Return the values that are whole numbers or truth values, without zigzag."""
    number, wire = attributes.number, attributes.wire
    is_whole = (wire == protobuf.VARINT) & np.isin(number, INTEGERS)
    zigzag = attributes.value >> 1 ^ -(attributes.value & 1)
    value = np.where(np.isin(number, ZIGZAG), zigzag, attributes.value)
    for of_kind, (of_wire, form) in FIXED.items():
        fields = np.flatnonzero((number == of_kind) & (wire == of_wire))
        width = np.dtype(form).itemsize
        # A number of fixed size ends where its field begins.
        content = data[attributes.begin[fields, None] - width + np.arange(width)]
        read = content.view(form)[:, 0]
        if "f" in form:
            is_exact = (np.abs(read) < 2**63) & (read == np.trunc(read))
            fields, read = fields[is_exact], read[is_exact]
        value[fields], is_whole[fields] = read.astype(np.int64), True
    return replace(attributes, value=value).where(is_whole)
