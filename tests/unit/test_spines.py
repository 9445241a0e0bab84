"""Spine switches by default, and spares, which take their part of trunks and uplinks."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from model.errors import InputError
from model.fabric.build import build_topology
from model.fabric.spec import FabricKind, Planes, Spares, SpineSelection
from model.fabric.topology import LinkKind, NodeKind
from model.prediction.platform_time import FRAMINGS
from model.routing.paths import Routing
from model.workload.transfers.collective import Collective
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.planning.on_paper import on_paper
from scenarios.planning.plan import estimate, idle_spines, notes, real_task
from scenarios.scenario import Scenario
from tests.unit.fabrics import by_roce as with_roce
from tests.unit.fabrics import spec
from traffic_gen.workloads.sized_collective import SizedCollective

RING = "workloads=[{collective: all-reduce, algorithm: hierarchical, size: 1 GB, size_scale: 800}]"
FEW = st.integers(0, 2)
Keys = Mapping[str, object]


def loaded(fabric: Keys, work: str = RING, is_on_paper: bool = False) -> Scenario:
    changes = [f"fabric.{key}={value}" for key, value in fabric.items()]
    return load(LIBRARY / "quickstart.yaml", [*changes, work], on_paper=is_on_paper)


def milliseconds(fabric: Keys, work: str = RING) -> float:
    scenario = loaded({"kinds": "rail-only", **fabric}, work)
    ((case,), _) = on_paper(scenario, FRAMINGS["none"](4096), 0.0)
    return case.completion_s * 1e3


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"spines": 2, "oversubscription": 2.0}, ()),
        ({"kinds": "rail-only", "oversubscription": 1.0}, ()),
        (
            {"kinds": "rail-only", "spines": 2, "oversubscription": 2.0, "spine_selection": "hash"},
            (
                "fabric.spines, fabric.oversubscription, fabric.spine_selection: no kind of "
                "fabric here has spine switches",
            ),
        ),
        ({"kinds": "rail-only", "rail_leaves": 2, "spines": 2, "spine_selection": "hash"}, ()),
        ({"kinds": "rail-only", "nic_ports": 2, "planes": "separate"}, ("fabric.planes: no kind",)),
        ({"kinds": "rail-optimized", "rail_leaves": 2}, ("fabric.rail_leaves: rail-only",)),
        ({"spines": 1}, ()),
        ({"spines": 1, "spine_selection": "hash"}, ("fabric.spine_selection: there is one",)),
    ],
)
def test_keys_of_switches_that_no_kind_has_are_told(keys: Keys, told: tuple[str, ...]) -> None:
    scenario = loaded(keys)
    assert len(scenario.left_out) == len(told)
    assert all(map(str.startswith, scenario.left_out, told))
    assert {f"not emulated: {what}" for what in scenario.left_out} <= {*notes(scenario)}


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(
        [
            {"kind": FabricKind.RAIL_OPTIMIZED},
            {"kind": FabricKind.RAIL_OPTIMIZED, "ports": 2, "planes": Planes.SEPARATE},
            {"kind": FabricKind.RAIL_ONLY, "rail_leaves": 2},
        ]
    ),
    st.integers(2, 4),
    st.integers(1, 24),
    st.sampled_from([None, *SpineSelection]),
)
def test_no_more_spine_switches_carry_data_than_is_said(
    shape: dict[str, Any], domains: int, spines: int, by_roce: SpineSelection | None
) -> None:
    fabric = build_topology(spec(domains=domains, domain_size=2, spines=spines, **shape))
    if by_roce:
        fabric = with_roce(fabric, 1, by_roce)
    routing, count = Routing(fabric), fabric.spec.entropies
    assert count <= 16  # rules match the last four bits of a UDP source port
    pairs = product(permutations(fabric.gpus, 2), range(count))
    hops = (hop for (one, other), entropy in pairs for hop in routing.path(one, other, entropy))
    nodes = {fabric.switch_by_name.get(hop.receiver) for hop in hops}
    used = {node.index % spines for node in nodes if node and node.kind is NodeKind.SPINE_SWITCH}
    most = fabric.spec.most_spines_used
    assert len(used) == most if by_roce is not SpineSelection.HASH else most == spines


def test_idle_spine_switches_are_told() -> None:
    for domains, named in ((4, "4 domains"), (1, "1 domain")):
        (told,) = idle_spines(scenario := loaded({"spines": 64, "domains": domains}))
        assert f"without faults, at most {domains} of 64 spine switches carry data" in told
        assert told.endswith(f"by {named}.")
        assert told in notes(scenario)
    assert not list(idle_spines(loaded({"spines": 4})))
    assert not list(idle_spines(loaded({"spines": 64, "spine_selection": "hash"})))
    (told,) = idle_spines(scenario := loaded({"pxn": "true"}))
    assert told.startswith("rail-optimized: with PXN, data takes spine switches only where no path")
    assert told in notes(scenario)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 9), st.integers(0, 3), st.integers(1, 9), st.integers(1, 2))
def test_by_default_an_uplink_carries_a_nic_port(
    domains: int, spares: int, leaves: int, ports: int
) -> None:
    assume(leaves <= domains + spares and 1 in (leaves, ports))
    shape = {"domains": domains, "domain_size": 1, "spare_domains": spares}
    for on in loaded({**shape, "rail_leaves": leaves, "nic_ports": ports}).fabrics:
        assert on.emulated_uplink_bps == pytest.approx(on.emulated_port_bps)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(2, 9),
    st.integers(1, 9),
    st.sampled_from([None, 1, 2, 3]),
    st.sampled_from([1.0, 4.0]),
)
def test_no_leaf_is_more_oversubscribed_than_asked(
    domains: int, leaves: int, spines: int | None, oversubscription: float
) -> None:
    assume(1 < leaves <= domains)
    shape = {"kinds": "rail-only", "domains": domains, "domain_size": 1, "rail_leaves": leaves}
    above: Keys = {"spines": spines or "null", "oversubscription": oversubscription}
    (fabric,) = loaded({**shape, **above}).fabrics
    down, up = Counter[str](), Counter[str]()
    for link in build_topology(fabric).links:
        if link.kind is LinkKind.NIC:
            down[link.upper.node] += link.rate_bps
        elif link.kind is LinkKind.UPLINK:
            up[link.lower.node] += link.rate_bps
    most = max(down[leaf] / up[leaf] for leaf in down)
    assert most == pytest.approx(oversubscription, rel=1e-3)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(2, 4), st.integers(1, 2))
def test_equal_leaves_of_a_rail_cost_nothing(below: int, leaves: int, size: int) -> None:
    shape = {"domains": below * leaves, "domain_size": size}
    several = milliseconds({**shape, "rail_leaves": leaves})
    assert several == pytest.approx(milliseconds(shape))


@settings(max_examples=30, deadline=None)
@given(st.tuples(FEW, FEW, FEW), st.integers(1, 4), st.integers(1, 4), st.sampled_from([None, 2]))
def test_paper_has_the_links_that_are_emulated(
    spares: tuple[int, int, int], rail_leaves: int, hb_leaves: int, spines: int | None
) -> None:
    assume((4 + spares[1]) % hb_leaves == 0)
    names = "spare_domains", "spare_gpus", "spare_rail_switches"
    keys = {"rail_leaves": rail_leaves, "hb_leaves": hb_leaves} | dict(
        zip(names, spares, strict=True)
    )
    scenario = loaded(keys if spines is None else {**keys, "spines": spines})
    for case in scenario.cases:
        emulated = scenario.spec_of(case.kind)
        real = real_task(case.task, emulated).spec
        links = build_topology(emulated).links, build_topology(real).links
        for one, other in zip(*links, strict=True):
            assert one.name == other.name
            scaled = one.rate_bps * emulated.bandwidth_scale
            assert other.rate_bps == pytest.approx(scaled, rel=1e-4)


@pytest.mark.parametrize(
    ("work", "fabric", "expected_ms"),
    [
        # An HB link's 64 MB / 6 five times, as each leaf HB switch has two of six GPUs.
        (
            "workloads=[{collective: all-to-all, algorithm: direct, size: 64 MB, "
            "communicator: domains}]",
            {"domains": 2, "domain_size": 6, "spare_gpus": 2, "hb_leaves": 4},
            0.1185,
        ),
        # 2(x-1)/x GB over HB links, and 2(y-1)/y of half of it over uplinks of half a NIC's rate.
        (RING, {"domains": 4, "domain_size": 2, "spare_domains": 2, "rail_leaves": 6}, 17.22),
        (
            RING,
            {"domains": 4, "domain_size": 2, "spare_domains": 2, "rail_leaves": 6, "spines": 2},
            32.22,
        ),
    ],
)
def test_spares_take_their_part_of_trunks_and_uplinks(
    work: str, fabric: Keys, expected_ms: float
) -> None:
    assert milliseconds(fabric, work) == pytest.approx(expected_ms, rel=1e-3)


def test_a_large_fabric_is_estimated_with_its_spares() -> None:
    task = SizedCollective(Collective.ALL_REDUCE, "hierarchical", (16, 16), 1e9)
    whole = spec(FabricKind.RAIL_OPTIMIZED, 16, 16, spines=16)
    spared = replace(whole, domains=18, domain_size=17, spares=Spares(domains=2, gpus=1))
    one, other = (estimate(real_task(task, on)).completion_s for on in (whole, spared))
    assert other == pytest.approx(one)


def test_spares_on_paper_have_the_limits_of_the_emulation() -> None:
    with pytest.raises(InputError, match="must have at most 4096 GPUs, spares included"):
        loaded({"spare_domains": 2000}, is_on_paper=True)


@pytest.mark.parametrize(("matrix", "count"), [("uniform", 1), ("ragged-sources", 0)])
def test_a_seed_of_a_matrix_that_draws_nothing_is_told(matrix: str, count: int) -> None:
    keys = f"size: 1 MB, matrix: {matrix}, matrix_seed: 5"
    work = f"workloads=[{{collective: all-to-all, algorithm: direct, {keys}}}]"
    told = "workloads.0.matrix_seed: uniform draws nothing by it"
    assert loaded({"kinds": "rail-only"}, work).left_out == (told,) * count


@pytest.mark.parametrize(("generator", "count"), [("agent", 0), ("iperf3", 1)])
def test_a_window_without_agents_is_told(generator: str, count: int) -> None:
    told = "fabric.window: agents alone use it"
    work = RING.replace("}]", f", generator: {generator}}}]")
    assert loaded({"window": 1}, work).left_out == (told,) * count
