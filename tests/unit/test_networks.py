"""Networks in the files of other tools: the fabric that they are, and why one is none."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.errors import InputError
from scenarios.format.networks import (
    FORMATS,
    Unmapped,
    read_astra_sim,
    read_network,
    read_simai,
)
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.planning.plan_table import notes
from tests.unit.test_traces import damaged

ASTRA_SIM, SIMAI = (
    LIBRARY / "networks" / name for name in ("two-hosts.yml", "two-servers.topology")
)
OURS = Path(__file__).parents[1] / "samples" / "networks"
WORKLOAD = "workloads: [{collective: all-to-all, algorithm: two-step, size: 8 MB}]\n"


def test_a_network_of_astra_sim() -> None:
    assert read_network(ASTRA_SIM) == {
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


def test_a_ring_of_two_hosts_is_a_switch() -> None:
    text = ASTRA_SIM.read_text().replace("[ Switch, Switch ]", "[ Switch, Ring ]")
    assert read_astra_sim(text)["domains"] == 2
    assert read_astra_sim(text.replace("Ring", "FullyConnected"))["domains"] == 2
    with pytest.raises(Unmapped, match="a rail must be a switch, got 'Ring' of 4 NPUs"):
        read_astra_sim(text.replace("[ 4, 2 ]", "[ 4, 4 ]"))


def test_a_topology_of_simai() -> None:
    assert read_network(SIMAI) == {
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
    told = f"not emulated: latencies and error rates of links in {SIMAI}"
    assert told in notes(scenario)
    assert load(copy).fabrics == scenario.fabrics


@pytest.mark.parametrize(
    ("path", "change", "line", "what"),
    [
        (ASTRA_SIM, ("[ Switch, Switch ]", "[ Switch ]"), 2, "must have one dimension"),
        (ASTRA_SIM, ("[ Switch, Switch ]", "[ Mesh, Switch ]"), 2, "an HB domain must be a switch"),
        (ASTRA_SIM, ("npus_count", "npus"), 1, "npus_count must be a list, got None"),
        (ASTRA_SIM, ("[ Switch, Switch ]", "[ Ring, Switch ]"), 2, "an HB domain must be a switch"),
        (ASTRA_SIM, ("[ Switch, Switch ]", "[[Ring], Switch]"), 2, "an HB domain must be a switch"),
        (ASTRA_SIM, ("[ 4, 2 ]", "[ 4, x ]"), 3, "must be whole numbers, got 'x'"),
        (ASTRA_SIM, ("[ 4, 2 ]", f"[ {2**40}, 2 ]"), 3, "must be at most 1000000, got 1.1e+12"),
        (ASTRA_SIM, ("[ 450, 50 ]", "[ 450, -1 ]"), 4, "must be GB/s, got -1"),
        (ASTRA_SIM, ("[ 450, 50 ]", "[ 450, 50"), 5, "is not YAML"),
        (SIMAI, ("16 4 2 6", "16 4 2 7"), 1, "number of GPUs must be a multiple of 4, got 7"),
        (SIMAI, ("16 4 2 6", f"{2**40} 4 2 6"), 1, "must have numbers of at most 1000000, got"),
        (SIMAI, ("16 4 2 6 24", "16 4 2 6 25"), 1, "must have 25 links, got 24"),
        (SIMAI, ("0 10 400Gbps", "0 11 400Gbps"), 3, "GPUs with different places in their servers"),
        (SIMAI, ("0 10 400Gbps", "0 14 400Gbps"), 3, "2 servers must be divided equally, in order"),
        (SIMAI, ("16 4 2 6 24 H100", "16 4 2 6 24"), 1, "must have five numbers and the kind of"),
        (SIMAI, ("0 10 400Gbps", "0 10 fast"), 4, "must be two of 16 nodes, a rate"),
        (SIMAI, ("0 10 400Gbps", "0 8 400Gbps"), 4, "duplicate link of 0 and 8"),
        (SIMAI, ("0 10 400Gbps", "0 10 200Gbps"), 3, "all NIC links must have one rate"),
        (SIMAI, ("10 14 200Gbps", "10 13 200Gbps"), 3, "all rail switches must be connected to"),
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
        with pytest.raises(Unmapped, match="must share their NVSwitches, with no other GPU"):
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
    with pytest.raises(Unmapped, match=r"2 leaf switches of rail 0, .* share spine switches with"):
        read_simai(simai(4, 2))


def test_simai_nics_of_two_ports_are_refused_for_that() -> None:
    two_planes = simai(4, 1, 2)
    first = read_simai(simai(4, 1))
    with pytest.raises(Unmapped, match=r"GPU 0 has 2 NIC ports, to the switches .* of two planes"):
        read_simai(two_planes)
    assert first["kinds"] == "rail-optimized"
    # A second port to a switch below the same spines.
    joined = two_planes.replace(" 18 100G", " 16 100G").replace(" 19 100G", " 17 100G")
    with pytest.raises(Unmapped, match=r"GPU 0 has 2 NIC ports, .* of one plane; a NIC here has"):
        read_simai(joined)


def test_several_nvswitches_of_a_simai_server_are_one_hb_domain() -> None:
    text = SIMAI.read_text().splitlines()
    links = [f"{gpu} {16 + gpu // 4} 400Gbps 0ms 0" for gpu in range(8)]
    moved = ["18 4 4 6 32 H100", "8 9 16 17 10 11 12 13 14 15", *text[2:], *links]
    assert read_simai("\n".join(moved))["hb_rate"] == "4000 Gbit/s"


def test_a_network_of_astra_sim_that_only_merges_is_refused() -> None:
    with pytest.raises(Unmapped, match="topology must be a list, got None") as refused:
        read_astra_sim("<<: {\n npus_count: [1, 2]}\n")
    assert refused.value.line == 1


def test_a_claim_of_a_tebi_of_npus_is_refused(tmp_path: Path) -> None:
    (tmp_path / "n.yml").write_text(ASTRA_SIM.read_text().replace("[ 4, 2 ]", f"[ {2**40}, 2 ]"))
    (tmp_path / "x.yaml").write_text(f"fabric: {{topology: n.yml}}\n{WORKLOAD}")
    with pytest.raises(InputError, match=r"n\.yml:3: must be at most 1000000"):
        load(tmp_path / "x.yaml")


@settings(max_examples=60)
@given(st.sampled_from([ASTRA_SIM, SIMAI, *OURS.iterdir()]), st.data())
def test_a_damaged_file_is_refused_or_read(path: Path, data: st.DataObject) -> None:
    text = data.draw(damaged(path.read_bytes())).decode(errors="replace")
    for is_one, read in FORMATS.values():
        if is_one(text):
            try:
                read(text)
            except Unmapped as error:
                refused = error
            else:
                return
            assert refused.line >= 1
