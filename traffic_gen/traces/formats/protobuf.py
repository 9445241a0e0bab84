"""Protocol buffers on the wire, as columns: the fields of many messages are read at once.

https://protobuf.dev/programming-guides/encoding. A message is a range of bytes; its fields are read
one after the other, the n-th fields of all messages together.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.arrays import Bools, Ints
from model.workload.transfers.columns import Rows, starts_of

Bytes = NDArray[np.uint8]
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
IS_KNOWN = np.isin(np.arange(8), (VARINT, FIXED64, LENGTH, FIXED32))
LONGEST_VARINT = 10
# Limit of one message; a packed list is one field.
MOST_FIELDS = 20_000
# Of messages that are read together, and bytes of their lists: a field takes 40 bytes of memory or
# more, and a byte of a list 67 for a moment.
MOST_FIELDS_TOGETHER, MOST_LIST_BYTES = 2**23, 20_000_000


class Damaged(Exception):
    """Bytes that are not a message, and the offset of the contradiction."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(what)
        self.offset, self.what = offset, what


@dataclass(frozen=True)
class Fields:
    """Fields of messages: the message of each, its number, its wire type and its value.

    The value of a field with a length is that length; `begin` is where its content is.
    """

    message: Ints
    number: Ints
    wire: Ints
    value: Ints
    begin: Ints

    def only(self, number: int, wire: int) -> "Fields":
        """Return the fields with this number and this wire type."""
        return self.where((self.number == number) & (self.wire == wire))

    def where(self, chosen: Bools) -> "Fields":
        """Return the chosen fields."""
        columns = (self.message, self.number, self.wire, self.value, self.begin)
        return Fields(*(column[chosen] for column in columns))


def varint(data: bytes, offset: int) -> tuple[int, int]:
    """Read one number without sign; return it, and the offset behind it."""
    value = 0
    for place in range(LONGEST_VARINT):
        if offset + place >= len(data):
            break
        byte = data[offset + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, offset + place + 1
    raise Damaged(offset, "must be a number of at most 10 bytes, the last one below 128")


def fields(data: Bytes, begin: Ints, end: Ints) -> Fields:
    """Read the fields of the messages at these ranges; raise `Damaged` for other content."""
    message, cursor = np.arange(len(begin)), begin
    parts, count = [(np.empty(0, np.int64),) * 5], 0
    while len(message := message[open_ := cursor < end]):
        cursor, end = cursor[open_], end[open_]
        if len(parts) > MOST_FIELDS:
            raise Damaged(int(cursor[0]), f"must have at most {MOST_FIELDS} fields")
        count += len(message)
        if count > MOST_FIELDS_TOGETHER:
            what = f"messages must have at most {MOST_FIELDS_TOGETHER} fields together"
            raise Damaged(int(cursor[0]), what)
        key, after = _varints(data, cursor, end)
        wire, (value, after) = key & 7, _values(data, key & 7, after, end, cursor)
        parts.append((message, key >> 3, wire, value, after - np.where(wire == LENGTH, value, 0)))
        cursor = after
    return Fields(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _values(data: Bytes, wire: Ints, cursor: Ints, end: Ints, at: Ints) -> tuple[Ints, Ints]:
    """Read the value of a field of each message; return the values, and where they end."""
    known = IS_KNOWN[wire]
    if not known.all():
        raise Damaged(int(at[~known][0]), f"unknown wire type {wire[~known][0]}")
    value, after = np.zeros(len(wire), np.int64), cursor.copy()
    counted = (wire == VARINT) | (wire == LENGTH)
    value[counted], after[counted] = _varints(data, cursor[counted], end[counted])
    left = end - after
    width = np.select([wire == LENGTH, wire == FIXED64, wire == FIXED32], [value, 8, 4], 0)
    if (wrong := (width < 0) | (width > left)).any():
        raise Damaged(int(at[wrong][0]), "a field is longer than its message")
    return value, after + width


def _varints(data: Bytes, cursor: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Read a number at each offset, before its end; return the numbers, and where they end."""
    value, after = np.zeros(len(cursor), np.uint64), cursor.copy()
    going = np.arange(len(cursor))
    for place in range(LONGEST_VARINT):
        # All have a first byte, and most have no second one.
        which = going if place else slice(None)
        if (beyond := after[which] >= end[which]).any():
            raise Damaged(int(cursor[going[beyond][0]]), "ends within a number")
        byte = data[after[which]]
        value[which] |= (byte & np.uint64(0x7F)) << np.uint64(7 * place)
        after[which] += 1
        going = going[byte >= 0x80]
        if not len(going):
            return value.view(np.int64), after
    raise Damaged(int(cursor[going[0]]), "must be a number of at most 10 bytes")


def packed(data: Bytes, begin: Ints, length: Ints) -> Rows:
    """Read the numbers in each of these ranges, which contain nothing else."""
    if length.sum() > MOST_LIST_BYTES:
        what = f"lists must have at most {MOST_LIST_BYTES} bytes together"
        raise Damaged(int(begin[0]), what)
    place = np.repeat(begin - np.cumsum(length) + length, length) + np.arange(length.sum())
    content, row = data[place], np.repeat(np.arange(len(begin)), length)
    last = content < 0x80
    starts = np.flatnonzero(np.append(True, last[:-1])) if len(content) else place[:0]
    sizes = np.diff(np.append(starts, len(content)))
    straddles = (~last[:-1] & (row[1:] != row[:-1])).any()
    if len(content) and (not last[-1] or (sizes > LONGEST_VARINT).any() or straddles):
        raise Damaged(int(begin[0]), "has a list with a damaged number")
    shift = (np.arange(len(content)) - np.repeat(starts, sizes)).astype(np.uint64)
    parts = (content & 0x7F).astype(np.uint64) << (shift * np.uint64(7))
    values = np.add.reduceat(parts, starts) if len(starts) else parts
    counts = np.bincount(row[starts], minlength=len(begin))
    return Rows(values.view(np.int64), starts_of(counts))


def equals(data: Bytes, texts: Fields, wanted: bytes) -> Bools:
    """Whether each of these fields is a certain text."""
    left = np.flatnonzero(texts.value == len(wanted))
    # Names of attributes begin alike: the last byte tells most of them apart.
    for place in reversed(range(len(wanted))):
        left = left[data[texts.begin[left] + place] == wanted[place]]
    equal = np.zeros(len(texts.value), bool)
    equal[left] = True
    return equal
