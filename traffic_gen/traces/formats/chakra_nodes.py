"""The nodes of Chakra execution traces as columns, from their bytes.

Read are ids, types, dependencies and durations, and the attributes of communication.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import fields as fields_of

import numpy as np

from model.arrays import Bools, Ints
from model.workload.transfers.columns import NONE, Rows
from traffic_gen.traces.formats import protobuf

ID, TYPE, CONTROL, DATA, MICROSECONDS, ATTRIBUTE = 1, 3, 4, 5, 7, 10
NAME, TEXT = 1, 29
PLAIN, ZIGZAG = (7, 9, 11, 13, 27), (15, 17)
NUMBERS = ("comm_type", "comm_size", "comm_dst", "comm_src", "comm_tag", "runtime")


@dataclass(frozen=True)
class NodeColumns:
    """Fields of the nodes, with a value or a row for each node; missing numbers are `NONE`."""

    id: Ints
    type: Ints
    microseconds: Ints
    waits: Rows
    comm_type: Ints
    comm_size: Ints
    comm_dst: Ints
    comm_src: Ints
    comm_tag: Ints
    runtime: Ints
    group: tuple[str | None, ...]

    @classmethod
    def joined(cls, parts: Sequence["NodeColumns"]) -> "NodeColumns":
        """Put the nodes of all parts one after the other."""
        columns: dict[str, object] = {
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields_of(cls)
            if field.name not in ("waits", "group")
        }
        columns["waits"] = Rows.joined([part.waits for part in parts])
        columns["group"] = tuple(name for part in parts for name in part.group)
        return cls(**columns)  # type: ignore[arg-type]


def read_columns(data: protobuf.Bytes, begin: Ints, end: Ints) -> NodeColumns:
    """Read some nodes."""
    fields, count = protobuf.fields(data, begin, end), len(begin)

    def number(field: int, missing: int) -> Ints:
        return _spread(fields.only(field, protobuf.VARINT), count, missing)

    attributes = _Attributes(data, fields.only(ATTRIBUTE, protobuf.LENGTH), count)
    return NodeColumns(
        number(ID, 0), number(TYPE, 0), number(MICROSECONDS, 0),
        _waits(data, fields, count), **attributes.numbers(), group=attributes.text(b"pg_name"),
    )  # fmt: skip


def _spread(fields: protobuf.Fields, count: int, missing: int) -> Ints:
    """Return the value of a field for each message; a repeated field has its last value."""
    values = np.full(count, missing, np.int64)
    values[fields.message] = fields.value
    return values


def _waits(data: protobuf.Bytes, fields: protobuf.Fields, count: int) -> Rows:
    """Return the ids that each node depends on, packed or one by one."""
    waits = fields.where((fields.number == CONTROL) | (fields.number == DATA))
    lists, single = waits.where(waits.wire == protobuf.LENGTH), waits.where(waits.wire == 0)
    listed = protobuf.packed(data, lists.begin, lists.value)
    row = np.concatenate([lists.message[listed.row], single.message])
    return Rows.grouped(np.concatenate([listed.values, single.value]), row, count)


class _Attributes:
    """The attributes of nodes: their names, and their values."""

    def __init__(self, data: protobuf.Bytes, attributes: protobuf.Fields, nodes: int) -> None:
        self._data, self._nodes, self._node = data, nodes, attributes.message
        self._fields = protobuf.fields(data, attributes.begin, attributes.begin + attributes.value)
        self._names = self._fields.only(NAME, protobuf.LENGTH)
        self._numbers = self._integers()
        self._texts = self._fields.only(TEXT, protobuf.LENGTH)

    def _integers(self) -> protobuf.Fields:
        """Return the values that are integers or truth values, without zigzag."""
        fields = self._fields.where(self._fields.wire == protobuf.VARINT)
        fields = fields.where(np.isin(fields.number, (*PLAIN, *ZIGZAG)))
        zigzag = np.isin(fields.number, ZIGZAG)
        value = np.where(zigzag, fields.value >> 1 ^ -(fields.value & 1), fields.value)
        return protobuf.Fields(fields.message, fields.number, fields.wire, value, fields.begin)

    def _named(self, name: bytes) -> Bools:
        """Whether each attribute has a name."""
        names = self._names
        named = np.zeros(len(self._node), bool)
        named[names.message[protobuf.equals(self._data, names, name)]] = True
        return named

    def numbers(self) -> dict[str, Ints]:
        """Return the attributes that are numbers, by name."""
        return {name: self._number(name.encode()) for name in NUMBERS}

    def _number(self, name: bytes) -> Ints:
        """Return the value of an attribute for each node."""
        chosen = self._numbers.where(self._named(name)[self._numbers.message])
        values = np.full(self._nodes, NONE, np.int64)
        values[self._node[chosen.message]] = chosen.value
        return values

    def text(self, name: bytes) -> tuple[str | None, ...]:
        """Return the text of an attribute for each node."""
        chosen = self._texts.where(self._named(name)[self._texts.message])
        texts: list[str | None] = [None] * self._nodes
        ranges = zip(chosen.begin.tolist(), chosen.value.tolist(), strict=True)
        for node, (begin, length) in zip(self._node[chosen.message].tolist(), ranges, strict=True):
            texts[node] = self._data[begin : begin + length].tobytes().decode(errors="replace")
        return tuple(texts)
