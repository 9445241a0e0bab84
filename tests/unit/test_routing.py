"""Topology, addresses and paths, over many shapes."""

from collections import Counter
from itertools import permutations
from random import Random
from statistics import mean, stdev

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from model.fabric import addressing
from model.fabric.build import build_topology
from model.fabric.spec import FabricKind, SpineSelection
from model.fabric.topology import Gpu, LinkKind, Topology, lane_of
from model.job.placement import Addresses
from model.routing.paths import Routing
from tests.unit.fabrics import by_roce, destinations, regular_topologies, spec, topologies

MAX_INTERFACE_NAME = 15  # IFNAMSIZ - 1


@given(topologies())
def test_names_ports_and_addresses_are_unique(topology: Topology) -> None:
    ends = [port for link in topology.links for port in (link.lower, link.upper)]
    assert len({(port.node, port.number) for port in ends}) == len(ends)
    assert len({(port.node, port.interface) for port in ends}) == len(ends)
    assert len({link.name for link in topology.links}) == len(topology.links)
    lanes = destinations(topology)
    addresses = {addressing.nic_address(lane) for lane in lanes}
    addresses |= {addressing.hb_address(gpu) for gpu in topology.gpus}
    hardware = {addressing.nic_mac(lane) for lane in lanes}
    hardware |= {addressing.hb_mac(gpu) for gpu in topology.gpus}
    assert len(addresses) == len(hardware) == len(lanes) + len(topology.gpus)
    assert all(addressing.gpu_at(addressing.nic_address(lane)) == lane for lane in lanes)


def test_interface_names_fit_at_the_largest_size() -> None:
    last = addressing.MAX_DOMAINS - 1, addressing.MAX_DOMAIN_SIZE - 1
    longest = (f"spine{last[0]}-r{last[1]}", f"hb{last[0]}-g{last[1]}", "to-d{}g{}p7".format(*last))
    assert max(map(len, longest)) <= MAX_INTERFACE_NAME


@given(
    st.integers(0, addressing.MAX_DOMAINS - 1),
    st.integers(0, addressing.MAX_DOMAIN_SIZE - 1),
    st.integers(0, addressing.MAX_LANES - 1),
)
def test_addresses_lie_in_their_networks(domain: int, rail: int, lane: int) -> None:
    gpu = Gpu(domain, rail).by(lane)
    assert addressing.nic_address(gpu) in addressing.lane_network(gpu)
    assert addressing.lane_network(gpu).subnet_of(addressing.rail_network(rail))
    assert addressing.rail_network(rail).subnet_of(addressing.NIC_NETWORK)
    assert addressing.hb_address(gpu) in addressing.domain_network(domain)
    assert addressing.domain_network(domain).subnet_of(addressing.HB_NETWORK)
    assert addressing.hb_address(gpu) != addressing.domain_network(domain).broadcast_address


@given(topologies(4, 3))
def test_packets_have_the_addresses_of_the_lane_that_they_take(topology: Topology) -> None:
    addresses, ranks = Addresses(topology.gpus), {g: n for n, g in enumerate(topology.gpus)}
    for source in topology.gpus:
        for destination in destinations(topology):
            in_domain = source.domain == destination.domain
            lane = 0 if in_domain else destination.lane
            ends = addressing.ends(source, destination)
            assert addresses[ranks[source], ranks[destination.gpu], lane] == str(ends[1])
            assert list(map(addressing.gpu_at, ends)) == [source.by(lane), destination.gpu.by(lane)]
            assert not any(addressing.is_by_nic(str(end)) == in_domain for end in ends)


@given(topologies())
def test_every_pair_is_delivered_without_a_loop(topology: Topology) -> None:
    routing = Routing(topology)
    for source in topology.gpus:
        for destination in destinations(topology):
            hops = routing.path(source, destination)
            nodes = [source.name, *(hop.receiver for hop in hops)]
            assert nodes[-1] == destination.name
            assert len(set(nodes)) == len(nodes)


@given(regular_topologies())
def test_packets_take_the_ports_of_their_lane(topology: Topology) -> None:
    routing = Routing(topology)
    for source in topology.gpus:
        for destination in destinations(topology):
            nics = [h for h in routing.path(source, destination) if h.link.kind is LinkKind.NIC]
            assert {lane_of(hop.link) for hop in nics} <= {destination.lane}
            if nics:
                assert nics[-1].receiver == topology.holder(destination).name


@given(regular_topologies())
def test_rail_only_and_pxn_never_cross_rails_outside_the_hb_domains(topology: Topology) -> None:
    if topology.spec.routed_as is FabricKind.RAIL_ONLY:
        routing = Routing(topology)
        for source in topology.gpus:
            for destination in topology.gpus:
                hops = routing.path(source, destination)
                switches = [topology.switch_by_name.get(hop.receiver) for hop in hops]
                nics = topology.nic_links(topology.holder(destination))
                own = {topology.switch_by_name[nic.upper.node].rail for nic in nics}
                assert {s.rail for s in switches if s is not None} <= own


@given(topologies())
def test_traffic_within_a_domain_stays_there(topology: Topology) -> None:
    routing = Routing(topology)
    for source in topology.gpus:
        for rail in range(topology.spec.domain_size):
            destination = topology.gpu_at[source.domain, rail]
            kinds = {hop.link.kind for hop in routing.path(source, destination)}
            assert kinds <= {LinkKind.HB, LinkKind.HB_TRUNK}


@given(regular_topologies(), st.integers(1, 5), st.integers(1, 4))
def test_a_step_of_an_exchange_loads_all_uplinks_evenly(
    topology: Topology, domains: int, rails: int
) -> None:
    """No uplink has more than its even share of flows, rounded up, for any number of spines."""
    assume(topology.spec.nic.spine_selection is SpineSelection.DESTINATION)
    y, x = topology.spec.domains, topology.spec.domain_size
    assume(topology.spec.nics >= x)  # GPUs that share a NIC send several flows over it
    if topology.spec.routed_as is FabricKind.RAIL_ONLY or domains % y == 0 or rails % x == 0:
        return
    routing = Routing(topology)
    loads: Counter[object] = Counter()
    for source in topology.gpus:
        to = topology.gpu_at[(source.domain + domains) % y, (source.rail + rails) % x]
        loads.update(h for h in routing.path(source, to) if h.link.kind is LinkKind.UPLINK)
    spines = topology.spec.nic.spines
    assert max(loads.values()) <= -(-y // spines)


def test_the_seed_turns_the_spines_reproducibly() -> None:
    def spine(seed: int) -> str:
        topology = build_topology(spec(FabricKind.RAIL_OPTIMIZED, 4, 2, 4, seed))
        return Routing(topology).path(topology.gpu_at[0, 0], topology.gpu_at[1, 1])[1].receiver

    assert spine(0) == spine(0) == spine(4)
    assert len({spine(seed) for seed in range(4)}) == 4


@given(topologies(4, 3))
def test_the_digest_tells_topologies_apart(topology: Topology) -> None:
    again = build_topology(topology.spec)
    other = build_topology(spec(topology.spec.kind, 7, 1))
    assert again.digest == topology.digest != other.digest


@given(st.integers(2, 6), st.integers(2, 4), st.integers(2, 6), st.integers(0, 50))
def test_a_hash_keeps_each_flow_on_one_spine_and_spreads_flows_by_chance(
    domains: int, size: int, spines: int, seed: int
) -> None:
    hashed = spec(FabricKind.RAIL_OPTIMIZED, domains, size, spines, seed, 1, SpineSelection.HASH)
    topology = build_topology(hashed)
    routing, found = Routing(topology), Counter[str]()
    for source in topology.gpus:
        for destination in topology.gpus:
            if source.domain == destination.domain or source.rail == destination.rail:
                continue
            path = routing.path(source, destination)
            found.update(hop.receiver for hop in path if hop.receiver.startswith("spine"))
            assert path == routing.path(source, destination)
            assert len(path) == 4
    flows = domains * (domains - 1) * size * (size - 1)
    assert sum(found.values()) == flows
    # Far beyond what chance allows of independent flows (Chernoff), and not all on one.
    mean = flows / spines
    assert max(found.values()) <= mean + 6 * mean**0.5 + 6


def test_queue_pairs_by_hash_are_flows_of_their_own() -> None:
    """Eight queue pairs of two GPUs take 3.6 of 4 spine switches on average, and not always."""
    plain = build_topology(spec(FabricKind.RAIL_OPTIMIZED, 4, 4, 4))
    topology = by_roce(plain, 8, SpineSelection.HASH)
    routing, used = Routing(topology), list[int]()
    for one, other in permutations(topology.gpus, 2):
        if one.domain != other.domain and one.rail != other.rail:
            spines = {routing.path(one, other, number)[1].receiver for number in range(8)}
            used.append(len(spines))
    assert mean(used) == pytest.approx(4 * (1 - 0.75**8), abs=0.15)
    assert min(used) < 4


@pytest.mark.parametrize("spines", [2, 4, 8])
def test_flows_by_hash_collide_as_balls_in_bins_do(spines: int) -> None:
    """The busiest uplink of an all-to-all, over twenty seeds, beside random spines."""
    hashed, random = [], []
    for seed in range(20):
        fabric = spec(FabricKind.RAIL_OPTIMIZED, 4, 4, spines, seed, 1, SpineSelection.HASH)
        topology, dice = build_topology(fabric), Random(seed)
        routing, by_hash, by_chance = Routing(topology), Counter[object](), Counter[object]()
        for source, destination in permutations(topology.gpus, 2):
            if source.domain != destination.domain and source.rail != destination.rail:
                _, up, down, _ = routing.path(source, destination)
                by_hash.update((up, down))
                spine = dice.randrange(spines)
                by_chance.update(((source.rail, spine), (spine, destination.rail, "down")))
        hashed.append(max(by_hash.values()))
        random.append(max(by_chance.values()))
    # Twice the standard error of the difference of two means of twenty.
    assert mean(hashed) == pytest.approx(mean(random), abs=2 * stdev(random) / 10**0.5)


def test_flows_by_hash_collide_where_those_by_destination_do_not() -> None:
    """A step in which each of 16 GPUs sends to the next domain and rail: 16 of 16 uplinks."""
    used = {}
    for selection in (SpineSelection.DESTINATION, SpineSelection.HASH):
        topology = build_topology(spec(FabricKind.RAIL_OPTIMIZED, 4, 4, 4, 0, 1, selection))
        routing, loads = Routing(topology), Counter[object]()
        for gpu in topology.gpus:
            to = topology.gpu_at[(gpu.domain + 1) % 4, (gpu.rail + 1) % 4]
            loads.update(h for h in routing.path(gpu, to) if h.link.kind is LinkKind.UPLINK)
        used[selection] = max(loads.values())
    assert used[SpineSelection.DESTINATION] == 1 < used[SpineSelection.HASH]
