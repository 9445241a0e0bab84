"""Schedules: transfers with dependencies, and the proof that they do what the collective asks.

A buffer is cut into chunks. A schedule says which GPU sends which chunks to which other GPU, and
after which transfers. It is executed symbolically when it is built, so a wrong schedule cannot be
built (the idea of a postcondition apart from the algorithm is msccl's).
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import chain


class Collective(StrEnum):
    """Collective operations of the GPUs."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"


@dataclass(frozen=True)
class Transfer:
    """Chunks that one GPU sends to another, once the transfers `after` are done.

    `source` and `destination` are ranks. A transfer that the source itself sent is done when its
    receiver has confirmed it; one that the source received is done when it has arrived. Chunks
    replace what the receiver holds, or are added to it if `reduce` is set. With `ready`, the source
    waits until the destination has received that transfer and is ready-to-receive (a rendezvous).
    """

    id: int
    source: int
    destination: int
    size_bytes: int
    chunks: tuple[int, ...]
    after: tuple[int, ...] = ()
    ready: int | None = None
    reduce: bool = False


class ScheduleError(ValueError):
    """A schedule does not do what its collective asks; the message says where."""


@dataclass(frozen=True)
class Schedule:
    """The transfers of one collective over `gpus` ranks, numbered from 0 in order of dependency.

    `size_bytes` is the collective's size as nccl-tests count it: the buffer for AllReduce, the
    gathered buffer for AllGather, the whole input for ReduceScatter, all that a rank holds for
    all-to-all. Every transfer carries whole chunks of `chunk_bytes` each.
    """

    collective: Collective
    algorithm: str
    gpus: int
    size_bytes: int
    chunk_bytes: int
    transfers: tuple[Transfer, ...]

    def __post_init__(self) -> None:
        for index, transfer in enumerate(self.transfers):
            _check_transfer(self, index, transfer)
        check_postcondition(self.collective, self.gpus, execute(self))

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the schedule's contents."""
        text = repr((self.collective, self.algorithm, self.gpus, self.chunk_bytes, self.transfers))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _check_transfer(schedule: Schedule, index: int, transfer: Transfer) -> None:
    where = f"transfer {transfer.id}"
    if transfer.id != index:
        raise ScheduleError(f"{where}: stands at place {index}")
    if transfer.source == transfer.destination:
        raise ScheduleError(f"{where}: GPU {transfer.source} sends to itself")
    if transfer.size_bytes != len(transfer.chunks) * schedule.chunk_bytes:
        raise ScheduleError(f"{where}: {transfer.size_bytes} bytes are not its chunks")
    for other in transfer.after:
        if not 0 <= other < index:
            raise ScheduleError(f"{where}: depends on {other}, which does not come before it")
        earlier = schedule.transfers[other]
        if transfer.source not in (earlier.source, earlier.destination):
            raise ScheduleError(f"{where}: GPU {transfer.source} cannot see {other} end")
    if transfer.ready is not None:
        ready = schedule.transfers[transfer.ready]
        if ready.id >= index or ready.destination != transfer.destination:
            raise ScheduleError(
                f"{where}: {ready.id} does not make its destination ready-to-receive"
            )


# The ranks whose contributions a chunk holds: bit r is set for rank r.
Contributions = int
Holdings = list[dict[int, Contributions]]


def execute(schedule: Schedule) -> Holdings:
    """Run the schedule symbolically: return each rank's chunks with their contributions.

    Raises `ScheduleError` unless the dependencies alone put every delivery of a chunk to a rank
    before the rank sends it on: real transfers do not run in the order of their numbers.
    """
    state = initial_holdings(schedule.collective, schedule.gpus)
    deliveries: dict[tuple[int, int], list[int]] = {}
    for transfer in schedule.transfers:
        source, destination = state[transfer.source], state[transfer.destination]
        held = (deliveries.get((transfer.source, chunk), ()) for chunk in transfer.chunks)
        _check_follows(schedule, transfer, set(chain.from_iterable(held)))
        for chunk in transfer.chunks:
            destination[chunk] = _delivered(transfer, chunk, source, destination)
            received = deliveries.setdefault((transfer.destination, chunk), [])
            if not transfer.reduce:
                received.clear()  # it is replaced: what was there before no longer matters
            received.append(transfer.id)
    return state


def _check_follows(schedule: Schedule, transfer: Transfer, deliveries: set[int]) -> None:
    """Raise `ScheduleError` unless `transfer` depends on all `deliveries`, directly or not."""
    waiting, seen = list(transfer.after), set(transfer.after)
    missing = deliveries - seen
    earliest = min(missing, default=0)
    while missing:
        if not waiting:
            raise ScheduleError(
                f"transfer {transfer.id}: does not wait for {min(missing)}, whose data it sends"
            )
        after = schedule.transfers[waiting.pop()].after
        earlier = {id for id in after if id >= earliest} - seen
        seen |= earlier
        missing -= earlier
        waiting.extend(earlier)


def _delivered(
    transfer: Transfer,
    chunk: int,
    source: Mapping[int, Contributions],
    destination: Mapping[int, Contributions],
) -> Contributions:
    if chunk not in source:
        raise ScheduleError(f"transfer {transfer.id}: sender does not hold chunk {chunk}")
    if not transfer.reduce:
        return source[chunk]
    held = destination.get(chunk, 0)
    if held & source[chunk]:
        raise ScheduleError(f"transfer {transfer.id}: chunk {chunk} is added twice")
    return held | source[chunk]


def pair_chunk(gpus: int, source: int, destination: int) -> int:
    """The chunk of an all-to-all that `source` has for `destination`."""
    return source * gpus + destination


def initial_holdings(collective: Collective, gpus: int) -> Holdings:
    """What every rank holds initially: its own contribution to each chunk that it has."""
    return [
        dict.fromkeys(initial_chunks(collective, gpus, rank), 1 << rank) for rank in range(gpus)
    ]


def initial_chunks(collective: Collective, gpus: int, rank: int) -> Iterable[int]:
    """The chunks that a rank holds initially."""
    match collective:
        case Collective.ALL_GATHER:
            return (rank,)
        case Collective.ALL_TO_ALL:
            return range(rank * gpus, (rank + 1) * gpus)
        case Collective.ALL_REDUCE | Collective.REDUCE_SCATTER:
            return range(gpus)


def wanted(collective: Collective, gpus: int, rank: int) -> dict[int, Contributions]:
    """The chunks that a rank must hold in the end, with their contributions."""
    everyone = (1 << gpus) - 1
    match collective:
        case Collective.ALL_REDUCE:
            return dict.fromkeys(range(gpus), everyone)
        case Collective.REDUCE_SCATTER:
            return {rank: everyone}
        case Collective.ALL_GATHER:
            return {owner: 1 << owner for owner in range(gpus)}
        case Collective.ALL_TO_ALL:
            return {pair_chunk(gpus, s, rank): 1 << s for s in range(gpus)}


def check_postcondition(collective: Collective, gpus: int, holdings: Holdings) -> None:
    """Raise `ScheduleError` unless every rank holds what the collective promises."""
    for rank in range(gpus):
        for chunk, contributions in wanted(collective, gpus, rank).items():
            held = holdings[rank].get(chunk, 0)
            if held != contributions:
                raise ScheduleError(
                    f"{collective}: in the end rank {rank} holds chunk {chunk} with the "
                    f"contributions {held:b}, not {contributions:b}"
                )
