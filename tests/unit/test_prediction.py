"""The fluid model against closed forms, and against properties of any valid model."""

from dataclasses import replace
from itertools import permutations, product
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from model.arrays import Floats, Ints
from model.fabric.build import build_topology, switch_depth_s
from model.fabric.health import Epoch, Health, without
from model.fabric.link_probes import PROBE_BYTES, probe_interval_s
from model.fabric.shaping import (
    ETHERNET_HEADER_BYTES,
    LEAST_SEGMENT_PACKETS,
    MIN_BURST_BYTES,
    MTU_BYTES,
    PACKET_HEADER_BYTES,
    PACKET_PAYLOAD_BYTES,
    SEGMENT_PACKETS,
    SWITCH_BURST_BYTES,
    Shaper,
    segment_bytes,
    wire_bytes,
)
from model.fabric.spec import COMPARED, PLATFORMS, FabricKind
from model.fabric.topology import Hop, LinkKind, Topology
from model.fabric.transport import Transport
from model.prediction import simulation
from model.prediction.closed_forms import DIRECT, TWO_STEP, Grid
from model.prediction.fluid import (
    Prediction,
    path_class,
    predict,
)
from model.prediction.network import (
    ALL,
    PathClass,
    Terms,
    framed_bytes,
    healthy_network,
    sums,
)
from model.prediction.simulation import Simulation, fair_rates, take_tokens, unshared_arrivals_s
from model.routing.paths import Unreachable
from model.workload.generator import TRANSFER_HEADER_BYTES
from model.workload.schedule import Schedule
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import Transfer, Transfers, streams
from tests.unit.fabrics import (
    accepts,
    assume_accepted,
    fabrics_with_failures,
    regular_topologies,
    spec,
    topologies,
    transfer_paths,
)
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS
from traffic_gen.workloads.sized_collective import SizedCollective

ON_PAPER = Terms(bursts=False, last_segment=False, acknowledgements=False, probes=False)
NAMED = st.sampled_from(sorted(ALGORITHMS))
LARGE = 40_000_000


def predicted(schedule: Schedule, topology: Topology, latency_s: float = 0.0) -> Prediction:
    paths = transfer_paths(schedule.transfers, Epoch(topology), topology.job_gpus)
    latencies: dict[PathClass, float] = {path_class(hops): latency_s for hops in paths if hops}
    return predict(schedule, [Epoch(topology)], latencies)


@given(NAMED, topologies(4, 4), st.sampled_from([10_000, 300_000, LARGE]))
@example(
    (Collective.SCATTER, "direct"),
    build_topology(spec(FabricKind.RAIL_ONLY, 4, 2, spines=6, rail_leaves=2)),
    LARGE,
)
def test_never_below_the_lower_bound(
    named: tuple[Collective, str], topology: Topology, size: int
) -> None:
    assume_accepted(named, *topology.spec.job_shape)
    schedule = SizedCollective(*named, topology.spec.job_shape, size).steps()
    prediction = predicted(schedule, topology)
    assert prediction.completion_s >= prediction.lower_bound_s - 1e-9
    assert prediction.completion_s == max(prediction.arrival_s)


@pytest.mark.parametrize("named", sorted(ALGORITHMS), ids="/".join)
def test_closed_forms_hold_for_large_sizes(named: tuple[Collective, str]) -> None:
    """On every grid of up to 4 GPUs in each of 6 HB domains that the algorithm accepts."""
    for kind, x, y in product(COMPARED, range(1, 5), range(1, 7)):
        if (x, y) == (1, 1) or not accepts(named, y, x):
            continue
        topology = build_topology(spec(kind, y, x, spines=y))
        schedule = SizedCollective(*named, (y, x), LARGE).steps()
        fabric = topology.spec
        rates = fabric.emulated_hb_bps / 8, fabric.emulated_nic_bps / 8
        grid = Grid(x, y, *rates, ALGORITHMS[named].slices)
        size = wire_bytes(1) * schedule.size_bytes
        closed_s = ALGORITHMS[named].closed_form.completion_s(kind, grid, size)
        modeled_s = predicted(schedule, topology).completion_s
        assert modeled_s == pytest.approx(closed_s, rel=0.02), f"{kind}, x = {x}, y = {y}"


@given(NAMED, topologies(3, 3))
def test_latency_and_size_only_make_it_longer(
    named: tuple[Collective, str], topology: Topology
) -> None:
    shape = topology.spec.job_shape
    assume_accepted(named, *shape)
    small, large = (SizedCollective(*named, shape, size).steps() for size in (LARGE // 10, LARGE))
    at_once_s = predicted(small, topology).completion_s
    assert at_once_s < predicted(large, topology).completion_s
    # A delay may keep flows apart that would share a link (Graham's anomaly).
    assert 0.97 * at_once_s <= predicted(small, topology, latency_s=0.01).completion_s


@pytest.mark.parametrize(("platform", "percent"), [("dgx-a100", 8.3), ("dgx-h100", 11.1)])
def test_the_papers_slowdown_of_two_steps(platform: str, percent: float) -> None:
    """Section IV-B prints 8.2 and 11.2; C_S/C_F is 8.33 and 11.11."""
    rates = PLATFORMS[platform]
    square = Grid(x=4, y=4, hb=rates.hb_rate_bps / 8, nic=rates.nic_rate_bps / 8)
    two_step, direct = (
        form.completion_s(FabricKind.RAIL_OPTIMIZED, square, LARGE) for form in (TWO_STEP, DIRECT)
    )
    assert 100 * (two_step / direct - 1) == pytest.approx(percent, abs=0.05)


def test_hierarchical_all_gather_is_mostly_within_domains() -> None:
    """Figure 4: with x = 32 and y = 2, 98 % of the bytes stay inside the HB domains."""
    schedule = SizedCollective(Collective.ALL_GATHER, "hierarchical", (2, 32), LARGE).steps()
    within = sum(t.size_bytes for t in schedule.transfers if t.source // 32 == t.destination // 32)
    total = sum(t.size_bytes for t in schedule.transfers)
    assert 100 * within / total == pytest.approx(98, abs=0.6)


def test_the_first_bytes_pass_on_the_bucket() -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 1))
    schedule = SizedCollective(Collective.ALL_TO_ALL, "direct", (2, 1), 4000).steps()
    assert wire_bytes(2000) < MIN_BURST_BYTES
    assert predicted(schedule, topology).completion_s == 0.0
    assert predicted(schedule, topology, latency_s=0.003).completion_s == 0.003


@given(st.integers(1_000_000, 10**13), st.floats(0.001, 0.02))
def test_the_burst_is_the_depth_of_the_bucket(rate_bps: int, depth_s: float) -> None:
    burst = Shaper(rate_bps, depth_s).burst_bytes
    assert burst == max(MIN_BURST_BYTES, round(rate_bps / 8 * depth_s))
    at_a_switch = Shaper(rate_bps, switch_depth_s(depth_s, rate_bps))
    assert at_a_switch.burst_bytes == min(burst, SWITCH_BURST_BYTES)


@given(topologies(), st.floats(0.001, 0.02))
def test_every_link_has_the_buckets_that_its_fabric_asks_for(
    topology: Topology, depth_s: float
) -> None:
    fabric = build_topology(replace(topology.spec, bucket_depth_s=depth_s))
    for link in fabric.links:
        assert link.shaper == Shaper(link.rate_bps, link.depth_s)
        assert fabric.least_depth_s <= link.depth_s <= depth_s
        if link.kind is LinkKind.HB:
            assert link.depth_s == depth_s


def through(schedule: Schedule, *epochs: Epoch, terms: Terms = ALL) -> Prediction:
    """Predict without latency on a fabric that changes with each epoch."""
    sent = schedule.transfers
    paths = (p for e in epochs for p in transfer_paths(sent, e, e.topology.job_gpus) if p)
    latencies = {path_class(hops): 0.0 for hops in paths}
    return predict(schedule, epochs, latencies, terms=terms)


def one_pair() -> tuple[Schedule, Topology]:
    """Two GPUs that exchange over their rail, their only path."""
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 1))
    return SizedCollective(Collective.ALL_TO_ALL, "direct", (2, 1), LARGE).steps(), topology


@given(NAMED, topologies(3, 3), st.lists(st.floats(0, 2), max_size=4))
def test_an_epoch_that_changes_nothing_changes_nothing(
    named: tuple[Collective, str], topology: Topology, when: list[float]
) -> None:
    assume_accepted(named, *topology.spec.job_shape)
    schedule = SizedCollective(*named, topology.spec.job_shape, LARGE).steps()
    plain = through(schedule, Epoch(topology))
    begins = sorted(part * plain.completion_s for part in when)
    split = through(schedule, Epoch(topology), *(Epoch(topology, begin_s=s) for s in begins))
    assert split.arrival_s == pytest.approx(plain.arrival_s, rel=1e-6, abs=1e-8)


@given(st.floats(0, 0.9))
def test_other_traffic_takes_its_part_of_a_link(part: float) -> None:
    schedule, topology = one_pair()
    rail = [link for link in topology.links if link.kind is LinkKind.NIC]
    hops = [Hop(link, port.node) for link in rail for port in (link.lower, link.upper)]
    beside = {hop: part * hop.link.rate_bps / 8 for hop in hops}
    plain = through(schedule, Epoch(topology), terms=FLUID)
    slower = through(schedule, Epoch(topology, beside=beside), terms=replace(FLUID, probes=True))
    controllers = PROBE_BYTES / probe_interval_s(topology) / (hops[0].link.rate_bps / 8)
    assert slower.completion_s * (1 - part - controllers) == pytest.approx(plain.completion_s)


@given(NAMED, fabrics_with_failures(3, 3))
def test_a_failure_counts_from_when_it_is(
    named: tuple[Collective, str], case: tuple[Topology, Health]
) -> None:
    """A failure from the start equals the degraded fabric; after the end it changes nothing.

    In between, times mostly lie between those two, but not always: other paths have other bursts
    and another order of waiting transfers. Backup paths may even be faster for a moment.
    """
    topology, health = case
    missing = topology.spec.missing
    task = SizedCollective(*named, topology.spec.job_shape, LARGE, missing=missing)
    assume(task.is_accepted)
    schedule = task.steps()
    healthy = through(schedule, Epoch(topology))
    end_s = healthy.completion_s
    after = through(schedule, Epoch(topology), Epoch(topology, health, end_s * 1.01))
    assert after.arrival_s == pytest.approx(healthy.arrival_s, rel=1e-9)
    try:
        broken = through(schedule, Epoch(topology, health))
    except Unreachable:
        return
    at_once = through(schedule, Epoch(topology), Epoch(topology, health))
    assert at_once.arrival_s == pytest.approx(broken.arrival_s, rel=1e-9)


def test_what_changes_its_path_is_bound_by_no_link_of_one_path_alone() -> None:
    """Of three flows, the first shares a NIC with the second one, and then with the third one."""
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 3, 2))
    flows = [(0, 2, LARGE // 10), (1, 4, LARGE // 10), (1, 3, LARGE // 10)]
    steps = mock.Mock(transfers=Transfers.of(streams(flows)), digest="")
    health = without(topology, links=["d1g0--rail0"])
    before, after = through(steps, Epoch(topology)), through(steps, Epoch(topology, health))
    changing = through(steps, Epoch(topology), Epoch(topology, health, before.completion_s / 2))
    one_flow_s = wire_bytes(1) * (LARGE // 10) / (topology.spec.emulated_nic_bps / 8)
    assert before.lower_bound_s > changing.completion_s < after.lower_bound_s
    assert changing.completion_s == pytest.approx(1.5 * one_flow_s, rel=0.05)
    assert changing.lower_bound_s == pytest.approx(one_flow_s, rel=0.05)


@given(NAMED, fabrics_with_failures(3, 3), st.floats(0, 1), st.floats(0, 3))
def test_never_below_the_lower_bound_while_paths_change(
    named: tuple[Collective, str], case: tuple[Topology, Health], part: float, for_s: float
) -> None:
    topology, health = case
    missing = topology.spec.missing
    task = SizedCollective(*named, topology.spec.job_shape, LARGE, missing=missing)
    assume(task.is_accepted)
    begin_s = part * through(schedule := task.steps(), Epoch(topology)).completion_s
    epochs = Epoch(topology, health, begin_s), Epoch(topology, begin_s=begin_s + for_s)
    prediction = through(schedule, Epoch(topology), *epochs)
    assert prediction.completion_s >= prediction.lower_bound_s - 1e-9


@given(st.floats(0.01, 0.99), st.floats(0.01, 100))
def test_what_is_cut_off_for_a_while_waits_for_as_long(part: float, for_s: float) -> None:
    schedule, topology = one_pair()
    plain = through(schedule, Epoch(topology))
    begin_s = part * plain.completion_s
    cut_off = Epoch(topology, without(topology, ["rail0"]), begin_s)
    again = Epoch(topology, begin_s=begin_s + for_s)
    waited = through(schedule, Epoch(topology), cut_off, again)
    assert waited.completion_s == pytest.approx(plain.completion_s + for_s)


@given(st.floats(0.01, 0.99), st.floats(0.01, 3), st.sampled_from(["d0g0", "d1g0", "d2g0"]))
def test_a_rendezvous_without_a_path_waits_for_one(part: float, for_s: float, gpu: str) -> None:
    """The other two GPUs go on, and are ready for the next step while the pair is cut off."""
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 3, 1))
    schedule = SizedCollective(Collective.ALL_TO_ALL, "direct", (3, 1), LARGE).steps()
    plain_s = through(schedule, Epoch(topology)).completion_s
    begin_s, end_s = part * plain_s, (part + for_s) * plain_s
    cut_off = Epoch(topology, without(topology, links=[f"{gpu}--rail0"]), begin_s)
    waited = through(schedule, Epoch(topology), cut_off, Epoch(topology, begin_s=end_s))
    assert end_s < waited.completion_s <= plain_s + end_s - begin_s + 1e-6


@given(NAMED, regular_topologies(4, 4), st.sampled_from([10_000, LARGE]), st.floats(0, 1))
def test_a_broken_link_carries_nothing_until_it_is_mended(
    named: tuple[Collective, str], topology: Topology, size: int, part: float
) -> None:
    """Nobody routes around it meanwhile; all that crosses it arrives before or after.

    The whole is late by the outage, and by flows that meet others than on a healthy fabric.
    """
    assume_accepted(named, *topology.spec.job_shape)
    schedule = SizedCollective(*named, topology.spec.job_shape, size).steps()
    plain_s = through(schedule, Epoch(topology)).completion_s
    link = next(link for link in topology.links if link.kind is LinkKind.NIC)
    broken = Epoch(topology, Health(rates_bps={link.name: 0}), part * plain_s)
    epochs = Epoch(topology), broken, Epoch(topology, begin_s=(end_s := (1 + part) * plain_s))
    waited = through(schedule, *epochs)
    paths = transfer_paths(schedule.transfers, epochs[0], topology.job_gpus)
    crossing = [link in {hop.link for hop in hops or ()} for hops in paths]
    arrival_s = np.asarray(waited.arrival_s)[crossing]
    assert ((arrival_s <= broken.begin_s + 1e-9) | (arrival_s >= end_s - 1e-9)).all()
    assert size < LARGE or waited.completion_s <= 3 * plain_s


def test_what_is_cut_off_for_good_never_arrives() -> None:
    schedule, topology = one_pair()
    cut_off = Epoch(topology, without(topology, ["rail0"]), 0.1)
    with pytest.raises(Unreachable, match="transfers have no path"):
        through(schedule, Epoch(topology), cut_off)


@given(st.floats(0.01, 0.99), st.integers(1, 100))
def test_what_is_left_when_a_link_slows_down_takes_so_much_longer(part: float, slower: int) -> None:
    """Probes are left out: they take the same from a slow link as from a fast one."""
    schedule, topology = one_pair()
    silent = replace(ALL, probes=False)
    plain = through(schedule, Epoch(topology), terms=silent)
    begin_s = part * plain.completion_s
    link = topology.link_by_name["d0g0--rail0"]
    slow = Health(rates_bps={link.name: link.rate_bps // slower})
    found = through(schedule, Epoch(topology), Epoch(topology, slow, begin_s), terms=silent)
    expected_s = begin_s + (plain.completion_s - begin_s) * slower
    assert found.completion_s == pytest.approx(expected_s, rel=1e-4)


RATES = st.integers(1_000_000, 200_000_000)
PAYLOADS = st.integers(1, 2_000_000)
# Nothing but the transfer's own bytes.
ALONE = Terms(acknowledgements=False, probes=False)
FLUID = Terms(headers=False, bursts=False, last_segment=False, acknowledgements=False, probes=False)
SEGMENT_BYTES = segment_bytes(SEGMENT_PACKETS)


def a_link(nic_bps: int) -> Topology:
    """Two GPUs on one rail, with NIC links of this rate."""
    fabric = spec(FabricKind.RAIL_ONLY, 2, 1)
    nic = replace(fabric.nic, rate_bps=nic_bps)
    return build_topology(replace(fabric, nic=nic, bandwidth_scale=1.0))


def exchanged(payload: int, terms: Terms, nic_bps: int) -> float:
    """Time for two GPUs to send each other a payload."""
    schedule = SizedCollective(Collective.ALL_TO_ALL, "direct", (2, 1), 2 * payload).steps()
    return through(schedule, Epoch(a_link(nic_bps)), terms=terms).completion_s


def burst(nic_bps: int) -> int:
    """Bytes that pass a link between two GPUs at once."""
    return a_link(nic_bps).link_by_name["d0g0--rail0"].shaper.burst_bytes


@given(PAYLOADS, RATES)
def test_a_last_segment_leaves_when_those_before_it_have_left(payload: int, nic_bps: int) -> None:
    before = (payload + TRANSFER_HEADER_BYTES - 1) // SEGMENT_BYTES * SEGMENT_BYTES
    expected_s = max(0.0, wire_bytes(before) - burst(nic_bps)) / (nic_bps / 8)
    assert exchanged(payload, ALONE, nic_bps) == pytest.approx(expected_s, rel=1e-6, abs=1e-8)


def test_a_segment_is_of_whole_packets() -> None:
    assert SEGMENT_BYTES == 45 * PACKET_PAYLOAD_BYTES
    assert LEAST_SEGMENT_PACKETS * (MTU_BYTES + ETHERNET_HEADER_BYTES) <= MIN_BURST_BYTES


@given(PAYLOADS, RATES)
def test_probes_and_acknowledgements_take_their_share_of_a_link(payload: int, nic_bps: int) -> None:
    plain_s = exchanged(payload, ALONE, nic_bps)
    left = 1 - PROBE_BYTES / probe_interval_s(a_link(nic_bps)) / (nic_bps / 8)
    probed_s = exchanged(payload, replace(ALONE, probes=True), nic_bps)
    assert probed_s * left == pytest.approx(plain_s, rel=1e-6, abs=1e-8)
    share = PACKET_HEADER_BYTES / wire_bytes(SEGMENT_BYTES)
    acknowledged_s = exchanged(payload, replace(ALONE, acknowledgements=True), nic_bps)
    assert acknowledged_s == pytest.approx(plain_s * (1 + share), rel=1e-6, abs=1e-8)


@given(st.integers(1, 40), st.integers(1, 300_000), RATES)
def test_credit_is_paid_back_by_the_next_transfer(count: int, payload: int, nic_bps: int) -> None:
    """A train of transfers on one link gains a burst and one last segment, however long it is."""
    carried = payload + TRANSFER_HEADER_BYTES
    last = (carried - 1) % SEGMENT_BYTES + 1
    due = count * framed_bytes(carried) - framed_bytes(last) - burst(nic_bps)
    found_s = streamed(count, payload, ALONE, nic_bps)
    assert found_s == pytest.approx(max(0.0, due) / (nic_bps / 8), rel=1e-6, abs=1e-8)


@given(st.lists(st.integers(1, 8), min_size=2, max_size=6), RATES)
def test_flows_that_share_a_link_get_one_segment_of_credit(
    segments: list[int], nic_bps: int
) -> None:
    """However many flows of whole segments end on the receiver's link, and when."""
    fabric = spec(FabricKind.RAIL_ONLY, len(segments) + 1, 1)
    nic = replace(fabric.nic, rate_bps=nic_bps)
    topology = build_topology(replace(fabric, nic=nic, bandwidth_scale=1.0))
    sizes = [count * SEGMENT_BYTES for count in segments]
    incast = Transfers.of(
        streams([(k, 0, size - TRANSFER_HEADER_BYTES) for k, size in enumerate(sizes, start=1)])
    )
    pair, net = healthy_network(incast, topology)
    ended_s = Simulation(incast, pair, [net], dict.fromkeys(net.classes, 0.0), ALONE).run().max()
    due = framed_bytes(sum(sizes)) - framed_bytes(SEGMENT_BYTES) - burst(nic_bps)
    assert ended_s == pytest.approx(max(0.0, due) / (nic_bps / 8), rel=1e-6, abs=1e-8)


@given(st.lists(PAYLOADS, min_size=4, max_size=4), RATES)
def test_flows_without_bursts_take_no_credit_from_flows_on_other_links(
    payloads: list[int], nic_bps: int
) -> None:
    """Each leaves all but its last segment at the rate of its slowest link, as if it were alone.

    Placeholders fill the rows of all paths.
    """
    topology = build_topology(
        replace(spec(FabricKind.RAIL_ONLY, 2, 5), nic=a_link(nic_bps).spec.nic)
    )
    ends = [(0, 1), (2, 7), (3, 8), (4, 9)]
    sent = Transfers.of(streams([(*end, of) for end, of in zip(ends, payloads, strict=True)]))
    pair, net = healthy_network(sent, topology)
    terms = replace(ALONE, bursts=False)
    found_s = Simulation(sent, pair, [net], dict.fromkeys(net.classes, 0.0), terms).run()
    sizes, last = (of(sent.size_bytes, pair, net) for of in (terms.size, terms.last))
    assert found_s == pytest.approx((sizes - last) / net.slowest[pair], rel=1e-6, abs=1e-8)


def streamed(count: int, payload: int, terms: Terms, nic_bps: int) -> float:
    """Time for one GPU to send another one payload after the other."""
    topology, train = a_link(nic_bps), Transfers.of(streams([(0, 1, payload)], count))
    pair, net = healthy_network(train, topology)
    return float(Simulation(train, pair, [net], {net.classes[0]: 0.0}, terms).run().max())


@given(NAMED, topologies(3, 3), st.sampled_from(["headers", "probes"]))
def test_what_else_is_on_the_wire_takes_time(
    named: tuple[Collective, str], topology: Topology, term: str
) -> None:
    """Last segments are left out: who gets credit depends on which flows end together."""
    shape = topology.spec.job_shape
    assume_accepted(named, *shape)
    schedule, terms = (
        SizedCollective(*named, shape, LARGE).steps(),
        replace(ALL, last_segment=False),
    )
    without_it = through(schedule, Epoch(topology), terms=replace(terms, **{term: False}))
    assert without_it.completion_s < through(schedule, Epoch(topology), terms=terms).completion_s


@given(st.integers(100_000, 10_000_000))
def test_a_full_bucket_behind_a_faster_link_passes_its_burst(size_bytes: int) -> None:
    """Of two flows that share an HB link, one takes its tokens, the other goes on to a NIC."""
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 2))
    stays = Transfer(0, 0, 1, LARGE, ())
    crosses = Transfer(1, 0, 3, size_bytes, ())

    def last_s(*transfers: Transfer) -> float:
        sent = Transfers.of(transfers)
        pair, net = healthy_network(sent, topology)
        return float(Simulation(sent, pair, [net], dict.fromkeys(net.classes, 0.0)).run()[-1])

    assert last_s(stays, crosses) == pytest.approx(last_s(replace(crosses, id=0)))


Shared = tuple[Ints, Floats]


@pytest.mark.parametrize("kind", COMPARED)
@pytest.mark.parametrize("shape", [1.0, 4.0])
def test_many_flows_at_once_end_together_as_each_alone(kind: FabricKind, shape: float) -> None:
    """What ended flows leave idle reaches the others: the whole lasts as long, within 0.05 %."""
    topology = build_topology(spec(kind, 4, 8))
    pairs = list(permutations(range(32), 2))
    sizes = 1e6 * np.random.default_rng(0).gamma(shape, size=len(pairs))
    flows = [(*pair, int(size)) for pair, size in zip(pairs, sizes, strict=True)]
    matrix = Transfers.of(streams(flows))
    pair, net = healthy_network(matrix, topology)

    def arrivals_s(one_by_one: int) -> Floats:
        with mock.patch.object(simulation, "ONE_BY_ONE", one_by_one):
            return Simulation(matrix, pair, [net], dict.fromkeys(net.classes, 1e-6), ON_PAPER).run()

    together_s = arrivals_s(240)
    assert together_s.max() == pytest.approx(arrivals_s(len(pairs)).max(), rel=5e-4)
    assert (together_s * net.slowest[pair] >= matrix.size_bytes).all()  # no link is faster


@st.composite
def shared_links(draw: st.DrawFn) -> Shared:
    """The links on the path of each of a few flows, and the rate of each link; link 0 is none."""
    rates = draw(st.lists(st.floats(1, 1e9), min_size=1, max_size=6))
    number = st.integers(1, len(rates))
    paths = draw(st.lists(st.lists(number, min_size=1, max_size=4, unique=True), max_size=8))
    table = np.array([[*path, *[0] * (4 - len(path))] for path in paths], np.int64)
    return table.reshape(-1, 4), np.array([1e300, *rates])


@given(shared_links(), st.data())
def test_rates_are_fair_by_weight(shared: Shared, data: st.DataObject) -> None:
    """Max-min: every flow has a saturated link on which no other has a higher rate by weight."""
    paths, capacity = shared
    drawn = data.draw(st.lists(st.floats(0.1, 10), min_size=len(paths), max_size=len(paths)))
    weight = np.array(drawn)
    rates = fair_rates(paths, capacity, weight)
    used = sums(paths, rates, len(capacity))
    assert (used <= capacity * (1 + 1e-9)).all()
    each = rates / weight
    for path, rate in zip(paths, each, strict=True):
        assert any(
            used[link] >= capacity[link] * (1 - 1e-9)
            and rate >= each[(paths == link).any(axis=1)].max() * (1 - 1e-9)
            for link in path
        )


@given(shared_links(), st.data())
def test_tokens_are_taken_in_turn(shared: Shared, data: st.DataObject) -> None:
    """As if every flow took its tokens alone, one after the other."""
    paths, tokens = shared
    sizes = np.array(data.draw(st.lists(st.floats(0, 1e9), min_size=len(paths))))[: len(paths)]
    left, expected = tokens.copy(), []
    for path, size in zip(paths, sizes, strict=True):
        expected.append(min(size, *(max(0.0, left[link]) for link in path)))
        left[path[path > 0]] -= expected[-1]
    passed = take_tokens(paths, sizes, tokens, 1)
    assert passed == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(st.integers(1, 20), st.integers(1, 12), st.floats(0.0, 1.0))
def test_a_window_of_transfers_hides_the_latency_of_all_but_one(
    count: int, window: int, latency_s: float
) -> None:
    """A train on one link: at most a window is on its way, there or as confirmations back."""
    topology = build_topology(replace(a_link(20_000_000).spec, window=window))
    train = Transfers.of(streams([(0, 1, 250_000)], count))
    pair, net = healthy_network(train, topology)
    latencies = {net.classes[0]: latency_s}
    each_s = 250_000 * 8 / 20_000_000
    cycles, rest = divmod(count - 1, window)
    cycle_s = max(window * each_s, each_s + 2 * latency_s)
    expected_s = cycles * cycle_s + (rest + 1) * each_s + latency_s
    simulated_s = Simulation(train, pair, [net], latencies, FLUID).run().max()
    assert simulated_s == pytest.approx(expected_s, rel=1e-6)
    followed_s = unshared_arrivals_s(train, pair, net, latencies, FLUID).max()
    assert followed_s == pytest.approx(expected_s, rel=1e-6)


@pytest.mark.parametrize(
    ("behind", "transport", "latencies"),
    [
        (Transfer(1, 0, 1, 1000, (), (0,)), Transport.TCP, 1),
        (Transfer(1, 0, 2, 1000, (), (0,)), Transport.TCP, 3),
        (Transfer(1, 0, 2, 1000, (), (0,)), Transport.ROCE, 1),
        (Transfer(1, 0, 0, 0, (), (0,), compute_ns=1000), Transport.TCP, 2),
        (Transfer(1, 0, 0, 0, (), (0,), compute_ns=1000), Transport.ROCE, 2),
    ],
    ids=["same peer", "other peer", "other peer by RoCE", "compute", "compute by RoCE"],
)
def test_what_follows_a_send_awaits_its_confirmation_if_it_could_overtake(
    behind: Transfer, transport: Transport, latencies: int
) -> None:
    fabric = replace(spec(FabricKind.RAIL_ONLY, 3, 1), transport=transport)
    topology = build_topology(fabric)
    steps = Transfers.of([Transfer(0, 0, 1, 1000, ()), behind])
    pair, net = healthy_network(steps, topology)

    def ends_s(latency_s: float) -> float:
        by_class = {kinds: latency_s for kinds in net.classes if kinds}
        simulated_s: float = Simulation(steps, pair, [net], by_class).run()[1]
        followed_s = unshared_arrivals_s(steps, pair, net, by_class)[1]
        assert followed_s == pytest.approx(simulated_s, rel=1e-6)
        return simulated_s

    assert ends_s(0.25) - ends_s(0.0) == pytest.approx(latencies * 0.25, rel=1e-6)
