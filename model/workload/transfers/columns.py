"""Transfers of a schedule as columns: arrays, which handle a million transfers in no time."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import count, pairwise
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from model.arrays import Bools, Floats, Ints

# Stands for no transfer, in an array of transfers' numbers.
NONE = -1


@dataclass(frozen=True)
class Transfer:
    """Chunks that one GPU sends to another, once the transfers `after` are done.

    `source` and `destination` are ranks. A transfer that the source itself sent is done when its
    receiver has confirmed it, or, for one that cannot overtake it, when it has left; one that the
    source received is done when it has arrived. Chunks replace what the receiver holds, or are
    added to it if `reduce` is set. With `ready`, the source waits until the destination has
    received that transfer and is ready-to-receive (a rendezvous).

    A step of compute stands among the transfers as one of no bytes from a rank to itself, which
    takes `compute_ns` of emulated time. Steps on one `processor` of a rank take turns: of all that
    are ready, the lowest `turn`, else first come, first served. The destination is reached by its
    `lane`.
    """

    id: int
    source: int
    destination: int
    size_bytes: int
    chunks: tuple[int, ...]
    after: tuple[int, ...] = ()
    ready: int | None = None
    reduce: bool = False
    compute_ns: int = 0
    lane: int = 0
    processor: int = NONE
    turn: int = 0

    @property
    def is_compute(self) -> bool:
        """Whether this is a step of compute."""
        return self.source == self.destination


def streams(flows: Iterable[tuple[int, int, int]], rounds: int = 1) -> tuple[Transfer, ...]:
    """Repeat each flow (source, destination, bytes) `rounds` times, each after the one before.

    A transfer starts when its predecessor is confirmed. Numbers follow the order of the flows.
    """
    return tuple(
        Transfer(number, *flow, chunks=(), after=(number - 1,) if number > first else ())
        for first, flow in zip(count(0, rounds), flows)
        for number in range(first, first + rounds)
    )


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of numbers of different lengths: row i is `values[starts[i]:starts[i + 1]]`."""

    values: Ints
    starts: Ints

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> "Rows":
        """Build from sequences."""
        values = [value for row in rows for value in row]
        return cls(np.array(values, np.int64), starts_of([len(row) for row in rows]))

    @classmethod
    def grouped(cls, values: Ints, row: Ints, count: int) -> "Rows":
        """Build `count` rows from values and the row of each; values of a row keep their order."""
        order = np.argsort(row, kind="stable")
        return cls(values[order], starts_of(np.bincount(row, minlength=count)))

    @classmethod
    def of_table(cls, table: Ints, kept: Bools) -> "Rows":
        """Build from the rows of a table, of which only some values are kept."""
        if kept.all():
            return cls(table.ravel(), np.arange(len(table) + 1) * table.shape[1])
        return cls(table[kept], starts_of(np.count_nonzero(kept, axis=1)))

    @classmethod
    def joined(cls, parts: Sequence["Rows"]) -> "Rows":
        """Put the rows of all parts one after the other."""
        values = np.concatenate([part.values for part in parts])
        ends = np.concatenate([part.starts[1:] for part in parts])
        firsts = starts_of([len(part.values) for part in parts])[:-1]
        ends += np.repeat(firsts, [len(part.starts) - 1 for part in parts])
        return cls(values, np.append(0, ends))

    @property
    def lengths(self) -> Ints:
        """The length of every row."""
        return np.diff(self.starts)

    @cached_property
    def row(self) -> Ints:
        """The row of every value."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def at(self, row: int) -> Ints:
        """Return the values of a row."""
        return self.values[self.starts[row] : self.starts[row + 1]]

    def have(self, rows: Ints, values: Ints) -> Bools:
        """Whether each of these values is in its row; the values of a row must be sorted."""
        if not len(self.values):
            return np.zeros(len(rows), bool)
        width = 1 + max(self.values.max(), values.max(initial=0))
        known, wanted = self.row * width + self.values, rows * width + values
        places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        have: Bools = known[places] == wanted
        return have

    def picked(self, which: Ints) -> "Rows":
        """Return these rows, in this order."""
        begins = self.starts[which]
        starts = starts_of(self.starts[which + 1] - begins)
        shifts = np.repeat(begins - starts[:-1], np.diff(starts))
        return Rows(self.values[shifts + np.arange(len(shifts))], starts)

    def sums(self, weights: Ints) -> Ints:
        """Return the sum of the weights of every row's values."""
        totals = np.append(0, np.cumsum(weights[self.values]))
        return np.diff(totals[self.starts])

    def lists(self) -> Iterator[tuple[int, ...]]:
        """Yield every row as a tuple."""
        values, starts = self.values.tolist(), self.starts.tolist()
        for begin, end in pairwise(starts):
            yield tuple(values[begin:end])


def starts_of(lengths: Sequence[int] | Ints) -> Ints:
    """Return where each row of these lengths starts, and the end of the last one."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def occurrences(keys: Ints) -> Ints:
    """Number the elements of each value from 0, in their order."""
    order = np.argsort(keys, kind="stable")
    numbers = np.empty_like(order)
    numbers[order] = np.arange(len(keys)) - np.searchsorted(keys[order], keys[order])
    return numbers


class Levels(NamedTuple):
    """Transfers by their level: one more than the highest level of what they wait for, or 0.

    `order` has the transfers, those of level n from `bounds[n]` to `bounds[n + 1]`; `waits` has the
    places in `order` that each of them waits for.
    """

    order: Ints
    bounds: Ints
    waits: Rows


@dataclass(frozen=True, eq=False)
class Transfers(Sequence[Transfer]):
    """Transfers as columns: a transfer's number is its row; as a sequence, `Transfer` objects.

    `after` is sorted in each row. `ready` is `NONE` where there is no rendezvous, and `processor`
    where a step takes no turn.
    """

    source: Ints
    destination: Ints
    size_bytes: Ints
    chunks: Rows
    after: Rows
    ready: Ints
    reduce: Bools
    compute_ns: Ints
    lane: Ints
    processor: Ints
    turn: Ints

    @classmethod
    def of(cls, transfers: Iterable[Transfer]) -> "Transfers":
        """Build from `Transfer` objects, numbered from 0 in their order."""
        listed = list(transfers)
        return cls(
            source=np.array([t.source for t in listed], np.int64),
            destination=np.array([t.destination for t in listed], np.int64),
            size_bytes=np.array([t.size_bytes for t in listed], np.int64),
            chunks=Rows.of([t.chunks for t in listed]),
            after=Rows.of([sorted(t.after) for t in listed]),
            ready=np.array([NONE if t.ready is None else t.ready for t in listed], np.int64),
            reduce=np.array([t.reduce for t in listed], bool),
            compute_ns=np.array([t.compute_ns for t in listed], np.int64),
            lane=np.array([t.lane for t in listed], np.int64),
            processor=np.array([t.processor for t in listed], np.int64),
            turn=np.array([t.turn for t in listed], np.int64),
        )

    @classmethod
    def joined(cls, parts: Sequence["Transfers"]) -> "Transfers":
        """Put the transfers of all parts one after the other; their numbers must fit already."""
        if len(parts) == 1:
            return parts[0]
        columns: dict[str, Any] = {}
        for column in fields(cls):
            values = [getattr(part, column.name) for part in parts]
            is_rows = isinstance(values[0], Rows)
            columns[column.name] = Rows.joined(values) if is_rows else np.concatenate(values)
        return cls(**columns)

    def placed(self, ranks: Ints, first: int, first_chunk: int) -> "Transfers":
        """Return these transfers between other ranks, numbered from `first` and `first_chunk`."""
        return replace(
            self,
            source=ranks[self.source],
            destination=ranks[self.destination],
            chunks=Rows(self.chunks.values + first_chunk, self.chunks.starts),
            after=Rows(self.after.values + first, self.after.starts),
            ready=np.where(self.ready == NONE, NONE, self.ready + first),
        )

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[Transfer]:
        return iter(self.objects)

    @overload
    def __getitem__(self, place: int) -> Transfer: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Transfer, ...]: ...
    def __getitem__(self, place: int | slice) -> Transfer | tuple[Transfer, ...]:
        return self.objects[place]

    @cached_property
    def objects(self) -> tuple[Transfer, ...]:
        """All transfers as objects, for code that handles one at a time."""
        columns = (getattr(self, column.name) for column in fields(self))
        lists = [c.lists() if isinstance(c, Rows) else c.tolist() for c in columns]
        return tuple(
            Transfer(number, source, to, size, chunks, after, None if ready < 0 else ready, *more)
            for number, source, to, size, chunks, after, ready, *more in zip(
                range(len(self)), *lists, strict=True
            )
        )

    @property
    def is_compute(self) -> Bools:
        """Whether each is a step of compute."""
        return np.equal(self.source, self.destination)

    @cached_property
    def dependencies(self) -> tuple[Ints, Ints, Bools]:
        """All dependencies, sorted: earlier and later, and whether each is a rendezvous."""
        # There may be tens of millions: as numbers, in one array, they are sorted in a fraction of
        # the time.
        after, meets, bits = self.after, np.flatnonzero(self.ready != NONE), len(self).bit_length()
        codes = np.concatenate([after.values, self.ready[meets]])
        waits, meetings = codes[: len(after.values)], codes[len(after.values) :]
        codes <<= bits
        # Not `after.row`, which would be kept.
        waits |= np.repeat(np.arange(len(self)), after.lengths)
        meetings |= meets
        codes <<= 1
        meetings |= 1
        codes.sort()
        meeting = (codes & 1).astype(bool)
        codes >>= 1
        later = codes & ((1 << bits) - 1)
        codes >>= bits
        return codes, later, meeting

    @cached_property
    def waits(self) -> Rows:
        """All dependencies of each transfer: those of `after`, and its rendezvous."""
        earlier, later, meeting = self.dependencies
        return Rows.grouped(earlier, later, len(self)) if meeting.any() else self.after

    @cached_property
    def levels(self) -> Levels:
        """The transfers by their level in `waits`, which are transfers of lower numbers."""
        waits, level = self.waits, [0] * len(self)
        # Of an array's memory, numbers are taken one by one: a list of all takes twice the time.
        for later, earlier in zip(waits.row.data, waits.values.data, strict=True):
            if level[later] <= level[earlier]:
                level[later] = level[earlier] + 1
        levels = np.array(level, np.int64)
        order = np.argsort(levels, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        placed = waits.picked(order)
        bounds = starts_of(np.bincount(levels))
        return Levels(order, bounds, Rows(place[placed.values], placed.starts))

    @property
    def longest_chain(self) -> int:
        """The length of the longest chain of dependent steps."""
        return len(self.levels.bounds) - 1

    def ends_s(self, lasts_s: Floats) -> Floats:
        """Return the end of each step that lasts `lasts_s`, and begins when those in `waits` end.

        Seconds since the start.
        """
        levels, end_s = self.levels, np.empty(len(self))
        values, starts, ends = levels.waits.values, levels.waits.starts, lasts_s[levels.order]
        for first, end in pairwise(levels.bounds[1:].tolist()):
            begin, rows = starts[first], starts[first:end]
            ends[first:end] += np.maximum.reduceat(ends[values[begin : starts[end]]], rows - begin)
        end_s[levels.order] = ends
        return end_s

    def begins_s(self, end_s: Floats) -> Floats:
        """Return the earliest begin of each step: the end of its last dependency, or 0."""
        begin_s = np.zeros(len(self))
        np.maximum.at(begin_s, self.waits.row, end_s[self.waits.values])
        return begin_s

    def last_chain(self, end_s: Floats) -> Iterator[int]:
        """Yield the step that ends last, of what it waits for the one that ends last, and so on."""
        step = int(end_s.argmax())
        while step != NONE:
            yield step
            waits = self.after.at(step)
            if self.ready[step] != NONE:
                waits = np.append(waits, self.ready[step])
            step = int(waits[end_s[waits].argmax()]) if len(waits) else NONE

    def fingerprint(self, *names: object) -> str:
        """Return a digest of the transfers and of the names of their work."""
        hashed = hashlib.sha256(repr(names).encode())
        for column in self.columns():
            hashed.update(np.ascontiguousarray(column).data)
        return hashed.hexdigest()[:16]

    def columns(self) -> Iterator[NDArray[np.generic]]:
        """Yield all arrays that make up the transfers, but for lanes and processors of no use."""
        yield from (self.source, self.destination, self.size_bytes, self.ready, self.reduce)
        yield self.compute_ns
        if self.lane.any():
            yield self.lane
        if (self.processor != NONE).any():
            yield from (self.processor, self.turn)
        for rows in (self.chunks, self.after):
            yield from (rows.values, rows.starts)
