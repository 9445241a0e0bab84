"""Fabrics and schedules for property tests."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product

from hypothesis import assume
from hypothesis import strategies as st

from controller.planner import DesiredState, Planner
from model.fabric.build import build_topology
from model.fabric.health import HEALTHY, Epoch, Health, without
from model.fabric.spec import (
    COMPARED,
    GBIT,
    FabricKind,
    FabricSpec,
    HbNetwork,
    NicNetwork,
    Planes,
    SpineSelection,
)
from model.fabric.topology import Gpu, Hop, RankGpus, Topology
from model.fabric.transport import Roce, Transport
from model.fabric.wiring import Wire, upward
from model.routing.paths import Routing
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import Transfer
from model.workload.transfers.proof import ScheduleError
from traffic_gen.workloads.sized_collective import SizedCollective

BY_TCP = SpineSelection.DESTINATION, SpineSelection.HASH


def by_roce(fabric: Topology, queue_pairs: int, spine_selection: SpineSelection) -> Topology:
    """The fabric with RoCE: spines selected by hash for some queue pairs, or for each packet."""
    spec = replace(fabric.spec, transport=Transport.ROCE, roce=Roce(queue_pairs=queue_pairs))
    return build_topology(replace(spec, nic=replace(spec.nic, spine_selection=spine_selection)))


def spec(
    kind: FabricKind,
    domains: int,
    domain_size: int,
    spines: int = 1,
    seed: int = 0,
    rail_leaves: int = 1,
    spine_selection: SpineSelection = SpineSelection.DESTINATION,
    ports: int = 1,
    planes: Planes = Planes.BONDED,
    nics: int | None = None,
    pxn: bool = False,
) -> FabricSpec:
    """A fabric at DGX H100 rates, slowed down by 20 000."""
    return FabricSpec(
        kind=kind,
        domains=domains,
        domain_size=domain_size,
        platform="dgx-h100",
        hb=HbNetwork(3600 * GBIT),
        nic=NicNetwork(
            400 * GBIT,
            spines=spines,
            leaves=rail_leaves if kind is FabricKind.RAIL_ONLY and ports == 1 else 1,
            spine_selection=spine_selection,
            ports=ports,
            planes=planes,
            per_domain=nics,
            pxn=pxn and kind is FabricKind.RAIL_OPTIMIZED,
        ),
        bandwidth_scale=20_000,
        seed=seed,
    )


def with_hb_leaves(fabric: FabricSpec, leaves: int, oversubscription: float = 1.0) -> FabricSpec:
    """The fabric with a number of leaf HB switches in each domain."""
    hb = replace(fabric.hb, leaves=leaves, oversubscription=oversubscription)
    return replace(fabric, hb=hb)


def accepts(named: tuple[Collective, str], domains: int, domain_size: int) -> bool:
    """Whether an algorithm can serve a grid of GPUs."""
    try:
        SizedCollective(*named, (domains, domain_size), 1).require_accepted()
    except ScheduleError:
        return False
    return True


def assume_accepted(named: tuple[Collective, str], domains: int, domain_size: int) -> None:
    """Leave out of a property test a grid of GPUs that the algorithm refuses."""
    assume(accepts(named, domains, domain_size))


def destinations(topology: Topology) -> list[Gpu]:
    """All GPUs, each by all of its lanes."""
    return [gpu.by(lane) for gpu in topology.gpus for lane in range(topology.spec.lanes)]


def desired_state(topology: Topology, health: Health = HEALTHY) -> DesiredState:
    """The rules and routes for a fabric of this health."""
    return Planner(topology).state(health)


def wired(fabric: FabricSpec, links: Sequence[Wire]) -> FabricSpec:
    """The fabric with these links above its NICs."""
    nic = replace(fabric.nic, spines=1, links=upward(links, fabric.gpu_names))
    return replace(fabric, kind=FabricKind.CUSTOM, nic=nic)


@st.composite
def custom_topologies(draw: st.DrawFn, max_domains: int = 5, max_size: int = 4) -> Topology:
    """Fabrics of up to three tiers of switches, with any links that join them."""
    ports = draw(st.sampled_from([1, 1, 2]))
    shape = draw(st.integers(2, max_domains)), draw(st.integers(1, max_size))
    selection, seed = draw(st.sampled_from(BY_TCP)), draw(st.integers(0, 20))
    fabric = spec(
        FabricKind.RAIL_OPTIMIZED, *shape, seed=seed, ports=ports, spine_selection=selection
    )
    leaves, aggregations, cores = (
        [f"{tier}{number}" for number in range(draw(st.integers(least, most)))]
        for tier, least, most in (("leaf", ports, 4), ("agg", 1, 3), ("core", 0, 2))
    )
    pairs = {(leaf, "agg0") for leaf in leaves}
    pairs |= {(draw(st.sampled_from(leaves)), aggregation) for aggregation in aggregations}
    pairs |= {(draw(st.sampled_from(aggregations)), core) for core in cores}
    tiers = (leaves, aggregations), (aggregations, cores), (leaves, cores)
    choices = [*combinations(leaves, 2), *(pair for two in tiers for pair in product(*two))]
    pairs |= set(draw(st.lists(st.sampled_from(choices), max_size=12)))
    of_gpus = [
        (gpu, leaf) for gpu in fabric.gpu_names for leaf in draw(st.permutations(leaves))[:ports]
    ]
    rates = st.sampled_from([100 * GBIT, 400 * GBIT])
    # The order of links is that of their switches' ports.
    links = draw(st.permutations([*of_gpus, *sorted(pairs)]))
    return build_topology(wired(fabric, [Wire(*ends, draw(rates)) for ends in links]))


def topologies(
    max_domains: int = 6, max_size: int = 5, most_missing: int = 0
) -> st.SearchStrategy[Topology]:
    """Regular fabrics, of both kinds, and custom ones."""
    return st.one_of(
        regular_topologies(max_domains, max_size, most_missing),
        custom_topologies(max_domains, max_size),
    )


def regular_topologies(
    max_domains: int = 6, max_size: int = 5, most_missing: int = 0
) -> st.SearchStrategy[Topology]:
    """Fabrics of both kinds, some with a Clos for each rail, two HB tiers, or GPUs missing."""
    return st.builds(
        spec,
        kind=st.sampled_from(COMPARED),
        domains=st.integers(2, max_domains),
        domain_size=st.integers(1, max_size),
        spines=st.integers(1, 6),
        seed=st.integers(0, 20),
        rail_leaves=st.sampled_from([1, 1, 2]),
        spine_selection=st.sampled_from(BY_TCP),
        ports=st.sampled_from([1, 1, 2]),
        planes=st.sampled_from(Planes),
        pxn=st.booleans(),
    ).flatmap(lambda fabric: _of_leaves(fabric, most_missing))


def _of_leaves(fabric: FabricSpec, most_missing: int) -> st.SearchStrategy[Topology]:
    """Build a fabric with any numbers of leaf HB switches and NICs that its domains can have."""
    size = fabric.domain_size
    divisors = [n for n in range(1, size + 1) if size % n == 0]
    nics = [None] if fabric.nic.leaves > 1 else [None, None, *divisors, 2 * size]
    made = st.builds(_made, st.just(fabric), st.sampled_from(divisors), st.sampled_from(nics))
    return made.flatmap(lambda of: without_some(of, most_missing)).map(build_topology)


def _made(fabric: FabricSpec, hb_leaves: int, nics: int | None) -> FabricSpec:
    nic = replace(fabric.nic, per_domain=nics)
    return replace(with_hb_leaves(fabric, hb_leaves), nic=nic)


def without_some(fabric: FabricSpec, most: int) -> st.SearchStrategy[FabricSpec]:
    """The fabric, or one from which GPUs are missing: not the first of an HB switch or a NIC."""
    below = fabric.domain_size // fabric.hb.leaves
    shared = max(1, fabric.domain_size // fabric.nics)
    slots = product(range(fabric.domains), range(fabric.domain_size))
    others = [slot for slot in slots if slot[1] % below and (shared == 1 or slot[1] % shared)]
    if not others or not most:
        return st.just(fabric)
    some = st.lists(st.sampled_from(others), max_size=most, unique=True)
    return some.map(lambda found: replace(fabric, missing=tuple(found)))


@st.composite
def fabrics_with_failures(
    draw: st.DrawFn, max_domains: int = 4, max_size: int = 4
) -> tuple[Topology, Health]:
    """A fabric, perhaps with GPUs missing; up to two nodes and up to six links are lost."""
    topology = draw(topologies(max_domains, max_size, most_missing=2))
    nodes = [gpu.name for gpu in topology.gpus] + [
        *topology.hb_switches,
        *topology.hb_leaves,
        *topology.openflow_switches,
    ]
    dead = draw(st.lists(st.sampled_from(nodes), max_size=2, unique=True))
    names = [link.name for link in topology.links]
    links = draw(st.lists(st.sampled_from(names), max_size=6, unique=True))
    return topology, without(topology, dead, links)


def transfer_paths(
    transfers: Sequence[Transfer], epoch: Epoch, gpus: RankGpus
) -> list[tuple[Hop, ...] | None]:
    """The path of every transfer; `None` for unreachable destinations."""
    routing = Routing(epoch.topology, epoch.health)
    known = {
        (source, to, lane): routing.path_if_any(gpus[source], gpus[to].by(lane))
        for source, to, lane in {(t.source, t.destination, t.lane) for t in transfers}
    }
    return [known[t.source, t.destination, t.lane] for t in transfers]
