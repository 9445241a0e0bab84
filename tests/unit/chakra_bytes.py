"""Chakra execution traces as their writers encode them: fields of `et_def.proto`, by hand; JSON."""

import json
import struct
from collections.abc import Sequence

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
INT32, INT64, UINT64, BOOL = 7, 9, 13, 27
FIELD_OF = {"int32": INT32, "int64": INT64, "uint64": UINT64, "bool": BOOL}
# The field, the wire type and the form of numbers of a fixed size.
FIXED = {
    **{"double": (3, 1, "<d"), "float": (5, 5, "<f")},
    **{"fixed32": (19, 5, "<I"), "fixed64": (21, 1, "<Q")},
    **{"sfixed32": (23, 5, "<i"), "sfixed64": (25, 1, "<q")},
}


def varint(value: int) -> bytes:
    low, rest = value & 0x7F, (value & 2**64 - 1) >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def framed(message: bytes) -> bytes:
    return varint(len(message)) + message


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def content(field: int, inner: bytes | str) -> bytes:
    return varint(field << 3 | 2) + framed(inner if isinstance(inner, bytes) else inner.encode())


def attribute(name: str, value: int | str | Sequence[bool], kind: str = "int64") -> bytes:
    if isinstance(value, str):
        return content(10, content(1, name) + content(29, value))
    if isinstance(value, int):
        return content(10, content(1, name) + number(FIELD_OF[kind], value))
    return content(10, content(1, name) + content(28, content(1, bytes(value))))


def fixed(name: str, value: float, kind: str) -> bytes:
    """An attribute whose number has a fixed size."""
    field, wire, form = FIXED[kind]
    return content(10, content(1, name) + varint(field << 3 | wire) + struct.pack(form, value))


def metadata(version: str = "", **attributes: str) -> bytes:
    """The first message of a file."""
    named = (content(1, name) + content(29, text) for name, text in attributes.items())
    inner = b"".join(content(2, one) for one in named)
    return framed((content(1, version) if version else b"") + inner)


def node(
    id_: int,
    type_: int,
    *attributes: bytes,
    data: Sequence[int] = (),
    control: Sequence[int] = (),
    micros: int = 0,
    inputs: str = "",
    name: str = "",
) -> bytes:
    """A node behind its length; proto3 writes no zeros."""
    return framed(
        (number(1, id_) if id_ else b"")
        + content(2, name or f"node {id_}")
        + (number(3, type_) if type_ else b"")
        + (content(4, b"".join(map(varint, control))) if control else b"")
        + (content(5, b"".join(map(varint, data))) if data else b"")
        + (number(7, micros) if micros else b"")
        + (content(8, content(1, inputs)) if inputs else b"")
        + b"".join(attributes)
    )


def collective(
    id_: int,
    comm_type: int,
    size_bytes: int,
    *attributes: bytes,
    data: Sequence[int] = (),
    control: Sequence[int] = (),
) -> bytes:
    """A collective operation with its type and size."""
    known = attribute("comm_type", comm_type), attribute("comm_size", size_bytes)
    return node(id_, COLLECTIVE, *known, *attributes, data=data, control=control)


def jsonized(rank: int) -> str:
    """A file in JSON as protobuf writes it."""
    group = [{"name": "pg_name", "stringVal": str(rank % 2)}]
    dims = {"name": "involved_dim", "boolList": {"values": [True, True]}}
    size = {"name": "comm_size", "int64Val": "1024"}
    nodes = [
        {"id": "1", "type": "COMP_NODE", "durationMicros": "5", "ctrlDeps": ["7"]},
        {
            "id": "2", "name": "x", "type": "COMM_COLL_NODE", "dataDeps": ["1"],
            "attr": [{"name": "comm_type", "int64Val": "7"}, size, dims, *group],
        },
    ]  # fmt: skip
    metadata_ = {"attr": [{"name": "schema", "stringVal": "1.0"}]}
    return "".join(json.dumps(one, indent=2) for one in (metadata_, *nodes))


def fed(rank: int) -> str:
    """A file in JSON for MLCommons' feeder."""
    collective_ = {
        "Id": 2, "Name": "y", "NodeType": COLLECTIVE, "is_cpu_op": False, "data_deps": [1],
        "comm_type": 7, "comm_size": 1024, "pg_name": rank % 2,
    }  # fmt: skip
    compute = {"Id": 1, "Name": "x", "NodeType": COMPUTE, "runtime": 5.0, "ctrl_deps": [7]}
    return json.dumps({"workload_graph": [compute, collective_]})


def symbolic_json(rank: int) -> str:
    """A file in JSON of the symbolic tensor graph."""
    compute = {"id": 1, "node_type": "comp_node", "runtime": 5, "ctrl_deps": [7]}
    both = {"node_type": "coll_comm_node", "comm_type": "REDUCE_SCATTER", "comm_size": 1024}
    return json.dumps(
        {"nodes": [compute, {"id": 2, **both, "comm_group": rank % 2, "data_deps": [1]}]}
    )
