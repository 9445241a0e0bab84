"""Networks in the files of other tools: the fabric that they are, and why one is none."""

import contextlib
import re
from collections import Counter
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.errors import InputError
from model.fabric.build import build_topology
from model.fabric.topology import LinkKind, Topology
from model.prediction.platform_time import FRAMINGS
from model.routing.paths import Routing
from scenarios.format.document import parse
from scenarios.format.networks.files import (
    FORMATS,
    KIND,
    OF_ASTRA_SIM,
    read_astra_sim,
    read_network,
)
from scenarios.format.networks.ns3 import read_ns3, read_simai
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.planning.on_paper import on_paper
from scenarios.planning.plan import estimate, notes, real_task
from tests.unit.simai_topologies import ELEVEN, Options, text_of
from tests.unit.test_traces import damaged
from traffic_gen.traces.formats.nodes import Malformed

ASTRA_SIM, SIMAI = (
    LIBRARY / "networks" / name for name in ("two-hosts.yml", "two-servers.topology")
)
OURS = Path(__file__).parents[1] / "samples" / "networks"
WORKLOAD = "workloads: [{collective: all-to-all, algorithm: two-step, size: 8 MB}]\n"


def astra_sim(text: str) -> dict[str, object]:
    """Read a text as a network of ASTRA-sim."""
    return read_astra_sim(parse(Path("n.yml"), text, KIND))


def test_a_network_of_astra_sim() -> None:
    assert read_network(ASTRA_SIM) == {
        "topology": str(ASTRA_SIM),
        "kinds": "rail-only",
        "domains": 2,
        "domain_size": 4,
        "hb_rate": f"{450 * 8 * 2**30 / 1e9:.12g} Gbit/s",
        "nic_rate": f"{50 * 8 * 2**30 / 1e9:.12g} Gbit/s",
    }


def test_one_dimension_of_astra_sim_is_one_hb_domain(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    for keys, shape in (("", (1, 8)), (", domain_size: 1", (8, 1))):
        fabric = f"fabric: {{topology: {OURS}/one-dimension.yml, bandwidth_scale: 20000{keys}}}\n"
        path.write_text(
            f"{fabric}workloads: [{{collective: all-reduce, algorithm: ring, size: 8 MB}}]\n"
        )
        (spec,) = load(path).fabrics
        assert (spec.domains, spec.domain_size) == shape
        assert spec.emulated_nic_bps == spec.emulated_hb_bps == 450 * 8 * 2**30 / 20000


def test_other_domains_of_a_network_need_their_number(tmp_path: Path) -> None:
    """Half of its NPUs would be lost in silence."""
    path, keys = tmp_path / "x.yaml", f"topology: {OURS}/one-dimension.yml, bandwidth_scale: 20000"
    path.write_text(f"fabric: {{{keys}, domain_size: 4}}\n{WORKLOAD}")
    with pytest.raises(InputError, match=r"domain_size: is 8 in .*, got 4 \(give domains as"):
        load(path)
    path.write_text(f"fabric: {{{keys}, domain_size: 4, domains: 2, platform: null}}\n{WORKLOAD}")
    assert load(path).fabrics[0].gpus == 8


def test_a_ring_of_two_hosts_is_a_switch() -> None:
    text = ASTRA_SIM.read_text().replace("[ Switch, Switch ]", "[ Switch, Ring ]")
    assert astra_sim(text)["domains"] == 2
    assert astra_sim(text.replace("Ring", "FullyConnected"))["domains"] == 2
    with pytest.raises(InputError, match="a rail must be a switch, got 'Ring' of 4 NPUs"):
        astra_sim(text.replace("[ 4, 2 ]", "[ 4, 4 ]"))
    assert astra_sim(text.replace("[ 4, 2 ]", "[ 4, 1 ]"))["domains"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "topology : [ Switch ]\nnpus_count : [ 8 ]\nbandwidth : [ 450.0 ]\n",
        "{topology: [Switch], npus_count: [8], bandwidth: [450.0]}\n",
        '{"topology": ["Switch"], "npus_count": [8], "bandwidth": [450.0]}\n',
        "# a network\n---\n'topology':\n  - Switch\nnpus_count: [ 8 ]\nbandwidth: [ 450 ]\n",
    ],
)
def test_a_network_of_astra_sim_is_known_in_any_style_of_yaml(tmp_path: Path, text: str) -> None:
    (tmp_path / "n.yml").write_text(text)
    assert astra_sim(text) == astra_sim((OURS / "one-dimension.yml").read_text())
    assert "topology" not in read_network(tmp_path / "n.yml")


@pytest.mark.parametrize(
    "text",
    [
        '{domains: 1, domain_size: 2, platform: h800, links: [{from: "d0g[0-1]", to: a}]}',
        '"links" : [{"from": "d0g[0-1]", "to": "a"}]\nplatform: h800\ndomains: 1\ndomain_size: 2',
    ],
)
def test_a_custom_network_is_known_in_any_style_of_yaml(tmp_path: Path, text: str) -> None:
    (tmp_path / "n.yml").write_text(f"{text}\n")
    keys = read_network(tmp_path / "n.yml")
    assert (keys["domain_size"], keys["platform"]) == (2, "h800")
    assert keys["links"] == [{"from": ["d0g0", "d0g1"], "to": ["a"]}]


def test_a_custom_network_without_links_needs_them(tmp_path: Path) -> None:
    (tmp_path / "n.yml").write_text("domains: 1\ndomain_size: 2\nplatform: h800\n")
    with pytest.raises(InputError, match=r"n\.yml:1 links: is required"):
        read_network(tmp_path / "n.yml")


@pytest.mark.parametrize(
    ("change", "overrides", "message"),
    [
        (("to: b", "to: d0"), (), "n.yml:6 links.1: d0 cannot be a switch: Railbed or Linux has"),
        (("size: 2", "size: 999"), (), "n.yml:2 domain_size: must be at most 510 (address"),
        (("b}", "b, rate: 1 bit/s}"), (), "n.yml:6 links.1.rate: must be 1 kbit/s to 1000"),
        (("size: 2", "size: 4"), (), "n.yml:4 links: d0g2 must have 1 NIC links, got 0 (see"),
        (("", ""), ("fabric.domains=9999",), "--set fabric.domains: must be at most"),
        (("", ""), ("fabric.spines=0",), "--set fabric.spines: must be at least 1, got 0"),
        (("", ""), ("fabric.spines=2",), "--set fabric.spines: describes rails and spines"),
        (("", ""), ("repeats=0",), "--set repeats: must be at least 1, got 0"),
        (
            ("", ""),
            ("fabric.links=[]", "fabric.kinds=custom"),
            "--set fabric.kinds: custom needs links",
        ),
    ],
)
def test_mistakes_of_a_named_network_are_told_at_its_own_lines(
    tmp_path: Path, change: tuple[str, str], overrides: tuple[str, ...], message: str
) -> None:
    text = (
        "domains: 2\ndomain_size: 2\nplatform: h800\nlinks:\n"
        "  - {from: 'd[0-1]g0', to: a}\n  - {from: 'd[0-1]g1', to: b}\n"
    )
    (tmp_path / "n.yml").write_text(text.replace(*change))
    work = "workloads: [{collective: all-reduce, algorithm: ring, size: 1 GB}]\n"
    (tmp_path / "x.yaml").write_text(f"fabric: {{topology: n.yml, bandwidth_scale: 20000}}\n{work}")
    with pytest.raises(InputError) as caught:
        load(tmp_path / "x.yaml", overrides)
    (problem,) = map(str, caught.value.problems)
    assert problem.removeprefix(f"{tmp_path}/").startswith(message)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("Nodes 16\nTiers 2\nPodsize 4\n", "is a topology of htsim, must be a network"),
        ('{"logical-dims": ["4", "4"]}', "is a logical topology of ASTRA-sim, must be a network"),
        ("fabric:\n  domains: 2\n  domain_size: 2\nworkloads: []\n", "is a scenario, must be a"),
    ],
)
def test_a_file_that_is_no_network_is_told_by_its_kind(
    tmp_path: Path, text: str, what: str
) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(InputError, match=f"x: {what}"):
        read_network(tmp_path / "x")


def test_a_file_of_empty_lines_is_refused_at_once(tmp_path: Path) -> None:
    """A search that begins anew at each line takes hours."""
    (tmp_path / "x").write_text("\n" * 2**20)
    with pytest.raises(ValueError, match="unknown format of network"):
        read_network(tmp_path / "x")


def test_a_topology_of_simai() -> None:
    assert read_network(SIMAI) == {
        "topology": str(SIMAI),
        "kinds": "rail-optimized",
        "domains": 2,
        "domain_size": 4,
        "hb_rate": "3600 Gbit/s",
        "nic_rate": "400 Gbit/s",
        "spines": 2,
        "oversubscription": 2.0,
    }


def test_a_scenario_names_a_network(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(
        f"fabric: {{topology: {SIMAI}, domains: 3, bandwidth_scale: 20000}}\n{WORKLOAD}"
    )
    scenario = load(path)
    (spec,) = scenario.fabrics
    assert (spec.domains, spec.domain_size, spec.nic.spines) == (3, 4, 2)
    assert (spec.emulated_hb_bps, spec.emulated_nic_bps) == (180e6, 20e6)
    copy = tmp_path / "copy.yaml"
    copy.write_text(scenario.text)
    assert "topology" not in scenario.text
    assert f"not emulated: all but the rates of links in {SIMAI}" in notes(scenario)
    assert load(copy).fabrics == scenario.fabrics


@pytest.mark.parametrize(
    ("path", "change"),
    [
        (ASTRA_SIM, (r"\[ 500, 1000 \]", "[ 0, 0.0 ]")),
        (SIMAI, (r"bps .*", "bps 0.0ms 0")),
        (SIMAI, (r"bps .*", "bps")),
    ],
)
def test_what_a_network_does_not_have_is_not_told(
    tmp_path: Path, path: Path, change: tuple[str, str]
) -> None:
    (tmp_path / "network").write_text(re.sub(*change, path.read_text()))
    (tmp_path / "x.yaml").write_text(f"fabric: {{topology: network}}\n{WORKLOAD}")
    assert load(tmp_path / "x.yaml").left_out == ()


@pytest.mark.parametrize(
    ("change", "where", "what"),
    [
        (
            ("[ Switch, Switch ]", "[ Switch ]"),
            "2 topology",
            "topology, npus_count, bandwidth, latency must be equally long, got 1, 2, 2, 2",
        ),
        (("[ Switch, Switch ]", "[ Mesh, Switch ]"), "2 topology", "an HB domain must be a switch"),
        (("npus_count", "npus"), "1 npus_count", "is required"),
        (("latency", "latencies"), "5 latencies", "unknown key 'latencies' (did you mean 'latency"),
        (("[ Switch, Switch ]", "[ Ring, Switch ]"), "2 topology", "an HB domain must be a switch"),
        (("[ Switch, Switch ]", "[[Ring], Switch]"), "2 topology.0", "must be text, got ['Ring']"),
        (("[ 4, 2 ]", "[ 4, x ]"), "3 npus_count.1", "must be a whole number, got 'x'"),
        (("[ 4, 2 ]", f"[ {2**40}, 2 ]"), "3 npus_count.0", "must be at most 1000000, got 1099"),
        (("[ 450, 50 ]", "[ 450, -1 ]"), "4 bandwidth.1", "must be more than 0, got -1"),
        (("[ 450, 50 ]", "[ 450, 50"), "5", "is not YAML"),
        (("latency: [", "latency: [ 7,"), "2 topology", "topology, npus_count, bandwidth, latency"),
        (("latency: [", "latency: [ -7,"), "5 latency.0", "must be at least 0, got -7"),
    ],
)
def test_what_of_astra_sim_is_no_fabric_is_refused(
    change: tuple[str, str], where: str, what: str
) -> None:
    text = ASTRA_SIM.read_text()
    assert change[0] in text
    with pytest.raises(InputError, match=re.escape(f"n.yml:{where}: {what}")):
        astra_sim(text.replace(*change, 1))


@pytest.mark.parametrize(
    ("path", "change", "line", "what"),
    [
        (SIMAI, ("16 4 2 6", "16 4 2 7"), 1, "number of GPUs must be a multiple of 4, got 7"),
        (SIMAI, ("16 4 2 6", f"{2**40} 4 2 6"), 1, "must have numbers of at most 1000000, got"),
        (SIMAI, ("16 4 2 6 24", "16 4 2 6 25"), 1, "number of links must be 25, got 24"),
        (SIMAI, ("0 10 400Gbps", "0 1 400Gbps"), 3, "GPU 0 must have links to NVSwitches and to"),
        (SIMAI, ("0 10 400Gbps", "10 15 9Gbps"), 20, "duplicate link of 10 and 15"),
        (SIMAI, ("16 4 2 6 24 H100", "16 4 2 6 24"), 1, "must have five numbers and the kind of"),
        (SIMAI, ("0 10 400Gbps", "0 10 fast"), 4, "must be two of 16 nodes, a rate"),
        (SIMAI, ("0 10 400Gbps", "0 8 400Gbps"), 4, "duplicate link of 0 and 8"),
        (
            SIMAI,
            ("0 8 3600Gbps", "0 8 200Gbps"),
            3,
            "all links within servers must have one rate, got 200, 3600",
        ),
        (SIMAI, ("10 14 200Gbps", "0 14 200Gbps"), 3, "all GPUs must have equally many NIC ports"),
        (SIMAI, ("10 14 200Gbps", "10 14 0.0Gbps"), 19, "must have a rate above 0, got '0.0'"),
        (
            SIMAI,
            ("10 14 200Gbps", "8 14 200Gbps"),
            3,
            "GPUs of server 0 must share their NVSwitches",
        ),
        (SIMAI, ("16 4 2 6 24", "17 4 3 6 24"), 1, "2 servers must have equally many NVSwitches"),
        (SIMAI, ("8 9 10 11", "8 9 8 8"), 2, "must list the switches, nodes 8 to 15"),
        (SIMAI, ("8 9 10 11", f"8 9 10 {'1' * 5000}"), 2, "must list the switches,"),
        (SIMAI, ("8 9 10 11", "8 9 10 \u0661\u0661"), 2, "must list the switches,"),
    ],
)
def test_what_is_no_fabric_is_refused(
    tmp_path: Path, path: Path, change: tuple[str, str], line: int, what: str
) -> None:
    text = path.read_text()
    assert change[0] in text
    (tmp_path / "x").write_text(text.replace(*change, 1))
    with pytest.raises(ValueError, match=re.escape(what)) as refused:
        read_network(tmp_path / "x")
    assert str(refused.value).startswith(f"{tmp_path}/x:{line}: {what}"), str(refused.value)


def test_servers_of_simai_that_share_nvlinks_are_refused() -> None:
    text = SIMAI.read_text()
    shared = text.replace(" 9 3600Gbps", " 8 3600Gbps")
    joined = text.replace("6 24 H100", "6 25 H100") + "8 9 3600Gbps 0.000025ms 0\n"
    for changed in (shared, joined):
        with pytest.raises(Malformed, match="must share their NVSwitches, with no other GPU"):
            read_simai(changed)


def simai(servers: int, leaves: int, planes: int = 1, *, shared: bool = True) -> str:
    """A topology of two GPUs a server: leaves a rail and plane, with two spines, shared or not."""
    gpus, rails = 2 * servers, 2
    links = [f"{gpu} {gpus + gpu // 2} 900Gbps 1ms 0" for gpu in range(gpus)]
    leaf = gpus + servers
    spine = leaf + planes * leaves * rails
    for plane in range(planes):
        for gpu in range(gpus):
            place = gpu // 2 * leaves // servers * rails + gpu % rails
            links.append(f"{gpu} {leaf + plane * leaves * rails + place} 100Gbps 1ms 0")
    for number in range(planes * leaves * rails):
        group = 0 if shared else number % rails
        group += number // (leaves * rails) if planes > 1 else 0
        links += [f"{leaf + number} {spine + 2 * group + one} 100Gbps 1ms 0" for one in (0, 1)]
    nodes = 1 + max(int(link.split()[1]) for link in links)
    switches = " ".join(str(node) for node in range(gpus, nodes))
    head = f"{nodes} 2 {servers} {nodes - gpus - servers} {len(links)} H100"
    return "\n".join([head, switches, *links, ""])


def test_simai_rails_of_several_leaves() -> None:
    assert read_simai(simai(4, 1))["kinds"] == "rail-optimized"
    keys = read_simai(simai(8, 2, shared=False))
    wanted = {"kinds": "rail-only", "domains": 8, "rail_leaves": 2, "spines": 2}
    assert {key: keys[key] for key in wanted} == wanted
    assert keys["oversubscription"] == 2.0
    # Spine switches that all rails share have no key.
    assert read_simai(simai(4, 2))["kinds"] == "custom"


@pytest.mark.parametrize(
    "rate",
    ["4100Gbps", "4100000Mbps", "4100Gb/s", "512.5GBps", "512.5GB/s", "4100000000kbps"],
)
def test_a_rate_of_simai_is_the_same_in_any_unit(rate: str) -> None:
    text = simai(4, 1).replace(" 100Gbps", " 4.1Tbps")
    mixed = text.replace(" 4.1Tbps", f" {rate}", 3)
    assert mixed != text
    assert read_simai(mixed) == read_simai(text)


def test_a_rate_of_ns3_in_powers_of_two() -> None:
    text = ns3(1, [(8, npu, 400) for npu in range(8)]).replace("400Gbps", "50GiB/s")
    assert read_ns3(text)["hb_rate"] == f"{50 * 2**33 / 1e9:.12g} Gbit/s"


@pytest.mark.parametrize("servers", [3, 5, 7])
def test_simai_leaves_of_unequally_many_servers_keep_the_rate_of_uplinks(
    tmp_path: Path, servers: int
) -> None:
    text = simai(servers, 2, shared=False)
    (tmp_path / "topology").write_text(text)
    (tmp_path / "x.yaml").write_text(
        f"fabric: {{topology: topology, bandwidth_scale: 4000}}\n{WORKLOAD}"
    )
    (spec,) = load(tmp_path / "x.yaml").fabrics
    assert spec.nic.leaves == 2
    assert degrees(build_topology(spec)) == degrees_of(text)


def test_simai_nics_of_two_ports() -> None:
    assert read_simai(simai(4, 1))["kinds"] == "rail-optimized"
    two_planes = simai(4, 1, 2)
    keys = read_simai(two_planes)
    assert (keys["kinds"], keys["nic_ports"], keys["planes"]) == ("rail-optimized", 2, "separate")
    assert (keys["nic_rate"], keys["spines"]) == ("200 Gbit/s", 2)
    # Both ports to switches of one plane: a third port of a GPU is none.
    with pytest.raises(Malformed, match="a NIC has at most 2 ports, got 3"):
        read_simai(third_port(two_planes))


def third_port(text: str) -> str:
    """The topology with a link of each GPU to the last spine switch."""
    head, switches, *links = text.splitlines()
    nodes, size, inside, others, count, kind = head.split()
    more = [f"{gpu} {int(nodes) - 1} 100Gbps 1ms 0" for gpu in range(8)]
    return "\n".join(
        [f"{nodes} {size} {inside} {others} {int(count) + 8} {kind}", switches, *links, *more]
    )


@pytest.mark.parametrize("name", ELEVEN)
def test_a_topology_by_simais_generator_is_the_fabric_that_it_describes(
    tmp_path: Path, name: str
) -> None:
    text = text_of(ELEVEN[name])
    (tmp_path / "topology").write_text(text)
    (tmp_path / "x.yaml").write_text(
        f"fabric: {{topology: topology, bandwidth_scale: 4000}}\n{WORKLOAD}"
    )
    (spec,) = load(tmp_path / "x.yaml").fabrics
    topology = build_topology(spec)
    assert degrees(topology) == degrees_of(text)
    routing = Routing(topology)
    assert all(routing.path_if_any(topology.gpus[0], gpu) for gpu in topology.gpus[1:])


@pytest.mark.parametrize("has_planes", [False, True])
def test_the_destinations_of_each_port_share_all_uplinks(tmp_path: Path, has_planes: bool) -> None:
    options = Options(16, dt=True, dp=has_planes, gps=2, npa=4, psn=16 if has_planes else 8)
    (tmp_path / "topology").write_text(text_of(options))
    (tmp_path / "x.yaml").write_text(
        f"fabric: {{topology: topology, bandwidth_scale: 4000}}\n{WORKLOAD}"
    )
    (spec,) = load(tmp_path / "x.yaml").fabrics
    topology = build_topology(spec)
    routing, gpus = Routing(topology), topology.gpus
    flows = [pair for pair in permutations(gpus, 2) if pair[0].domain != pair[1].domain]
    paths = [routing.path(source, to.by(lane)) for source, to in flows for lane in (0, 1)]
    up = {hop.link for hops in paths for hop in hops if hop.sender == hop.link.lower.node}
    assert up >= {link for link in topology.links if link.kind is LinkKind.UPLINK}


def test_the_estimate_of_a_custom_fabric_knows_its_busiest_link(tmp_path: Path) -> None:
    (tmp_path / "topology").write_text(text_of(Options(64, npa=4, psn=2)))
    (tmp_path / "x.yaml").write_text(
        f"fabric: {{topology: topology, bandwidth_scale: 4000}}\n"
        f"{WORKLOAD.replace('two-step', 'direct')}"
    )
    scenario = load(tmp_path / "x.yaml")
    ((paper,), _) = on_paper(scenario, FRAMINGS["none"](4096), 0.0)
    assert paper.busiest_link is not None
    assert paper.busiest_link.startswith("asw")
    (spec,), (case,) = scenario.fabrics, scenario.cases
    assert estimate(real_task(case.task, spec)).completion_s >= (paper.lower_bound_s or 0)


Degrees = Counter[tuple[tuple[float, int], ...]]


def degrees(topology: Topology) -> Degrees:
    """For GPUs and switches outside servers: how many links of each rate they have, in Gbit/s."""
    found: Degrees = Counter()
    for node in (*topology.gpu_by_name, *topology.openflow_switches):
        links = (link for link in topology.links_of(node) if link.kind is not LinkKind.HB)
        rates = Counter(round(link.rate_bps * 4000 / 1e9, 6) for link in links)
        found[tuple(sorted(rates.items()))] += 1
    return found


def degrees_of(text: str) -> Degrees:
    """The same of a topology file; a lone server's NVSwitches are taken for its rail switches."""
    head, _, *links = text.splitlines()
    nodes, _, nvswitches, others, *_ = head.split()
    gpus = int(nodes) - int(nvswitches) - int(others)
    if others == "0":
        whole = sum(float(link.split()[2].removesuffix("Gbps")) for link in links) / gpus
        return Counter({((whole, 1),): 2 * gpus})
    rates: dict[int, Counter[float]] = {
        node: Counter() for node in range(int(nodes)) if not 0 <= node - gpus < int(nvswitches)
    }
    for link in links:
        one, other, rate, *_ = link.split()
        if int(one) in rates and int(other) in rates:
            for node in (int(one), int(other)):
                rates[node][float(rate.removesuffix("Gbps"))] += 1
    return Counter(tuple(sorted(of_node.items())) for of_node in rates.values())


def ns3(switches: int, links: list[tuple[int, int, int]]) -> str:
    """A topology of ASTRA-sim's ns-3 backend: links of two nodes and a rate in Gbit/s."""
    nodes = 1 + max(max(one, other) for one, other, _ in links)
    own = " ".join(str(node) for node in range(nodes - switches, nodes))
    lines = [f"{one} {other} {rate}Gbps 0.005ms 0" for one, other, rate in links]
    return "\n".join([f"{nodes} {switches} {len(links)}", own, *lines, ""])


DESCRIPTION = """
First line: total node #, switch node #, link #
Second line: switch node IDs...
src0 dst0 rate delay error_rate
...
"""


def test_a_description_behind_the_links_is_left_out() -> None:
    text = ns3(1, [(8, npu, 400) for npu in range(8)])
    assert read_ns3(text + DESCRIPTION) == read_ns3(text)
    assert read_simai(SIMAI.read_text() + DESCRIPTION) == read_simai(SIMAI.read_text())
    with pytest.raises(Malformed, match="number of links must be 8, got 9"):
        read_ns3(f"{text}{DESCRIPTION}8 0 400Gbps 0.005ms 0\n")


def test_ns3_of_astra_sim_one_switch_is_one_hb_domain() -> None:
    keys = read_ns3(ns3(1, [(8, npu, 400) for npu in range(8)]))
    wanted = {"domains": 1, "domain_size": 8, "kinds": "rail-only"}
    assert {key: keys[key] for key in wanted} == wanted


def test_a_byte_order_mark_is_no_part_of_a_network(tmp_path: Path) -> None:
    text = ns3(1, [(8, npu, 400) for npu in range(8)])
    (tmp_path / "topology.txt").write_text(f"\ufeff{text}")
    assert read_network(tmp_path / "topology.txt").items() >= read_ns3(text).items()


def test_ns3_of_astra_sim_leaves_and_spines_without_hb_domains(tmp_path: Path) -> None:
    text = ns3(3, [(4, 0, 400), (4, 1, 400), (2, 5, 400), (5, 3, 400), (6, 4, 10), (6, 5, 10)])
    (tmp_path / "topology.txt").write_text(text)
    keys = read_network(tmp_path / "topology.txt")
    assert keys == {
        "topology": str(tmp_path / "topology.txt"),
        "kinds": "rail-only",
        "domains": 4,
        "domain_size": 1,
        "hb_rate": "400 Gbit/s",
        "nic_rate": "400 Gbit/s",
        "rail_leaves": 2,
        "spines": 1,
        "oversubscription": 80.0,
    }
    work = WORKLOAD.replace("two-step", "direct")
    (tmp_path / "x.yaml").write_text(
        f"fabric: {{topology: topology.txt, bandwidth_scale: 100}}\n{work}"
    )
    (spec,) = load(tmp_path / "x.yaml").fabrics
    assert spec.gpus == 4


def test_ns3_of_astra_sim_switches_of_consecutive_npus_are_hb_domains() -> None:
    inside = [(npu, 8 + npu // 4, 900) for npu in range(8)]
    rails = [(npu, 10 + npu % 4, 100) for npu in range(8)]
    keys = read_ns3(ns3(6, inside + rails))
    wanted = {"domains": 2, "domain_size": 4, "hb_rate": "900 Gbit/s", "kinds": "rail-only"}
    assert {key: keys[key] for key in wanted} == wanted


@pytest.mark.parametrize("sizes", [(8, 4), (4, 8), (2, 4, 2)])
def test_ns3_of_astra_sim_servers_of_unequal_size_are_refused(sizes: tuple[int, ...]) -> None:
    servers = [server for server, size in enumerate(sizes) for _ in range(size)]
    gpus, rail = len(servers), len(servers) + len(sizes)
    inside = [(npu, gpus + server, 900) for npu, server in enumerate(servers)]
    for rails in (1, 2):
        outside = [(npu, rail + npu % rails, 100) for npu in range(gpus)]
        text = ns3(len(sizes) + rails, [*inside, *outside])
        with pytest.raises(Malformed, match=r"equally many NPUs, got . and .: .* domain_sizes"):
            read_ns3(text)


def test_a_simai_network_of_too_many_links_is_refused_by_their_number() -> None:
    """As large as AlibabaHPN by default; a regular one may have more."""
    large = Options(15_360, dt=True, bw="200Gbps", npa=128, psn=120)
    with pytest.raises(Malformed, match=r"must have at most 16384 links .* got 59520"):
        read_simai(text_of(large))
    regular = Options(8192, npa=1024, psn=16)
    assert read_simai(text_of(regular))["kinds"] == "rail-optimized"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (ns3(0, [(npu, (npu + 1) % 8, 25) for npu in range(8)]), "3: GPU 0 must have links to sw"),
        ("4 4 0\n0 1 2 3\n", "1: must have more nodes than switches, got 4 and 4"),
        ("4 0 0\n\n", "3: GPUs must have links to switches, got none"),
        (f"{2**40} 1 8\n8\n", "1: must have numbers of at most 1000000"),
        ("3 1 2\n0\n0 1 1Gbps\n0 2 1Gbps\n", "2: must list the switches, nodes 2 to 2"),
        ("3 1 2\n2\n0 2 1Gbps\n2 2 1Gbps\n", "4: must be two of 3 nodes"),
    ],
)
def test_what_of_ns3_is_no_fabric_is_refused(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path}/x:{what}")):
        read_network(tmp_path / "x")


def test_without_nvswitches_each_gpu_of_simai_is_a_domain(tmp_path: Path) -> None:
    """Those of a server meet in the network alone (`-nsps 0`), here by the leaves of its rails."""
    text = text_of(ELEVEN["--ro"]._replace(gpu=16, gps=4, nsps=0))
    (tmp_path / "topology").write_text(text)
    (tmp_path / "x.yaml").write_text(
        f"fabric: {{topology: topology, bandwidth_scale: 4000}}\n{WORKLOAD}"
    )
    (spec,) = load(tmp_path / "x.yaml").fabrics
    topology = build_topology(spec)
    assert (len(topology.gpus), spec.domain_size) == (16, 1)
    assert degrees(topology) == degrees_of(text)
    # A server of one GPU needs no NVSwitch: one leaf is a rail.
    lone = read_simai(text_of(Options(4, ro=False, gps=1, nsps=0, psn=0)))
    assert lone == {"kinds": "rail-only", "domains": 4, "domain_size": 1} | dict.fromkeys(
        ("hb_rate", "nic_rate"), "400 Gbit/s"
    )


def test_servers_with_nvlinks_alone_are_refused_if_several() -> None:
    lone = ELEVEN["--no-asw --no-psw"]
    assert read_simai(text_of(lone))["domains"] == 1
    with pytest.raises(Malformed, match="2 servers have NVLinks alone, and no link to each other"):
        read_simai(text_of(lone._replace(gpu=16)))


def test_a_switch_of_simai_without_a_link_is_left_out() -> None:
    text = text_of(ELEVEN["DCN+"])
    head, switches, *links = text.splitlines()
    nodes, size, inside, others, count, kind = head.split()
    more = f"{int(nodes) + 1} {size} {inside} {int(others) + 1} {count} {kind}"
    lone = "\n".join([more, f"{switches}{nodes}", *links])
    assert read_simai(lone) == read_simai(text)


def test_uplinks_faster_than_the_links_below_keep_their_rate() -> None:
    keys = read_simai(text_of(ELEVEN["Spectrum-X"]._replace(psn=8)))
    assert keys["kinds"] == "custom"
    assert "'rate'" not in str(keys["links"])


def test_several_nvswitches_of_a_simai_server_are_one_hb_domain() -> None:
    text = SIMAI.read_text().splitlines()
    links = [f"{gpu} {16 + gpu // 4} 400Gbps 0ms 0" for gpu in range(8)]
    moved = ["18 4 4 6 32 H100", "8 9 16 17 10 11 12 13 14 15", *text[2:], *links]
    assert read_simai("\n".join(moved))["hb_rate"] == "4000 Gbit/s"


def test_a_network_of_astra_sim_that_only_merges_is_refused() -> None:
    with pytest.raises(InputError, match=r"n\.yml:1 topology: is required"):
        astra_sim("<<: {\n npus_count: [1, 2]}\n")


def test_a_claim_of_a_tebi_of_npus_is_refused(tmp_path: Path) -> None:
    (tmp_path / "n.yml").write_text(ASTRA_SIM.read_text().replace("[ 4, 2 ]", f"[ {2**40}, 2 ]"))
    (tmp_path / "x.yaml").write_text(f"fabric: {{topology: n.yml}}\n{WORKLOAD}")
    with pytest.raises(InputError, match=r"n\.yml:3 npus_count.0: must be at most 1000000"):
        load(tmp_path / "x.yaml")


def test_nothing_of_an_own_network_is_left_out(tmp_path: Path) -> None:
    fabric = f"fabric: {{topology: {OURS}/leaf-spine.yml, bandwidth_scale: 20000}}\n"
    (tmp_path / "x.yaml").write_text(f"{fabric}{WORKLOAD}")
    assert load(tmp_path / "x.yaml").left_out == ()


def test_a_custom_network_of_too_many_gpus_is_refused_before_its_links(tmp_path: Path) -> None:
    own = (OURS / "leaf-spine.yml").read_text()
    (tmp_path / "n.yml").write_text(own.replace("domain_size: 2", f"domain_size: {10**18}"))
    (tmp_path / "x.yaml").write_text(f"fabric: {{topology: n.yml}}\n{WORKLOAD}")
    with pytest.raises(InputError, match="must be at most 510"):
        load(tmp_path / "x.yaml")


@settings(max_examples=60)
@given(st.sampled_from([ASTRA_SIM, SIMAI, *OURS.iterdir()]), st.data())
def test_a_damaged_file_is_refused_or_read(path: Path, data: st.DataObject) -> None:
    text = data.draw(damaged(path.read_bytes())).decode(errors="replace")
    if OF_ASTRA_SIM.search(text):
        with contextlib.suppress(InputError):
            astra_sim(text)
    for is_one, read in FORMATS.values():
        if is_one(text):
            try:
                read(text)
            except Malformed as error:
                refused = error
            else:
                return
            assert int(refused.place.removeprefix(":")) >= 1
