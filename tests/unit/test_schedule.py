"""Schedules fulfill their collective, and invalid schedules are refused."""

import itertools
import math
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from model.fabric.job_grid import JobGrid, Shape
from model.workload.double_tree import NOBODY, parents, rounds
from model.workload.schedule import Schedule
from model.workload.transfers import proof
from model.workload.transfers.collective import ROOT, Collective, demand_of
from model.workload.transfers.columns import Transfer, Transfers
from model.workload.transfers.lanes import ELEMENT_BYTES
from model.workload.transfers.proof import ScheduleError
from tests.unit.fabrics import assume_accepted
from traffic_gen.workloads.algorithms.builder import Builder
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS
from traffic_gen.workloads.algorithms.reductions import rail_rings, whole_ring
from traffic_gen.workloads.sized_collective import Peers, SizedCollective

NAMED = st.sampled_from(sorted(ALGORITHMS))
SIZES = st.integers(1, 10_000)
DIRECT = Collective.ALL_TO_ALL, "direct"


@given(NAMED, st.integers(1, 5), st.integers(1, 5), SIZES)
def test_every_algorithm_reaches_its_postcondition(
    named: tuple[Collective, str], domains: int, domain_size: int, size: int
) -> None:
    if domains * domain_size == 1:
        return
    assume_accepted(named, domains, domain_size)
    schedule = SizedCollective(*named, (domains, domain_size), size).steps()
    assert schedule.size_bytes >= size
    chunk_bytes = schedule.demand.chunk_bytes
    assert schedule.size_bytes - size < len(chunk_bytes) * ELEMENT_BYTES
    own = domains * domain_size if named[0] in (Collective.ALL_TO_ALL, Collective.SEND_RECV) else 1
    assert schedule.size_bytes * own == chunk_bytes.sum()
    assert not (chunk_bytes % ELEMENT_BYTES).any()


@given(st.integers(1, 40), st.integers(1, 12))
def test_the_ring_of_all_ranks_crosses_domains_along_rails(domains: int, domain_size: int) -> None:
    """Two rails change in every domain, so an odd number of domains cannot end where it began."""
    build = Builder(JobGrid(domains, domain_size), np.empty(0, np.int64))
    [ring] = whole_ring(build)
    assert ring[0] == 0
    assert sorted(ring) == list(build.ranks)
    (domain, rail), (next_domain, next_rail) = (
        np.divmod(ranks, domain_size) for ranks in (ring, np.roll(ring, -1))
    )
    crossing = (domain != next_domain) & (rail != next_rail)
    is_impossible = domain_size == 2 and domains > 1 and domains % 2 == 1
    assert crossing.sum() == is_impossible
    assert (domain != next_domain).sum() == (domains if domains > 1 else 0)


@given(st.integers(2, 12), st.integers(1, 12))
def test_the_rings_of_all_rails_enter_and_leave_every_domain_on_every_rail_once(
    domains: int, domain_size: int
) -> None:
    rings = rail_rings(Builder(JobGrid(domains, domain_size), np.empty(0, np.int64)))
    assert (np.sort(rings, axis=1) == np.arange(domains * domain_size)).all()
    successors = np.roll(rings, -1, axis=1)
    crosses = rings // domain_size != successors // domain_size
    for ends in (rings, successors):
        assert sorted(ends[crosses]) == list(range(domains * domain_size))


@given(st.integers(2, 4), st.integers(1, 4), st.sampled_from([1, 2, 3, 5, "all"]))
def test_a_gpu_exchanges_with_so_many_partners_at_once(
    domains: int, domain_size: int, peers: Peers
) -> None:
    """Each transfer takes one second here: those of a second are at once."""
    task = SizedCollective(*DIRECT, (domains, domain_size), 10_000, peers=peers)
    sent = task.steps().transfers
    seconds = sent.ends_s(np.ones(len(sent)))
    crosses = sent.source // domain_size != sent.destination // domain_size
    for ranks, is_own in itertools.product((sent.source, sent.destination), (crosses, ~crosses)):
        at_once = Counter(zip(ranks[is_own], seconds[is_own], strict=True)).values()
        assert max(at_once, default=1) <= task.peers_at_once
    partners = domain_size * (domains - 1)
    assert seconds.max() == -(-partners // task.peers_at_once)


@given(NAMED, st.integers(2, 4), st.integers(2, 4), st.data())
def test_a_schedule_without_one_of_its_transfers_is_refused(
    named: tuple[Collective, str], domains: int, domain_size: int, data: st.DataObject
) -> None:
    assume_accepted(named, domains, domain_size)
    schedule = SizedCollective(*named, (domains, domain_size), 1000).steps()
    lost = data.draw(st.integers(0, len(schedule.transfers) - 1))
    # The root of a Broadcast has everything before the first transfer.
    to_root = schedule.transfers[lost].destination == ROOT
    assume(not (named[0] is Collective.BROADCAST and to_root))
    with pytest.raises(ScheduleError, match=r"does not hold|ends with chunk"):
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
    schedule = SizedCollective(*named, (domains, domain_size), 1000).steps()
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
    asked, held = asked_of(schedule), [dict[int, set[int]]() for _ in range(schedule.gpus)]
    for chunk, (holders, _) in enumerate(asked):
        for rank in holders:
            held[rank][chunk] = {rank}
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
    return all(
        held[rank].get(chunk) == contributors
        for chunk, (_, wanted) in enumerate(asked)
        for rank, contributors in wanted.items()
    )


def asked_of(schedule: Schedule) -> list[tuple[set[int], dict[int, set[int]]]]:
    """For each chunk the ranks that hold it, and for those that want it its contributors."""
    n, chunks = schedule.gpus, len(schedule.demand.chunk_bytes)
    everyone = set(range(n))
    found: list[tuple[set[int], dict[int, set[int]]]] = []
    for chunk in range(chunks):
        # Of an all-to-all, the pairs of source and destination; else one shard for each rank.
        of, to = divmod(chunk * n * n // chunks, n)
        shard = chunk * n // chunks
        match schedule.collective:
            case Collective.ALL_REDUCE:
                found.append((everyone, dict.fromkeys(everyone, everyone)))
            case Collective.REDUCE_SCATTER:
                found.append((everyone, {shard: everyone}))
            case Collective.ALL_GATHER:
                found.append(({shard}, {key: {shard} for key in everyone}))
            case Collective.BROADCAST:
                found.append(({ROOT}, {key: {ROOT} for key in everyone}))
            case Collective.REDUCE:
                found.append((everyone, {ROOT: everyone}))
            case Collective.GATHER:
                found.append(({shard}, {ROOT: {shard}}))
            case Collective.SCATTER:
                found.append(({ROOT}, {shard: {ROOT}}))
            case Collective.ALL_TO_ALL:
                found.append(({of}, {to: {of}}))
            case Collective.SEND_RECV:
                last = shard == n - 1
                found.append((set(), {}) if last else ({shard}, {shard + 1: {shard}}))
            case other:
                assert_never(other)
    return found


def test_a_chunk_that_a_transfer_carries_twice_is_refused() -> None:
    schedule = hierarchical()
    one = schedule.transfers[0]
    chunks = (one.chunks[0], *one.chunks[:-1], one.chunks[0])
    size = one.size_bytes // len(one.chunks) * len(chunks)
    with pytest.raises(ScheduleError, match=f"carries chunk {one.chunks[0]} twice"):
        changed(schedule, 0, chunks=chunks, size_bytes=size)


def test_more_chunks_than_can_be_numbered_are_refused() -> None:
    schedule = hierarchical()
    many = np.broadcast_to(schedule.demand.chunk_bytes[:1], 1 << 58)
    with pytest.raises(ScheduleError, match="exceed what can be proved"):
        replace(schedule, demand=replace(schedule.demand, chunk_bytes=many))


def test_chunks_that_are_not_there_and_bytes_of_others_are_refused() -> None:
    with pytest.raises(ScheduleError, match="transfer 0: unknown chunk 4; known: 0 to 3"):
        changed(hierarchical(), 0, chunks=(4,))
    with pytest.raises(ScheduleError, match="transfer 0: 8 bytes differ from the sum of its chu"):
        changed(hierarchical(), 0, size_bytes=8)


def hierarchical() -> Schedule:
    return SizedCollective(Collective.ALL_REDUCE, "hierarchical", (2, 2), 1000).steps()


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
    schedule = SizedCollective(Collective.REDUCE_SCATTER, "ring", (2, 1), 1000).steps()
    again = replace(schedule.transfers[0], id=len(schedule.transfers))
    with pytest.raises(ScheduleError, match="added twice"):
        replace(schedule, transfers=Transfers.of((*schedule.transfers, again)))


@pytest.mark.parametrize(("steps", "lacks"), [(1, "rank 1 and 2 more"), (3, "rank 1")])
def test_a_refusal_names_whose_contribution_is_missing(steps: int, lacks: str) -> None:
    """A ring of four that ends early: each step has a transfer of each rank."""
    schedule = SizedCollective(Collective.ALL_REDUCE, "ring", (4, 1), 1000).steps()
    early = Transfers.of(list(schedule.transfers)[: 4 * steps])
    with pytest.raises(ScheduleError, match=f"without the contribution of {lacks}$"):
        replace(schedule, transfers=early)


def test_a_dependency_that_the_sender_cannot_see_is_refused() -> None:
    schedule = SizedCollective(Collective.ALL_TO_ALL, "direct", (3, 1), 1000).steps()
    stranger = next(t.id for t in schedule.transfers[1:3] if 0 not in (t.source, t.destination))
    last = max(t.id for t in schedule.transfers if t.source == 0)
    with pytest.raises(ScheduleError, match="takes no part in transfer"):
        changed(schedule, last, after=(stranger,))


def test_a_proof_in_small_parts_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of millions of moves, which has as many parts as memory needs."""
    for limit in ("EVENTS_AT_ONCE", "FLAGS_AT_ONCE"):
        monkeypatch.setattr(proof, limit, 5)
    for named in ALGORITHMS:
        schedule = SizedCollective(*named, (2, 2), 1000).steps()
        lost = len(schedule.transfers) - 1
        with pytest.raises(ScheduleError, match=r"does not hold|ends with chunk"):
            replace(schedule, transfers=Transfers.of(without(schedule, lost)))


@pytest.mark.parametrize("other", [-2, 3, 4])
def test_a_dependency_that_does_not_come_before_is_refused(other: int) -> None:
    schedule = SizedCollective(Collective.ALL_TO_ALL, "direct", (3, 1), 1000).steps()
    with pytest.raises(ScheduleError, match=f"depends on {other}, which does not come before it"):
        changed(schedule, 3, after=(other,))
    with pytest.raises(ScheduleError, match="ready-to-receive"):
        changed(schedule, 3, ready=other)


def test_only_what_the_destination_receives_can_make_it_ready() -> None:
    schedule = SizedCollective(Collective.ALL_TO_ALL, "direct", (3, 1), 1000).steps()
    last = schedule.transfers[-1]
    stranger = next(t.id for t in schedule.transfers if t.destination != last.destination)
    with pytest.raises(ScheduleError, match="ready-to-receive"):
        changed(schedule, last.id, ready=stranger)


@pytest.mark.parametrize(
    ("to", "why"), [(0, "sends to itself"), (4, "GPUs 0 to 3"), (-1, "GPUs 0 to 3")]
)
def test_a_gpu_that_sends_to_itself_or_to_none_is_refused(to: int, why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        changed(hierarchical(), 0, destination=to)


def test_the_digest_tells_schedules_apart() -> None:
    one, same = hierarchical(), hierarchical()
    other = SizedCollective(Collective.ALL_REDUCE, "ring", (2, 2), 1000).steps()
    assert one.digest == same.digest != other.digest


def test_pairwise_steps_have_one_sender_for_each_receiver() -> None:
    """A receiver has at most one transfer under way on its HB link, and one on its NIC."""
    schedule = SizedCollective(Collective.ALL_TO_ALL, "direct", (4, 4), 1000).steps()
    by_receiver: dict[tuple[int, bool], list[Transfer]] = {}
    for transfer in schedule.transfers:
        within = transfer.source // 4 == transfer.destination // 4
        by_receiver.setdefault((transfer.destination, within), []).append(transfer)
    for received in by_receiver.values():
        for earlier, later in itertools.pairwise(received):
            assert later.ready == earlier.id


@given(st.integers(1, 40))
def test_both_trees_reach_every_node_and_one_node_at_most_is_inside_both(nodes: int) -> None:
    trees = parents(nodes)
    for tree in trees:
        assert sum(parent == NOBODY for parent in tree) == 1
        for node in range(nodes):
            path = [node]
            while tree[path[-1]] != NOBODY:
                path.append(tree[path[-1]])
            assert len(path) <= nodes.bit_length() + 1
    assert len(set(trees[0]) & set(trees[1]) - {NOBODY}) <= 1


def test_trees_over_many_nodes_are_made_within_a_test_s_time() -> None:
    """A search for each pair of nodes would take minutes."""
    assert [tree.count(NOBODY) for tree in parents(2**17)] == [1, 1]


@given(st.integers(2, 40), st.integers(1, 24))
def test_the_rounds_of_the_trees_keep_every_node_busy(nodes: int, slices: int) -> None:
    """Not more than a third above 2k + 4 log2 n, the rounds of the best order that is known."""
    found = rounds(nodes, slices)
    for moves in found:
        assert len({move.source for move in moves}) == len(moves)
        assert len({move.destination for move in moves}) == len(moves)
    assert sum(map(len, found)) == 2 * (nodes - 1) * slices
    assert len(found) <= (2 * slices + 4 * math.ceil(math.log2(nodes))) * 4 / 3


@pytest.mark.parametrize("shape", [(512, 8), (1, 4096)])
@pytest.mark.parametrize("named", sorted(ALGORITHMS), ids="-".join)
def test_a_grid_is_accepted_before_its_chunks_are_numbered(
    named: tuple[Collective, str], shape: Shape
) -> None:
    """Each of 4096 GPUs has half of 4096 chunks for its first partner by halving: 64 MiB.

    In one domain, each has a ring of all: 128 MiB.
    """
    tracemalloc.start()
    try:
        SizedCollective(*named, shape, 1).require_accepted()
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("collective", [Collective.ALL_TO_ALL, Collective.SEND_RECV])
def test_a_collective_of_pairs_has_no_cell_of_every_chunk_at_every_rank(
    collective: Collective,
) -> None:
    """Each pair of 256 GPUs has a chunk: cells of all of them at each rank took 128 MiB a list."""
    tracemalloc.start()
    try:
        demand_of(collective, 256, np.ones(256 * 256, dtype=np.int64))
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()
