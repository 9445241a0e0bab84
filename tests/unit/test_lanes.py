"""Lanes: transfers in parts on all NIC ports, or pairs on one of them by a hash."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.fabric.build import build_topology
from model.fabric.health import HEALTHY, Epoch, Health, without
from model.fabric.spec import COMPARED, FabricKind, FabricSpec, Planes, Spread
from model.fabric.topology import Hop, Topology
from model.prediction.fluid import predict
from model.prediction.network import FIRST_LINK, Terms, networks
from model.routing.paths import Routing
from model.workload.schedule import Steps, WorkSteps
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import NONE, Transfer, Transfers
from model.workload.transfers.lanes import Lanes, spread
from scenarios.library_files import LIBRARY
from scenarios.load import load
from tests.unit.fabrics import accepts, custom_topologies, destinations, spec, topologies
from tests.unit.test_scenario_issues import GOOD, problems
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS
from traffic_gen.workloads.sized_collective import SizedCollective

NAMED = list(ALGORITHMS)
ALL_TO_ALL = Collective.ALL_TO_ALL, "direct"
PLAIN = Terms(bursts=False, last_segment=False, acknowledgements=False, probes=False)


def fabric(kind: FabricKind = FabricKind.RAIL_ONLY, nics: int | None = None) -> FabricSpec:
    return spec(kind, 4, 2, spines=4, ports=2, nics=nics)


def sent(steps: Steps) -> Counter[tuple[int, int]]:
    count = Counter[tuple[int, int]]()
    for transfer in steps.transfers:
        count[transfer.source, transfer.destination] += transfer.size_bytes
    return count


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(NAMED), st.integers(1, 40_000), st.sampled_from([None, 4]))
def test_the_parts_of_transfers_are_proved_and_make_up_the_whole(
    named: tuple[Collective, str], size: int, nics: int | None
) -> None:
    if not accepts(named, 4, 2):
        return
    lanes = Lanes.of(fabric(nics=nics))
    whole = SizedCollective(*named, (4, 2), size).steps()
    spread = whole.over(lanes)  # proves it, or raises
    assert sent(spread) == sent(whole)
    assert spread.digest != whole.digest or not spread.transfers.lane.any()
    for transfer in spread.transfers:
        same_domain = transfer.source // 2 == transfer.destination // 2
        assert not (same_domain and transfer.lane)
        assert transfer.size_bytes > 0


def seconds(steps: Steps, on: FabricSpec, health: Health = HEALTHY) -> float:
    topology = build_topology(on)
    return predict(steps, [Epoch(topology, health)], defaultdict(float), terms=PLAIN).completion_s


@pytest.mark.parametrize("kind", COMPARED)
@pytest.mark.parametrize("planes", Planes)
def test_a_port_has_half_the_rate_and_all_traffic_when_it_is_left_alone(
    kind: FabricKind, planes: Planes
) -> None:
    two = replace(fabric(kind), nic=replace(fabric(kind).nic, planes=planes))
    one = replace(two, nic=replace(two.nic, ports=1))
    whole = SizedCollective(*ALL_TO_ALL, (4, 2), 8_000_000).steps()
    spread = whole.over(Lanes.of(two))
    assert seconds(spread, two) == pytest.approx(seconds(whole, one), rel=1e-3)
    lost = without(build_topology(two), ["rail1p0"])
    assert seconds(spread, two, lost) == pytest.approx(2 * seconds(whole, one), rel=1e-2)


@given(custom_topologies(4, 2).filter(lambda topology: topology.spec.lanes == 2))
def test_a_switch_of_a_custom_fabric_sends_to_that_of_the_lane_if_it_is_as_near(
    topology: Topology,
) -> None:
    routing = Routing(topology)
    for source, destination in product(topology.gpus, destinations(topology)):
        own = topology.nic_links(destination)[destination.lane].upper.node
        for node, _, next_hop in routing.walk(source, destination):
            if node in topology.switch_by_name and next_hop:
                near = {hops[-1].receiver for hops in routing.ports(node, destination).next_hops}
                assert next_hop[-1].receiver == own or own not in near


@given(topologies().filter(lambda topology: topology.spec.nic.ports == 2), st.data())
def test_no_port_and_no_rail_switch_of_two_is_missed(
    topology: Topology, data: st.DataObject
) -> None:
    """Its own packets take another way, without a GPU more; all others go on as before."""
    switch = data.draw(st.sampled_from(topology.rail_switches))
    before, after = Routing(topology), Routing(topology, without(topology, [switch]))
    for source in topology.gpus:
        for destination in destinations(topology):
            hops, now = before.path(source, destination), after.path(source, destination)
            if switch in (hop.receiver for hop in hops):
                assert transit(now, topology) == transit(hops, topology)
            else:
                assert now == hops


def transit(hops: tuple[Hop, ...], topology: Topology) -> int:
    return sum(hop.receiver in topology.gpu_by_name for hop in hops)


@pytest.mark.parametrize("planes", ["fabric.planes=separate", "fabric.spread=hash"])
def test_a_trace_is_replayed_on_two_ports(planes: str) -> None:
    """Each message of a node is sent in parts, which together are all of it."""
    scenario = load(LIBRARY / "traces.yaml", ["fabric.nic_ports=2", planes])
    for case in scenario.cases:
        on = scenario.spec_of(case.kind)
        whole, spread = case.task.steps(), case.task.steps().over(Lanes.of(on))
        assert sent(spread) == sent(whole)


def test_by_hash_each_pair_has_one_lane_and_pairs_collide() -> None:
    on = replace(fabric(), nic=replace(fabric().nic, spread=Spread.HASH))
    whole = SizedCollective(*ALL_TO_ALL, (4, 2), 8_000_000).steps()
    spread = whole.over(Lanes.of(on))
    assert sent(spread) == sent(whole)
    assert len(spread.transfers) == len(whole.transfers)
    used = {(t.source, t.destination): t.lane for t in spread.transfers}
    assert set(used.values()) == {0, 1}
    assert not any(lane for (a, b), lane in used.items() if a // 2 == b // 2)
    assert seconds(spread, on) > 1.05 * seconds(whole.over(Lanes.of(fabric())), fabric())


def test_jobs_are_hashed_by_their_own_gpus(tmp_path: Path) -> None:
    """On paper, where all jobs are spread at once, as emulated, where each is spread by itself."""
    work = "collective: all-to-all, algorithm: direct, size: 1 MB"
    path = tmp_path / "x.yaml"
    path.write_text(
        "fabric: {kinds: rail-optimized, domains: 4, domain_size: 4, nic_ports: 2, spread: hash, "
        "platform: dgx-h100, bandwidth_scale: 20000}\nseed: 1\nworkloads:\n"
        f"  - jobs: [{{name: a, rails: 0-1, {work}}}, {{name: b, rails: 2-3, {work}}}]\n"
    )
    scenario = load(path)
    (on,) = scenario.fabrics
    for case in scenario.cases:
        lanes = case.schedule(on).transfers.lane
        assert (lanes == spread(case.task.transfers(), on).lane).all()
    of_jobs = np.split(lanes, 2)
    assert (of_jobs[0] != of_jobs[1]).any()


def test_what_waits_for_a_transfer_waits_for_all_of_its_parts() -> None:
    steps = WorkSteps(
        task="trace",
        algorithm="",
        gpus=8,
        size_bytes=0,
        transfers=Transfers.of(
            [
                Transfer(0, 0, 2, 101, ()),
                Transfer(1, 2, 3, 50, (), (0,)),
                Transfer(2, 0, 2, 10, (), (0,), ready=0),
                Transfer(3, 3, 2, 1, (), (1,), ready=2),
            ]
        ),
    )
    parts = steps.over(Lanes.of(fabric())).transfers
    assert parts.size_bytes.tolist() == [51, 50, 50, 5, 5, 1]
    assert parts.lane.tolist() == [0, 1, 0, 0, 1, 0]
    assert [transfer.after for transfer in parts] == [(), (), (0, 1), (0, 1), (0, 1), (2,)]
    assert parts.ready.tolist() == [NONE, NONE, NONE, 0, 1, 4]


@given(topologies(4, 4), st.data())
def test_the_model_charges_the_links_of_each_lane(topology: Topology, data: st.DataObject) -> None:
    lost = data.draw(st.sets(st.sampled_from([link.name for link in topology.links]), max_size=3))
    health = Health(frozenset(lost))
    gpus, routing = topology.gpus, Routing(topology, health)
    ends = [
        (a, b, k)
        for a, b in permutations(range(len(gpus)), 2)
        for k in (0, topology.spec.lanes - 1)
    ]
    pairs = np.array(ends).T
    (net,) = networks([Epoch(topology, health)], gpus, (*pairs, np.zeros_like(pairs[0])))
    for row, (source, to, lane) in zip(net.paths, ends, strict=True):
        hops = routing.path_if_any(gpus[source], gpus[to].by(lane))
        charged = [net.hops[n - FIRST_LINK] for n in row if n >= FIRST_LINK]
        assert charged == list(hops or ())


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("nic_ports=3", "fabric.nic_ports: must be at most 2, got 3"),
        ("planes=bonded", "fabric.planes: needs two ports; a NIC has 1 port (add nic_ports: 2)"),
        ("spread=hash", "fabric.spread: needs two ports; a NIC has 1 port (add nic_ports: 2)"),
        ("nic_ports=2 planes=separate spread=hash", "fabric.spread: hash needs bonded ports"),
        ("nics_per_domain=3", "3 NICs and 2 GPUs of a domain: one number must divide the other"),
        ("nics_per_domain=32", "a GPU must have at most 8 NIC ports, got 16"),
        ("nic_ports=2 rail_leaves=2", "fabric.rail_leaves: needs one NIC of one port for each"),
        ("nic_ports=2 spare_gpus=1", "fabric.spare_gpus: needs one NIC of one port for each GPU"),
        ("kinds=rail-only pxn=false", "fabric.pxn: has no effect here: rail-only always uses the"),
        ("nics_per_domain=1 spare_rail_switches=1", "fabric.spare_rail_switches: needs one NIC"),
    ],
)
def test_ports_and_nics_that_do_not_fit_are_refused(file: Path, keys: str, message: str) -> None:
    (problem,) = problems(file, GOOD, *(f"fabric.{key}" for key in keys.split()))
    assert message in problem


def test_too_many_transfers_to_follow_are_refused_before_they_are(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SizedCollective, "steps", lambda *_: pytest.fail("a schedule is built"))
    grid = "fabric.domains=128", "fabric.domain_size=8", "fabric.nics_per_domain=4"
    rings = "workloads=[{collective: all-reduce, algorithm: rings, size: 330 MB}]"
    (problem,) = problems(file, GOOD, *grid, rings)
    assert "rings must have at most 2097152 transfers, got 8380416" in problem


def test_a_generator_that_uses_one_port_is_refused(file: Path) -> None:
    (problem,) = problems(file, GOOD, "fabric.nic_ports=2", "workloads.0.generator=iperf3")
    assert "iperf3 uses one NIC port of a GPU (use generator: agent)" in problem
