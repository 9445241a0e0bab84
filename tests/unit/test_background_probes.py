"""Byte conservation beside the probes of unaffected pairs: each probe is counted on each link."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from execution.cases.case import MeasuredCase
from execution.cases.observer import probed
from execution.faults.fault_case import FaultCase
from model.fabric.health import Epoch, Health, without
from model.fabric.shaping import PACKET_HEADER_BYTES
from model.fabric.spec import COMPARED, FabricKind
from model.fabric.topology import Hop
from model.job.placement import Pair, Placement, job_placement
from model.job.probing import PROBE_BYTES, pairs_by_hop
from model.measurement.records import CaseExecutions
from model.prediction.fluid import path_class, predict
from model.routing.paths import Routing
from model.workload.schedule import Schedule
from results.verdicts.byte_conservation import Carried, Irregular, link_reasons, spans
from results.verdicts.model_comparison import Measured
from results.verdicts.verdict import Reason, Thresholds, Verdict
from tests.unit.fabrics import spec, transfer_paths
from tests.unit.test_fidelity import executed, faithful, planned
from traffic_gen.probes.blackout import PairRecord

NS, MS = 10**9, 10**6
# The counters are read within 5 ms; the job executes between the readings, for one second.
BEFORE_NS, AFTER_NS = (NS, NS + 5 * MS), (2 * NS, 2 * NS + 5 * MS)
BETWEEN, DURING_FIRST, DURING_LAST = NS + 500 * MS, NS + 2 * MS, 2 * NS + MS
KINDS = st.sampled_from(COMPARED)


def sent(moments_ns: Sequence[int], arrived: bool = True) -> PairRecord:
    """A pair whose probes are under way for 2 ms, or lost."""
    arrivals = {n: ns + 2 * MS for n, ns in enumerate(moments_ns) if arrived}
    return PairRecord("a>b", tuple(moments_ns), arrivals)


def pairs_of(placement: Placement) -> list[Pair]:
    """All pairs of GPUs of a job, each probed."""
    return list(permutations(placement.gpus, 2))


def with_probes(carried: Carried, placement: Placement, count: int) -> Carried:
    """The same links between other readings, having carried `count` probes more of each pair."""
    routing = Routing(placement.topology, placement.health)
    sizes, packets = dict(carried.bytes), dict(carried.packets)
    for pair in pairs_of(placement):
        for hop in routing.path(*pair):
            sizes[hop] += count * PROBE_BYTES
            packets[hop] += count
    return Carried(sizes, packets, BEFORE_NS, AFTER_NS)


def more_probes(carried: Carried, hop: Hop, count: int) -> Carried:
    """The same with `count` probes more, or fewer, in one direction of a link."""
    sizes, packets = dict(carried.bytes), dict(carried.packets)
    sizes[hop] += count * PROBE_BYTES
    packets[hop] += count
    return replace(carried, bytes=sizes, packets=packets)


def wrong_links(
    schedule: Schedule, placement: Placement, carried: Carried, record: PairRecord
) -> list[Reason]:
    """What is wrong if each pair has this record."""
    pairs = pairs_of(placement)
    known = replace(carried, probed=probed(carried, placement, pairs, [record] * len(pairs)))
    done = [executed(schedule)]
    return list(link_reasons(schedule, placement.epoch, placement.gpus, done, known))


@cache
def fabric(kind: FabricKind, lost: str = "") -> tuple[Schedule, Placement, Carried]:
    """A fabric that is healthy, or has lost a link, its schedule, and what its links carry."""
    topology, schedule = planned(kind)
    health = without(topology, links=[lost]) if lost else Health()
    placement = replace(job_placement(spec(kind, 3, 2, 3)), health=health)
    return schedule, placement, faithful(topology, schedule, health=health)


@given(KINDS, st.integers(0, 9), st.sampled_from([-3, 3]), st.data())
def test_three_probes_more_or_fewer_than_were_sent_are_noticed_on_any_link(
    kind: FabricKind, count: int, difference: int, data: st.DataObject
) -> None:
    schedule, placement, plain = fabric(kind)
    carried, record = with_probes(plain, placement, count), sent([BETWEEN] * count)
    assert wrong_links(schedule, placement, carried, record) == []
    doctored = more_probes(carried, data.draw(st.sampled_from(list(carried.bytes))), difference)
    found = wrong_links(schedule, placement, doctored, record)
    assert any(v is Verdict.FAIL and "bytes of payload" in reason for v, reason in found)


@given(
    KINDS,
    st.sampled_from(["", "d0g0--rail0", "d1g1--hb1"]),
    st.lists(st.sampled_from([BETWEEN, DURING_FIRST, DURING_LAST]), max_size=9),
)
def test_probes_are_counted_on_the_links_of_their_path_in_the_health_of_the_phase(
    kind: FabricKind, lost: str, moments_ns: list[int]
) -> None:
    schedule, placement, plain = fabric(kind, lost)
    carried, pairs = with_probes(plain, placement, 0), pairs_of(placement)
    records = [sent(moments_ns)] * len(pairs)
    known = replace(carried, probed=probed(carried, placement, pairs, records))
    epoch, gpus = placement.epoch, placement.gpus
    without_probes = spans(schedule, epoch, gpus, 1, carried, Irregular())
    with_them = spans(schedule, epoch, gpus, 1, known, Irregular())
    crossing, sure = pairs_by_hop(placement, pairs), moments_ns.count(BETWEEN)
    size_bytes = PROBE_BYTES - PACKET_HEADER_BYTES
    for hop, span in with_them.items():
        more_bytes = size_bytes * crossing[hop]
        assert span.least == without_probes[hop].least + sure * more_bytes
        assert span.most == without_probes[hop].most + len(moments_ns) * more_bytes


@given(KINDS, st.sampled_from([DURING_FIRST, DURING_LAST]), st.integers(0, 2), st.booleans())
def test_probes_under_way_during_a_reading_and_lost_ones_may_be_counted_or_not(
    kind: FabricKind, moment_ns: int, crossed: int, arrived: bool
) -> None:
    """The count of a link is open by these probes, and by no more."""
    schedule, placement, plain = fabric(kind)
    record = sent([moment_ns] * 2, arrived)
    carried = with_probes(plain, placement, crossed)
    assert wrong_links(schedule, placement, carried, record) == []
    for others in (-3, 5):
        doctored = with_probes(plain, placement, others)
        assert Verdict.FAIL in [v for v, _ in wrong_links(schedule, placement, doctored, record)]


def test_a_probe_that_was_in_a_switch_during_a_reading_is_not_made_there() -> None:
    schedule, placement, plain = fabric(FabricKind.RAIL_OPTIMIZED)
    carried = with_probes(plain, placement, 0)
    down = [hop for hop in carried.bytes if hop.sender == "rail0"]
    for hop in down:
        carried = more_probes(carried, hop, 30)
    found = wrong_links(schedule, placement, carried, sent([DURING_FIRST] * 30))
    assert found == []
    assert any(
        "rail0 sent too many" in r for _, r in wrong_links(schedule, placement, carried, sent([]))
    )


@pytest.mark.parametrize(("difference", "verdict"), [(0, "pass"), (-3, "fail"), (3, "fail")])
def test_a_phase_is_judged_with_the_probes_of_unaffected_pairs(
    difference: int, verdict: str
) -> None:
    """Their records are known after the experiment."""
    schedule, placement, plain = fabric(FabricKind.RAIL_ONLY)
    carried = with_probes(plain, placement, 4)
    hop = next(iter(carried.bytes))
    topology, epoch, gpus = placement.topology, placement.epoch, placement.gpus
    classes = {path_class(hops) for hops in transfer_paths(schedule.transfers, epoch, gpus) if hops}
    prediction = predict(schedule, [Epoch(topology)], dict.fromkeys(classes, 0))
    done = replace(executed(schedule), completion_s=prediction.completion_s)
    measured = Measured(topology, schedule, CaseExecutions((done,)), epoch=epoch, gpus=gpus)
    case = FaultCase.__new__(FaultCase)
    case.unaffected = pairs_of(placement)
    phase = MeasuredCase(
        "a/b/c/baseline",
        measured,
        more_probes(carried, hop, difference),
        placement,
        prediction,
        1.0,
        Thresholds(0.02, 0.05),
    )
    found = case._judged(phase, [sent([BETWEEN] * 4)] * len(case.unaffected))
    assert found.verdict.value == verdict
