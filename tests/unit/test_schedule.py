"""Schedules fulfill their collective, and invalid schedules are refused."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from model.workload.collective import (
    EVERYONE,
    ROOT,
    Collective,
    contributor,
    initial_chunks,
    sliced,
    wanted_chunks,
)
from model.workload.proof import ScheduleError
from model.workload.schedule import Schedule
from model.workload.transfers import Transfer, Transfers
from tests.unit.fabrics import assume_accepted
from traffic_gen.workloads.collectives import ALGORITHMS, ELEMENT_BYTES, build_schedule

NAMED = st.sampled_from(sorted(ALGORITHMS))
SIZES = st.integers(1, 10_000)


@given(NAMED, st.integers(1, 5), st.integers(1, 5), SIZES)
def test_every_algorithm_reaches_its_postcondition(
    named: tuple[Collective, str], domains: int, domain_size: int, size: int
) -> None:
    if domains * domain_size == 1:
        return
    assume_accepted(named, domains, domain_size)
    schedule = build_schedule(*named, domains, domain_size, size)
    assert schedule.size_bytes >= size
    assert schedule.size_bytes - size < schedule.gpus * schedule.slices * ELEMENT_BYTES
    assert schedule.chunk_bytes % ELEMENT_BYTES == 0


@given(NAMED, st.integers(2, 4), st.integers(2, 4), st.data())
def test_a_schedule_without_one_of_its_transfers_is_refused(
    named: tuple[Collective, str], domains: int, domain_size: int, data: st.DataObject
) -> None:
    assume_accepted(named, domains, domain_size)
    schedule = build_schedule(*named, domains, domain_size, 1000)
    lost = data.draw(st.integers(0, len(schedule.transfers) - 1))
    # The root of a Broadcast has everything before the first transfer.
    to_root = schedule.transfers[lost].destination == ROOT
    assume(not (named[0] is Collective.BROADCAST and to_root))
    with pytest.raises(ScheduleError, match=r"does not hold|in the end rank"):
        replace(schedule, transfers=Transfers.of(without(schedule, lost)))


def without(schedule: Schedule, lost: int) -> Iterator[Transfer]:
    """Yield all transfers but `lost`, renumbered; its dependents inherit its dependencies."""
    gone = schedule.transfers[lost]
    for transfer in schedule.transfers:
        if transfer.id != lost:
            after = {*transfer.after}
            if lost in after:
                after = (after - {lost}) | set(gone.after)
            source = transfer.source
            visible = [
                a
                for a in after
                if source in (schedule.transfers[a].source, schedule.transfers[a].destination)
            ]
            yield replace(
                transfer,
                id=transfer.id - (transfer.id > lost),
                after=tuple(sorted(a - (a > lost) for a in visible)),
                ready=None,
            )


@given(NAMED, st.integers(2, 4), st.integers(1, 3), st.data())
def test_the_proof_says_what_an_execution_one_by_one_says(
    named: tuple[Collective, str], domains: int, domain_size: int, data: st.DataObject
) -> None:
    """Also for a transfer without some of its dependencies, with another chunk, or not added."""
    assume_accepted(named, domains, domain_size)
    schedule = build_schedule(*named, domains, domain_size, 1000)
    transfers = list(schedule.transfers)
    number = data.draw(st.integers(0, len(transfers) - 1))
    one = transfers[number]
    after = data.draw(st.sets(st.sampled_from(one.after))) if one.after else set()
    chunks = data.draw(st.sets(st.sampled_from(one.chunks), min_size=1).map(tuple))
    reduce = data.draw(st.booleans())
    size = one.size_bytes // len(one.chunks) * len(chunks)
    transfers[number] = replace(
        one, after=tuple(after), chunks=chunks, reduce=reduce, size_bytes=size
    )
    try:
        replace(schedule, transfers=Transfers.of(transfers))
    except ScheduleError:
        assert not holds(schedule, transfers)
    else:
        assert holds(schedule, transfers)


def holds(schedule: Schedule, transfers: list[Transfer]) -> bool:
    """Execute transfers one by one; return whether they do what the schedule's collective asks."""
    collective, gpus, slices = schedule.collective, schedule.gpus, schedule.slices
    held = [
        {chunk: {rank} for chunk in sliced(initial_chunks(collective, gpus, rank), slices).tolist()}
        for rank in range(gpus)
    ]
    delivered: dict[tuple[int, int], set[int]] = {}
    before: list[set[int]] = []
    for transfer in transfers:
        before.append({a for after in transfer.after for a in (after, *before[after])})
        for chunk in transfer.chunks:
            source, destination = held[transfer.source], held[transfer.destination]
            if chunk not in source:
                return False
            if not delivered.get((transfer.source, chunk), set()) <= before[-1]:
                return False
            kept = destination.get(chunk, set()) if transfer.reduce else set()
            if kept & source[chunk]:
                return False
            destination[chunk] = kept | source[chunk]
            others = delivered.get((transfer.destination, chunk), set()) if transfer.reduce else ()
            delivered[transfer.destination, chunk] = {transfer.id, *others}
    for rank in range(gpus):
        chunks = sliced(wanted_chunks(collective, gpus, rank), slices)
        promised = contributor(collective, gpus, chunks // slices)
        for chunk, only in zip(chunks, promised, strict=True):
            everyone = set(range(gpus))
            if held[rank].get(int(chunk)) != (everyone if only == EVERYONE else {int(only)}):
                return False
    return True


def test_a_chunk_that_a_transfer_carries_twice_is_refused() -> None:
    schedule = hierarchical()
    one = schedule.transfers[0]
    chunks = (one.chunks[0], *one.chunks[:-1], one.chunks[0])
    size = len(chunks) * schedule.chunk_bytes
    with pytest.raises(ScheduleError, match=f"carries chunk {one.chunks[0]} twice"):
        changed(schedule, 0, chunks=chunks, size_bytes=size)


def test_more_chunks_than_can_be_numbered_are_refused() -> None:
    schedule = hierarchical()
    with pytest.raises(ScheduleError, match="are more than can be proved"):
        changed(schedule, 0, chunks=(1 << 58,), size_bytes=schedule.chunk_bytes)


def hierarchical() -> Schedule:
    return build_schedule(Collective.ALL_REDUCE, "hierarchical", 2, 2, 1000)


def changed(schedule: Schedule, number: int, **changes: object) -> Schedule:
    transfers = list(schedule.transfers)
    transfers[number] = replace(transfers[number], **changes)  # type: ignore[arg-type]
    return replace(schedule, transfers=Transfers.of(transfers))


def test_data_that_is_sent_before_it_has_arrived_is_refused() -> None:
    schedule = hierarchical()
    on_the_rail = next(t.id for t in schedule.transfers if t.destination - t.source == 2)
    with pytest.raises(ScheduleError, match="does not wait"):
        changed(schedule, on_the_rail, after=())


def test_a_contribution_that_is_added_twice_is_refused() -> None:
    schedule = build_schedule(Collective.REDUCE_SCATTER, "ring", 2, 1, 1000)
    again = replace(schedule.transfers[0], id=len(schedule.transfers))
    with pytest.raises(ScheduleError, match="added twice"):
        replace(schedule, transfers=Transfers.of((*schedule.transfers, again)))


def test_a_dependency_that_the_sender_cannot_see_is_refused() -> None:
    schedule = build_schedule(Collective.ALL_TO_ALL, "direct", 3, 1, 1000)
    stranger = next(t.id for t in schedule.transfers[1:3] if 0 not in (t.source, t.destination))
    last = max(t.id for t in schedule.transfers if t.source == 0)
    with pytest.raises(ScheduleError, match="cannot see"):
        changed(schedule, last, after=(stranger,))


def test_only_what_the_destination_receives_can_make_it_ready() -> None:
    schedule = build_schedule(Collective.ALL_TO_ALL, "direct", 3, 1, 1000)
    last = schedule.transfers[-1]
    stranger = next(t.id for t in schedule.transfers if t.destination != last.destination)
    with pytest.raises(ScheduleError, match="ready-to-receive"):
        changed(schedule, last.id, ready=stranger)


def test_a_gpu_that_sends_to_itself_is_refused() -> None:
    with pytest.raises(ScheduleError, match="sends to itself"):
        changed(hierarchical(), 0, destination=0)


def test_the_digest_tells_schedules_apart() -> None:
    one, same = hierarchical(), hierarchical()
    other = build_schedule(Collective.ALL_REDUCE, "ring", 2, 2, 1000)
    assert one.digest == same.digest != other.digest


def test_pairwise_steps_have_one_sender_for_each_receiver() -> None:
    """A receiver has at most one transfer under way on its HB link, and one on its NIC."""
    schedule = build_schedule(Collective.ALL_TO_ALL, "direct", 4, 4, 1000)
    by_receiver: dict[tuple[int, bool], list[Transfer]] = {}
    for transfer in schedule.transfers:
        within = transfer.source // 4 == transfer.destination // 4
        by_receiver.setdefault((transfer.destination, within), []).append(transfer)
    for received in by_receiver.values():
        for earlier, later in itertools.pairwise(received):
            assert later.ready == earlier.id
