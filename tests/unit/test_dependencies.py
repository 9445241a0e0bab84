"""When steps begin and end by their dependencies alone."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from model.workload.transfers.columns import Rows, Transfer, Transfers
from model.workload.transfers.proof import first_unordered


@st.composite
def any_steps(draw: st.DrawFn) -> list[Transfer]:
    """Steps that wait for any earlier ones, some of them by a rendezvous."""
    found = []
    for number in range(draw(st.integers(1, 12))):
        earlier = st.sampled_from(range(number)) if number else st.nothing()
        after = tuple(draw(st.sets(earlier, max_size=3))) if number else ()
        ready = draw(st.none() | earlier) if number else None
        found.append(Transfer(number, 0, 1, 8, (0,), after, ready))
    return found


@given(any_steps())
def test_dependencies_are_sorted_by_the_earlier_step(steps: list[Transfer]) -> None:
    columns = (column.tolist() for column in Transfers.of(steps).dependencies)
    waits = [(earlier, step.id, False) for step in steps for earlier in step.after]
    meetings = [(step.ready, step.id, True) for step in steps if step.ready is not None]
    assert list(zip(*columns, strict=True)) == sorted(waits + meetings)


@given(any_steps(), st.data())
def test_a_step_begins_when_all_that_it_waits_for_have_ended(
    steps: list[Transfer], data: st.DataObject
) -> None:
    transfers = Transfers.of(steps)
    lasts_s = [data.draw(st.integers(0, 5)) for _ in steps]
    end_s = transfers.ends_s(np.array(lasts_s, np.float64)).tolist()
    begin_s = transfers.begins_s(np.array(end_s)).tolist()
    for step, own_s, begins, ends in zip(steps, lasts_s, begin_s, end_s, strict=True):
        waits = (*step.after, *(() if step.ready is None else (step.ready,)))
        assert begins == max((end_s[earlier] for earlier in waits), default=0)
        assert ends == begins + own_s


@given(any_steps(), st.data())
def test_the_chain_that_ends_last_takes_all_of_the_time(
    steps: list[Transfer], data: st.DataObject
) -> None:
    transfers = Transfers.of(steps)
    lasts_s = np.array([data.draw(st.integers(0, 5)) for _ in steps], np.float64)
    end_s = transfers.ends_s(lasts_s)
    assert lasts_s[[*transfers.last_chain(end_s)]].sum() == end_s.max()


@given(st.data())
def test_the_first_step_that_does_not_wait_for_a_delivery_is_found(data: st.DataObject) -> None:
    """By any path of dependencies among four ranks, each on what its sender sent or received."""
    steps, awaited = list[Transfer](), list[set[int]]()
    deliveries = list[tuple[int, int]]()
    for number in range(data.draw(st.integers(1, 14))):
        source, destination, *_ = data.draw(st.permutations(range(4)))
        known = [one.id for one in steps if source in (one.source, one.destination)]
        some = data.draw(st.sets(st.sampled_from(known), max_size=2)) if known else set()
        steps.append(Transfer(number, source, destination, 8, (0,), tuple(some)))
        awaited.append(some.union(*(awaited[one] for one in some)))
        deliveries += [(number, one) for one in range(number) if steps[one].destination == source]
    transfers = Transfers.of(steps)
    for asked in (deliveries, *([one] for one in deliveries)):
        later, earlier = np.array(asked, np.int64).reshape(-1, 2).T
        missed = [pair for pair in asked if pair[1] not in awaited[pair[0]]]
        assert first_unordered(transfers, later, earlier) == min(missed, default=None)


def test_the_longest_chain_is_counted_in_steps() -> None:
    after = ((), (0,), (0,), (2,), ())
    steps = [Transfer(number, 0, 1, 8, (0,), waits) for number, waits in enumerate(after)]
    assert Transfers.of(steps).longest_chain == 3


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1), st.data())
def test_rows_are_picked_in_any_order(rows: list[list[int]], data: st.DataObject) -> None:
    which = data.draw(st.lists(st.integers(0, len(rows) - 1)))
    picked = Rows.of(rows).picked(np.array(which, np.int64))
    assert list(picked.lists()) == [tuple(rows[row]) for row in which]
