"""Chakra execution traces as their writers encode them: fields of `et_def.proto`, by hand."""

from collections.abc import Sequence

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
INT32, INT64, UINT64, BOOL = 7, 9, 13, 27
FIELD_OF = {"int32": INT32, "int64": INT64, "uint64": UINT64, "bool": BOOL}


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
) -> bytes:
    """A node behind its length; proto3 writes no zeros."""
    return framed(
        (number(1, id_) if id_ else b"")
        + content(2, f"node {id_}")
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
