"""The nodes of Chakra execution traces as columns, from their bytes.

Read are ids, types, dependencies and durations, and the attributes of communication.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as fields_of

import numpy as np

from model.arrays import Ints
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

    attributes = fields.only(ATTRIBUTE, protobuf.LENGTH)
    content = protobuf.fields(data, attributes.begin, attributes.begin + attributes.value)
    numbers, texts = _integers(content), content.only(TEXT, protobuf.LENGTH)

    def named(name: str, values: protobuf.Fields) -> protobuf.Fields:
        """The values of the attributes with a name, each with its node in place of its message."""
        names = content.only(NAME, protobuf.LENGTH)
        chosen = np.zeros(len(attributes.message), bool)
        chosen[names.message[protobuf.equals(data, names, name.encode())]] = True
        of_it = values.where(chosen[values.message])
        return replace(of_it, message=attributes.message[of_it.message])

    return NodeColumns(
        number(ID, 0), number(TYPE, 0), number(MICROSECONDS, 0), _waits(data, fields, count),
        **{name: _spread(named(name, numbers), count, NONE) for name in NUMBERS},
        group=_texts(data, named("pg_name", texts), count),
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


def _integers(attributes: protobuf.Fields) -> protobuf.Fields:
    """Return the values that are integers or truth values, without zigzag."""
    fields = attributes.where(attributes.wire == protobuf.VARINT)
    fields = fields.where(np.isin(fields.number, (*PLAIN, *ZIGZAG)))
    zigzag = np.isin(fields.number, ZIGZAG)
    value = np.where(zigzag, fields.value >> 1 ^ -(fields.value & 1), fields.value)
    return replace(fields, value=value)


def _texts(data: protobuf.Bytes, fields: protobuf.Fields, count: int) -> tuple[str | None, ...]:
    """Return the text of a field for each message."""
    texts: list[str | None] = [None] * count
    ranges = zip(fields.begin.tolist(), fields.value.tolist(), strict=True)
    for node, (begin, length) in zip(fields.message.tolist(), ranges, strict=True):
        texts[node] = data[begin : begin + length].tobytes().decode(errors="replace")
    return tuple(texts)
