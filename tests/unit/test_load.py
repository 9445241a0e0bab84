"""The load of an execution over time: all bytes of all transfers are accounted for."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from model.fabric.build import build_topology
from model.fabric.health import Epoch
from model.fabric.shaping import wire_bytes
from model.fabric.spec import COMPARED, FabricKind, FabricSpec, Spares
from model.fabric.topology import Hop, Topology
from model.fabric.transport import DEFAULT_ROCE, Transport
from model.prediction.closed_forms import ClosedForm, Grid
from model.prediction.fluid import path_class, predict
from model.prediction.load import Flows, Need, Profile, packet_bytes, profile, switch_ports
from model.prediction.machine import HopKind
from model.prediction.network import healthy_network
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import Transfer, Transfers
from scenarios.planning.plan import estimate, heaviest, real_task
from tests.unit.fabrics import accepts, assume_accepted, topologies, transfer_paths
from tests.unit.fabrics import spec as fabric_spec
from tests.unit.machines import TWO_CORES
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS, Algorithm
from traffic_gen.workloads.algorithms.reductions import ring_all_gather
from traffic_gen.workloads.sized_collective import SizedCollective
from traffic_gen.workloads.task import followed

ALGORITHM = st.sampled_from(sorted(ALGORITHMS))
KIND = st.sampled_from(COMPARED)
SHAPE = st.tuples(st.integers(2, 4), st.integers(1, 4))


@given(ALGORITHM, KIND, SHAPE, st.booleans())
@example(
    algorithm=(Collective.ALL_REDUCE, "double-binary-tree"),
    kind=FabricKind.RAIL_ONLY,
    shape=(3, 4),
    exact=True,
)
def test_bytes_over_the_execution_are_those_of_the_transfers_times_their_hops(
    algorithm: tuple[Collective, str], kind: FabricKind, shape: tuple[int, int], exact: bool
) -> None:
    assume_accepted(algorithm, *shape)
    topology = build_topology(fabric_spec(kind, *shape))
    schedule = SizedCollective(*algorithm, shape, 100_000).steps()
    paths = transfer_paths(schedule.transfers, Epoch(topology), topology.job_gpus)
    arrival_s = None
    if exact:
        latency_s = {path_class(hops): 0.0 for hops in paths if hops}
        arrival_s = predict(schedule, [Epoch(topology)], latency_s).arrival_s
    fabric = healthy_network(schedule.transfers, topology)
    found = profile(schedule.transfers, *fabric, topology, arrival_s)
    wanted = dict.fromkeys(HopKind, 0.0)
    for transfer, hops in zip(schedule.transfers, paths, strict=True):
        for hop_kind in crossed(hops or (), topology):
            wanted[hop_kind] += wire_bytes(transfer.size_bytes)
    assert totals(found) == pytest.approx(wanted)
    assert sum(found.transfers) == pytest.approx(len(schedule.transfers))


@pytest.mark.parametrize("transport", Transport)
def test_bytes_are_in_the_slices_in_which_they_are_sent(transport: Transport) -> None:
    """A transfer of a second, then one of three seconds: a quarter of all slices, and the rest."""
    fabric = fabric_spec(FabricKind.RAIL_ONLY, 2, 1)
    topology = build_topology(replace(fabric, transport=transport))
    sizes, by_roce = [2_000_000, 3_000_000], transport is Transport.ROCE
    sent = Transfers.of([Transfer(0, 0, 1, sizes[0], ()), Transfer(1, 0, 1, sizes[1], (), (0,))])
    found = profile(sent, *healthy_network(sent, topology), topology, [1.0, 4.0])
    first, last = map(DEFAULT_ROCE.wire_bytes if by_roce else wire_bytes, sizes)
    kinds = {HopKind.ENDS, HopKind.SWITCH} | ({HopKind.QUEUE_PAIR} if by_roce else set())
    assert {kind for kind, _ in found.size_bytes} == kinds
    for parts in found.size_bytes.values():
        assert parts == pytest.approx([first / 100] * 100 + [last / 300] * 300)
    assert found.transfers == pytest.approx([1 / 100] * 100 + [1 / 300] * 300)
    for window_s, most in ((1.0, first), (2.0, (first + last / 3) / 2)):
        busiest = found.busiest(window_s, lambda load: load.size_bytes[HopKind.SWITCH])
        assert busiest.size_bytes[HopKind.SWITCH] == pytest.approx(most)


def crossed(hops: Iterable[Hop], topology: Topology) -> list[HopKind]:
    """Kinds of hops that handle a flow's packets: its two ends, and the nodes between them."""
    between = [hop.receiver for hop in hops][:-1]
    return [HopKind.ENDS, *(_kind_of(node, topology) for node in between)]


def _kind_of(node: str, topology: Topology) -> HopKind:
    if node in topology.gpu_by_name:
        return HopKind.TRANSIT
    return HopKind.SWITCH if node in topology.switch_by_name else HopKind.HB_SWITCH


def totals(found: Profile) -> dict[HopKind, float]:
    """The bytes of each kind of hop over the whole execution."""
    sums = dict.fromkeys(HopKind, 0.0)
    for (kind, _), parts in found.size_bytes.items():
        sums[kind] += sum(parts)
    return sums


@given(ALGORITHM, KIND, SHAPE)
def test_flows_that_share_no_link_are_never_later_than_the_model_has_them(
    algorithm: tuple[Collective, str], kind: FabricKind, shape: tuple[int, int]
) -> None:
    assume_accepted(algorithm, *shape)
    topology = build_topology(fabric_spec(kind, *shape))
    schedule = SizedCollective(*algorithm, shape, 40_000_000).steps()
    latency_s = dict.fromkeys(healthy_network(schedule.transfers, topology)[1].classes, 0.0)
    modeled_s = predict(schedule, [Epoch(topology)], latency_s).completion_s
    # Only the model has the token buckets' bursts at each step.
    fabric = healthy_network(schedule.transfers, topology)
    assert profile(schedule.transfers, *fabric, topology).completion_s <= modeled_s * 1.05


@given(ALGORITHM, SHAPE)
def test_the_formulas_count_transfers_and_steps(
    algorithm: tuple[Collective, str], shape: tuple[int, int]
) -> None:
    assume_accepted(algorithm, *shape)
    sent = SizedCollective(*algorithm, shape, 10_000).transfers()
    grid = Grid(x=shape[1], y=shape[0], hb=1, nic=1, slices=ALGORITHMS[algorithm].slices)
    closed_form = ALGORITHMS[algorithm].closed_form
    assert len(sent) == closed_form.transfers(grid)
    assert sent.longest_chain == closed_form.steps(grid)


def test_an_algorithm_without_its_formulas_cannot_be_entered() -> None:
    with pytest.raises(TypeError, match="closed_form"):
        Algorithm(ring_all_gather)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="completion_s"):
        ClosedForm(steps=lambda _grid: 1)  # type: ignore[call-arg]


@given(ALGORITHM, KIND, st.floats(1, 1e5), st.floats(1, 1e3))
def test_a_slower_execution_has_the_same_bytes_in_more_time(
    algorithm: tuple[Collective, str], kind: FabricKind, slower: float, smaller: float
) -> None:
    assume_accepted(algorithm, 2, 3)
    found = estimate(real_task(SizedCollective(*algorithm, (2, 3), 1e6), fabric_spec(kind, 2, 3)))
    scaled = found.scaled(slower, smaller)
    assert scaled.completion_s == pytest.approx(found.completion_s * slower / smaller)
    assert totals(scaled) == pytest.approx({k: v / smaller for k, v in totals(found).items()})
    before_bps, after_bps = (
        [flows.rate_bps for _, flows in one.size_bytes] for one in (found, scaled)
    )
    assert after_bps == pytest.approx([rate_bps / slower for rate_bps in before_bps])


@given(ALGORITHM, KIND, st.sampled_from([0.01, 0.25, 0.5, 1, 2]))
def test_no_second_has_more_than_all_of_it_nor_less_than_the_mean(
    algorithm: tuple[Collective, str], kind: FabricKind, window: float
) -> None:
    assume_accepted(algorithm, 3, 2)
    found = estimate(real_task(SizedCollective(*algorithm, (3, 2), 1e6), fabric_spec(kind, 3, 2)))
    busiest = found.busiest(found.completion_s * window, lambda load: sum(load.size_bytes.values()))
    all_bytes = sum(totals(found).values())
    rate = sum(busiest.size_bytes.values())
    assert all_bytes / found.completion_s <= rate * (1 + 1e-6)
    assert rate * found.completion_s * min(window, 1) <= all_bytes * (1 + 1e-6)


@given(st.integers(0, 399), st.integers(0, 500), st.sampled_from([0.0, 1000.0]))
def test_what_a_slice_alone_carries_is_spread_over_the_window(
    place: int, width: int, of_roce: float
) -> None:
    """A slice is a second here; a window has one at least, and no more than all."""
    parts = (0.0,) * place + (1.0,) + (0.0,) * (399 - place)
    found = Profile(400.0, {(HopKind.SWITCH, Flows(1e6, of_roce)): parts}, parts, 1)
    busiest = found.busiest(float(width), lambda load: load.transfers)
    assert busiest.transfers == pytest.approx(1 / min(400, max(1, width)))
    assert busiest.size_bytes[HopKind.SWITCH] == pytest.approx(busiest.transfers)
    packets = busiest.transfers / (of_roce or packet_bytes(1e6))
    assert busiest.packets[HopKind.SWITCH] == pytest.approx(packets)


@given(st.floats(1e5, 1e10), st.floats(1, 100))
def test_packets_grow_with_the_rate_but_never_faster(rate_bps: float, faster: float) -> None:
    slow, fast = packet_bytes(rate_bps), packet_bytes(rate_bps * faster)
    assert slow <= fast * (1 + 1e-9)
    assert fast <= slow * faster * (1 + 1e-9)


def test_mean_packets_are_those_measured_and_geometric_means_between() -> None:
    for rate_bps, size_bytes in ((1e5, 3200), (5e6, 3200), (20e6, 12_500), (180e6, 30_000)):
        assert packet_bytes(rate_bps) == pytest.approx(size_bytes)
    assert packet_bytes(1e12) == pytest.approx(30_000)
    assert packet_bytes(10e6) == pytest.approx((3200 * 12_500) ** 0.5)
    assert packet_bytes(60e6) == pytest.approx((12_500 * 30_000) ** 0.5)


SPARE = replace(fabric_spec(FabricKind.RAIL_ONLY, 3, 2), spares=Spares(rail_switches=1))
SPARE_BY_SPINES = replace(SPARE, kind=FabricKind.RAIL_OPTIMIZED)


@given(topologies())
@example(topology=build_topology(SPARE))
@example(topology=build_topology(SPARE_BY_SPINES))
def test_ports_are_those_of_all_switches(topology: Topology) -> None:
    links = [len(topology.links_of(switch)) for switch in topology.openflow_switches]
    assert switch_ports(topology.spec) == sum(links)


@pytest.mark.parametrize("kind", COMPARED)
@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS), ids=lambda found: "-".join(found))
def test_a_larger_fabric_is_estimated_from_a_smaller_one(
    kind: FabricKind, algorithm: tuple[Collective, str]
) -> None:
    if not accepts(algorithm, 16, 4):
        pytest.skip("the algorithm refuses this grid of GPUs")
    task = SizedCollective(*algorithm, (16, 4), 1e8)
    emulated = fabric_spec(kind, 16, 4)
    job = real_task(task, emulated)
    whole, estimated = followed(task, job.spec).profile, estimate(job)
    assert estimated.steps == whole.steps
    assert estimated.completion_s == pytest.approx(whole.completion_s, rel=0.05)
    # Load that ends sooner in the larger fabric may be counted for longer, but none is left out.
    left = {k: totals(estimated)[k] / size for k, size in totals(whole).items() if size}
    too_small = {kind.value: f"{share:.0%}" for kind, share in left.items() if share < 0.95}
    assert not too_small, (
        f"the estimate has only so much of the bytes of a kind of hop: {too_small}"
    )
    guess, truth = (needed_at_most(found, emulated) for found in (estimated, whole))
    assert guess.data >= 0.9 * truth.data, f"estimated {in_words(guess)}; it is {in_words(truth)}"


def needed_at_most(found: Profile, spec: FabricSpec) -> Need:
    """The need of the slice that needs the most, which is what `auto` and admission go by."""
    emulated = found.scaled(spec.bandwidth_scale, 1.0)
    return heaviest(emulated, TWO_CORES, switch_ports(spec), 0.0)[1]


def in_words(need: Need) -> str:
    parts = ", ".join(f"{kind.value} {share:.1%}" for kind, share in need.by_hop.items())
    return f"{need.data:.1%} of all cores ({parts})"
