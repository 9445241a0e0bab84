"""Schedules fulfill their collective, and invalid schedules are refused."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.workload.schedule import Collective, Schedule, ScheduleError, Transfer
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
    assert schedule.size_bytes - size < schedule.gpus * ELEMENT_BYTES
    assert schedule.chunk_bytes % ELEMENT_BYTES == 0


@given(NAMED, st.integers(2, 4), st.integers(2, 4), st.data())
def test_a_schedule_without_one_of_its_transfers_is_refused(
    named: tuple[Collective, str], domains: int, domain_size: int, data: st.DataObject
) -> None:
    assume_accepted(named, domains, domain_size)
    schedule = build_schedule(*named, domains, domain_size, 1000)
    lost = data.draw(st.integers(0, len(schedule.transfers) - 1))
    with pytest.raises(ScheduleError, match=r"does not hold|in the end rank"):
        replace(schedule, transfers=tuple(without(schedule, lost)))


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


def hierarchical() -> Schedule:
    return build_schedule(Collective.ALL_REDUCE, "hierarchical", 2, 2, 1000)


def changed(schedule: Schedule, number: int, **changes: object) -> Schedule:
    transfers = list(schedule.transfers)
    transfers[number] = replace(transfers[number], **changes)  # type: ignore[arg-type]
    return replace(schedule, transfers=tuple(transfers))


def test_data_that_is_sent_before_it_has_arrived_is_refused() -> None:
    schedule = hierarchical()
    on_the_rail = next(t.id for t in schedule.transfers if t.destination - t.source == 2)
    with pytest.raises(ScheduleError, match="does not wait"):
        changed(schedule, on_the_rail, after=())


def test_a_contribution_that_is_added_twice_is_refused() -> None:
    schedule = build_schedule(Collective.REDUCE_SCATTER, "ring", 2, 1, 1000)
    again = replace(schedule.transfers[0], id=len(schedule.transfers))
    with pytest.raises(ScheduleError, match="added twice"):
        replace(schedule, transfers=(*schedule.transfers, again))


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
