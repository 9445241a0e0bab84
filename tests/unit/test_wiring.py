"""Custom fabrics: what a file of links may say, what is refused, and how packets are spread."""

import json
import re
import tempfile
from collections import Counter
from itertools import pairwise, permutations, product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.errors import InputError
from model.fabric.build import build_topology
from model.fabric.health import Epoch, Health, without
from model.fabric.shaping import SEGMENT_PACKETS
from model.fabric.spec import GBIT, FabricKind
from model.fabric.topology import Hop, LinkKind
from model.fabric.wiring import Wire, longest_delay_s
from model.prediction.fluid import predict
from model.prediction.network import networks, pairs_of
from model.routing.paths import Routing
from scenarios.format.networks import files
from scenarios.format.networks.files import names_of
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.planning.admission import latest_end_s
from scenarios.planning.auto import FINE_PACKETS
from scenarios.planning.plan import predicted_profile
from tests.unit.fabrics import spec, wired

FAT_TREE = LIBRARY / "fat-tree.yaml"


def fabric(change: tuple[str, str] = ("", "")) -> str:
    """The shipped scenario, changed."""
    text = FAT_TREE.read_text()
    assert change[0] in text
    return text.replace(*change, 1)


def test_links_make_up_a_fabric_of_three_tiers() -> None:
    (spec,) = load(FAT_TREE).fabrics
    topology = build_topology(spec)
    assert [len(tier) for tier in topology.tiers] == [4, 4, 4]
    rates = Counter((link.kind, link.rate_bps) for link in topology.links)
    assert rates[LinkKind.NIC, 20_000_000] == 8
    assert rates[LinkKind.UPLINK, 20_000_000] == rates[LinkKind.UPLINK, 5_000_000] == 8
    hops = Routing(topology).path(topology.gpu_at[0, 0], topology.gpu_at[3, 1])
    assert [hop.receiver[:3] for hop in hops[:3]] == ["edg", "agg", "cor"]


def test_a_shift_by_half_of_the_domains_loads_every_core_link_alike() -> None:
    """Each tier divides a destination's number by the choices below: none repeats them."""
    (spec,) = load(FAT_TREE).fabrics
    topology = build_topology(spec)
    routing, used = Routing(topology), Counter[str]()
    for gpu in topology.gpus:
        for hop in routing.path(gpu, topology.gpu_at[(gpu.domain + 2) % 4, gpu.rail]):
            if "core" in hop.link.upper.node:
                used[f"{hop.sender} {hop.link.name}"] += 1
    assert used == dict.fromkeys(used, 1)
    assert len(used) == 16  # each of eight links, in both directions


@pytest.mark.parametrize("switches", [4, 6, 8])
def test_both_ways_around_a_ring_of_switches_carry_the_same(switches: int) -> None:
    """To the opposite switch, both ways are equally long; all of them are of one tier."""
    fabric = spec(FabricKind.RAIL_OPTIMIZED, 2 * switches, 1)
    wires = [Wire(gpu, f"s{place // 2}", GBIT) for place, gpu in enumerate(fabric.gpu_names)]
    wires += [Wire(f"s{one}", f"s{(one + 1) % switches}", GBIT) for one in range(switches)]
    topology = build_topology(wired(fabric, wires))
    routing, used = Routing(topology), Counter[Hop]()
    for pair in permutations(topology.gpus, 2):
        used.update(hop for hop in routing.path(*pair) if hop.link.kind is LinkKind.UPLINK)
    assert len(used) == 2 * switches
    assert len(set(used.values())) == 1


def test_links_between_leaf_switches_leave_the_uplinks_their_equal_shares() -> None:
    """A fat tree of four pods, in each of which the two leaf switches are linked."""
    fabric = spec(FabricKind.RAIL_OPTIMIZED, 16, 1)
    wires = [Wire(gpu, f"leaf{place // 2}", GBIT) for place, gpu in enumerate(fabric.gpu_names)]
    wires += [Wire(f"leaf{2 * pod}", f"leaf{2 * pod + 1}", GBIT) for pod in range(4)]
    for pod, one, other in product(range(4), range(2), range(2)):
        wires.append(Wire(f"leaf{2 * pod + one}", f"agg{2 * pod + other}", GBIT))
        wires.append(Wire(f"agg{2 * pod + one}", f"core{2 * one + other}", GBIT))
    topology = build_topology(wired(fabric, wires))
    routing, used = Routing(topology), Counter[Hop]()
    for pair in permutations(topology.gpus, 2):
        used.update(hop for hop in routing.path(*pair) if hop.sender == hop.link.lower.node)
    assert {used[hop] for hop in used if hop.receiver[:3] in {"agg", "cor"}} == {12}


@given(st.integers(2, 6), st.integers(0, 20))
def test_destinations_take_the_uplinks_in_turn_and_those_of_a_lost_one_the_others(
    spines: int, seed: int
) -> None:
    """From a GPU of one leaf switch to the 20 of another; the seed says who begins."""
    fabric = spec(FabricKind.RAIL_OPTIMIZED, 40, 1, seed=seed)
    wires = [Wire(gpu, f"leaf{place // 20}", GBIT) for place, gpu in enumerate(fabric.gpu_names)]
    wires += [Wire(f"leaf{leaf}", f"spine{n}", GBIT) for leaf in range(2) for n in range(spines)]
    topology = build_topology(wired(fabric, wires))
    lost, others = "spine0", [f"spine{number}" for number in range(1, spines)]
    healthy, hurt = (Routing(topology, without(topology, of)) for of in ([], [lost]))
    source, moved = topology.gpus[0], Counter[str]()
    for number, destination in enumerate(topology.gpus[20:], 20):
        own, now = (each.path(source, destination)[1].receiver for each in (healthy, hurt))
        assert own == f"spine{(number + seed) % spines}"
        assert own in {now, lost}
        moved[now] += own == lost
    assert max(moved[one] for one in others) <= min(moved[one] for one in others) + 1


@pytest.mark.parametrize("more", [{}, {"matrix": "hot-expert"}])
def test_flows_that_share_the_uplinks_of_a_custom_fabric_contend(more: dict[str, str]) -> None:
    (spec,) = load(FAT_TREE).fabrics
    workload = {"collective": "all-to-all", "algorithm": "direct", "size": "4 MB", **more}
    few = fabric().replace("agg[0-1]", "agg0").replace("agg[2-3]", "agg2")
    few = few.replace('[agg1, agg3], to: "core[2-3]"', '[agg0, agg2], to: "core[2-3]"')
    assert spec.grain_packets == SEGMENT_PACKETS
    assert grain_of(few, workload) == FINE_PACKETS


def grain_of(text: str, workload: dict[str, str]) -> int:
    """The grain that is chosen for a workload on a fabric."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.yaml"
        path.write_text(text)
        (spec,) = load(path, [f"workloads=[{json.dumps(workload)}]"]).fabrics
    return spec.grain_packets


def test_packets_of_a_lost_uplink_alone_take_another_one() -> None:
    (spec,) = load(FAT_TREE).fabrics
    topology = build_topology(spec)
    healthy, hurt = (
        Routing(topology, Health(lost)) for lost in (frozenset[str](), frozenset({"edge0--agg0"}))
    )
    for one in topology.gpus:
        for other in topology.gpus:
            if one != other:
                before, after = healthy.path(one, other), hurt.path(one, other)
                assert before == after or "edge0--agg0" in {hop.link.name for hop in before}


def test_a_links_delay_is_added_to_the_latency_of_its_paths(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(
        fabric(("rate: 100 Gbit/s}", "rate: 100 Gbit/s, delay: 0.01}"))
    )
    scenario = load(tmp_path / "x.yaml")
    (spec,) = scenario.fabrics
    topology, steps = build_topology(spec), scenario.cases[0].schedule(spec)
    pairs, _ = pairs_of(steps.transfers, 8, 1)
    (net,) = networks([Epoch(topology)], topology.gpus, pairs)
    assert set(np.unique(np.round(net.added_s, 6)).tolist()) == {0.0, 0.02}
    latency_s = dict.fromkeys(net.classes, 0.0)
    assert predict(steps, [Epoch(topology)], latency_s).completion_s > 0.02


def test_the_longest_delay_is_that_of_a_shortest_path() -> None:
    slow = [("d0g0", "a", 0.01), ("a", "b", 0.02), ("b", "d1g0", 0.01), ("b", "d1g1", 0.04)]
    around = [("a", "c", 1.0), ("c", "e", 1.0), ("e", "b", 1.0)]
    wires = tuple(Wire(one, to, 1, delay_s) for one, to, delay_s in slow + around)
    gpus = "d0g0", "d1g0", "d1g1"
    assert longest_delay_s(wires, gpus, 0.0) == pytest.approx(0.07)
    assert longest_delay_s(wires, gpus, 0.5) == pytest.approx(0.07 + 3 * 0.5)
    plain = tuple(wire._replace(delay_s=0.0) for wire in wires)
    assert longest_delay_s(plain, gpus, 0.0) == 0


def test_the_longest_delay_is_that_of_two_paths_where_a_transit_gpu_joins_them() -> None:
    behind = {"a": ("d0g0", "d0g1", "d1g0"), "b": ("d1g1", "d2g0", "d2g1")}
    wires = tuple(Wire(gpu, to, 1, 0.002) for to, gpus in behind.items() for gpu in gpus)
    assert longest_delay_s(wires, behind["a"] + behind["b"], 0.0) == pytest.approx(0.008)


def test_a_long_path_of_slow_links_is_within_the_bound_of_an_execution(tmp_path: Path) -> None:
    """The bound that refuses late faults, where no transfer is followed."""
    links = []
    for name in "ab":
        path = ["d0g0", *(f"{name}{number}" for number in range(10))]
        ends = [*pairwise(path), ("d1g0", path[-1])]
        links += [{"from": one, "to": to, "delay": 0.002} for one, to in ends]
    fabric = {"domains": 2, "domain_size": 1, "nics_per_domain": 2, "links": links}
    work = {"collective": "all-reduce", "algorithm": "ring", "size": "1 kB"}
    rates = {"platform": "dgx-h100", "bandwidth_scale": 20000}
    (tmp_path / "x.yaml").write_text(json.dumps({"fabric": fabric | rates, "workloads": [work]}))
    scenario = load(tmp_path / "x.yaml", ["allow_overload=true"])
    (spec,), (case,) = scenario.fabrics, scenario.cases
    assert predicted_profile(case, spec).completion_s < latest_end_s(case, spec)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (("to: edge0", "to: lo"), "lo cannot be a switch: Railbed or Linux has this name"),
        (("to: edge0", "to: d7"), "d7 cannot be a switch"),
        (("to: edge0", "to: hb0"), "hb0 is an HB switch, whose links follow from hb_rate"),
        (('from: "d3g[0-1]"', 'from: "d4g[0-1]"'), "d4g0 is none of the 8 GPUs, d0g0 to d3g1"),
        (("to: edge0", "to: d1g0"), "d1g0 is a GPU: links lead to switches"),
        (("to: edge0", "to: my-edge"), "'my-edge' must be a letter and at most 9 more"),
        (('from: "d3g[0-1]"', "from: d3g0"), "d3g1 must have 1 NIC links, got 0"),
        (("to: edge0", "to: [edge0, edge1]"), "d0g0 must have 1 NIC links, got 2"),
        (('from: "edge[0-1]", to: "agg[0-1]"', "from: x, to: y"), "connect x to no GPU"),
        (('to: "agg[0-1]"', "to: [agg0, agg0]"), "edge0 and agg0 must be two nodes with one link"),
        (('"core[2-3]", rate', '"c[0-9999]", rate'), "must stand for 1 to 4096 names"),
        (("domains: 4", "domains: 4\n  spines: 2"), "spines: describes rails and spines"),
        (("domains: 4", "domains: 4\n  kinds: rail-only"), "links: need the kind custom"),
        (("rate: 100 Gbit/s", "rate: 1 Gbit/s"), "leaves link agg0--core0 0.05 Mbit/s, below"),
        (("rate: 100 Gbit/s", "rat: 100 Gbit/s"), "unknown key 'rat' (did you mean 'rate'?)"),
    ],
)
def test_what_no_fabric_is_is_refused_in_words(
    tmp_path: Path, change: tuple[str, str], what: str
) -> None:
    (tmp_path / "x.yaml").write_text(fabric(change))
    with pytest.raises(InputError, match=re.escape(what)):
        load(tmp_path / "x.yaml")


def test_dcqcn_needs_nics_of_one_rate(tmp_path: Path) -> None:
    marks = "transport: roce\n  roce: {congestion: dcqcn}\n  switch_queue: {ecn: true}"
    (tmp_path / "x.yaml").write_text(fabric(("domains: 4", f"domains: 4\n  {marks}")))
    load(tmp_path / "x.yaml")
    text = (tmp_path / "x.yaml").read_text()
    (tmp_path / "x.yaml").write_text(text.replace("to: edge0", "to: edge0, rate: 200 Gbit/s"))
    with pytest.raises(InputError, match="dcqcn needs NIC ports of one rate"):
        load(tmp_path / "x.yaml")


def test_parts_without_a_path_between_them_are_refused(tmp_path: Path) -> None:
    lines = [line for line in FAT_TREE.read_text().splitlines() if "core" not in line]
    (tmp_path / "x.yaml").write_text("\n".join(lines))
    with pytest.raises(InputError, match="leave d0g0 without a path to d2g0"):
        load(tmp_path / "x.yaml")


@pytest.mark.parametrize("lower", ["d0g0", "s0"])
def test_links_of_a_fabric_without_gpus_are_refused(lower: str) -> None:
    links = f"fabric.links=[{{from: {lower}, to: s1}}]"
    gone = ["fabric.domains=1", "fabric.domain_size=2", "fabric.missing=[d0g0, d0g1]"]
    with pytest.raises(InputError, match="must leave at least 2 GPUs, got 0"):
        load(FAT_TREE, [*gone, links])


def test_a_custom_kind_needs_links() -> None:
    with pytest.raises(InputError, match="custom needs links"):
        load(LIBRARY / "quickstart.yaml", ["fabric.kinds=custom"])


def test_links_need_the_domains_of_their_fabric(tmp_path: Path) -> None:
    links = "[{from: 'd[0-1]g[0-3]', to: r0}]"
    (tmp_path / "x.yaml").write_text(f"fabric: {{domain_size: 4, links: {links}}}\nworkloads: []\n")
    with pytest.raises(InputError, match=r"fabric\.domains: is required"):
        load(tmp_path / "x.yaml")


def test_a_network_of_its_own_file(tmp_path: Path) -> None:
    text = FAT_TREE.read_text()
    inside = text[text.index("  domains:") : text.index("workloads:")].replace("\n  ", "\n")[2:]
    network, rest = inside.replace("bandwidth_scale: 20000\n", ""), text[text.index("workloads:") :]
    (tmp_path / "tree.yaml").write_text(network)
    (tmp_path / "x.yaml").write_text(
        f"fabric: {{topology: tree.yaml, bandwidth_scale: 20000}}\n{rest}"
    )
    assert load(tmp_path / "x.yaml").fabrics == load(FAT_TREE).fabrics
    (tmp_path / "tree.yaml").write_text(network.replace("rate: 100", "rat: 100"))
    with pytest.raises(InputError, match=r"tree\.yaml:12 links\.6\.rat: unknown key 'rat'"):
        load(tmp_path / "x.yaml")


def test_a_range_stands_for_names() -> None:
    assert list(names_of("d[0-1]g[2-3]")) == ["d0g2", "d0g3", "d1g2", "d1g3"]
    assert list(names_of("core")) == ["core"]
    assert list(names_of("leaf[08-10]")) == ["leaf08", "leaf09", "leaf10"]


@pytest.mark.parametrize("ends", ["to: r", "to: 'r[0-9999]'", "to: []", "a: 1"])
@pytest.mark.parametrize("lower", ["'d[0-4095]g0'", "[s, 'd[0-4095]g0', 'd[0-9999]g1']"])
def test_too_many_links_are_refused_before_their_names_are_made(lower: str, ends: str) -> None:
    links = ", ".join([f"{{from: {lower}, {ends}}}"] * 100)
    with (
        patch.object(files, "names_of", side_effect=AssertionError),
        pytest.raises(InputError, match=r"fabric\.links: must be at most 16384"),
    ):
        load(FAT_TREE, [f"fabric.links=[{links}]"])


def test_parts_of_a_transfer_need_a_single_port_of_a_gpu() -> None:
    """Parts may end at either port of a GPU, where the model has one path of NIC links."""
    spread = ["fabric.transport=roce", "fabric.spine_selection=hash"]
    split = [*spread, "fabric.roce={queue_pairs: 2, split_data: true}"]
    load(FAT_TREE, split)
    with pytest.raises(InputError, match="split_data: needs a GPU with one NIC port"):
        load(FAT_TREE, [*split, "fabric.nic_ports=2"])
