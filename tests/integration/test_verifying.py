"""Paths of real packets: a fabric without changes passes; tampered paths are found, no others.

The controller does not touch the tests' rules and routes, as they are not its own.
"""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from execution.cases.emulation import Experiment
from execution.cases.progress import SILENT
from execution.path_check import check_fabric
from execution.run import run
from model.fabric.addressing import GATEWAY, hb_address, nic_address, nic_mac
from model.fabric.spec import COMPARED, FabricKind, FabricSpec, Spares, SpineSelection
from model.fabric.topology import Gpu, LinkKind
from results.verdicts.path_check import FabricCheck, verify_object
from scenarios.library_files import LIBRARY
from scenarios.load import load
from testbed.nodes.gpu_proxies import ProxyKind
from testbed.nodes.openvswitch import wait_for_revalidators
from tests.integration.control_plane import events
from tests.integration.fabrics import fabric_up, small_spec
from tests.integration.link_ends import datagram_arrives
from tests.machine import wait_until
from tests.results import assert_right
from traffic_gen.probes.path_tracer import SOURCE_PORTS

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

RAIL_ONLY, RAIL_OPTIMIZED = FabricKind.RAIL_ONLY, FabricKind.RAIL_OPTIMIZED
SOURCE, SAME_RAIL, OTHER_RAIL = Gpu(0, 0), Gpu(1, 0), Gpu(1, 1)
HIGHEST = "priority=60000,udp"
ON_LINK = 4  # RTNH_F_ONLINK
PROBES = len(SOURCE_PORTS)
PROBE_BYTES = 14 + 44
ATTEMPTS = 3


def with_spares(kind: FabricKind) -> FabricSpec:
    small = small_spec(kind, 3, 3)
    return replace(small, spares=Spares(domains=1, gpus=1, rail_switches=1))


def with_rail_leaves(spines: int) -> FabricSpec:
    small = small_spec(RAIL_ONLY, 4, 2)
    return replace(small, nic=replace(small.nic, leaves=2, spines=spines))


def with_pxn(spec: FabricSpec) -> FabricSpec:
    return replace(spec, nic=replace(spec.nic, pxn=True))


def by_hash(spec: FabricSpec) -> FabricSpec:
    return replace(spec, nic=replace(spec.nic, spine_selection=SpineSelection.HASH))


@pytest.mark.parametrize(
    ("spec", "proxies"),
    [
        *((small_spec(kind, 2, 3), proxies) for kind in COMPARED for proxies in ProxyKind),
        *((with_spares(kind), ProxyKind.PROCESS) for kind in COMPARED),
        (with_rail_leaves(spines=2), ProxyKind.PROCESS),
        (small_spec(RAIL_ONLY, 3, 1), ProxyKind.PROCESS),
        (by_hash(small_spec(RAIL_OPTIMIZED, 3, 3)), ProxyKind.PROCESS),
        (by_hash(with_rail_leaves(spines=4)), ProxyKind.PROCESS),
        (with_pxn(small_spec(RAIL_OPTIMIZED, 3, 3)), ProxyKind.PROCESS),
    ],
    ids=lambda value: value.value if isinstance(value, ProxyKind) else shape(value),
)
def test_packets_go_as_intended_from_the_first_one_on(spec: FabricSpec, proxies: ProxyKind) -> None:
    with fabric_up(spec, proxies) as fabric:
        for _ in range(2):
            found = checked(fabric)
            assert not found.mismatches
            assert found.verdict == "pass"
    gpus = spec.domains * spec.domain_size
    assert found.pairs == gpus * (gpus - 1)
    own_bytes = found.rail_isolation.own_bytes
    assert (own_bytes is None) == (spec.routed_as is RAIL_OPTIMIZED)
    if own_bytes is not None and spec.nic.leaves == 1:
        across_domains = gpus * (gpus - spec.domain_size)
        assert own_bytes >= 2 * across_domains * PROBES * PROBE_BYTES


def checked(fabric: Experiment) -> FabricCheck:
    """Check a fabric; again, if the controller lost probes and sent packets another way meanwhile.

    A pause of the machine loses probes of intact links, whose traffic goes around them rightly.
    """
    for _ in range(ATTEMPTS - 1):
        found = check_fabric(fabric)
        if not found.mismatches or not events(fabric, "detected"):
            return found
        wait_until(lambda: all_links_are_used(fabric), "all links are used again")
    return check_fabric(fabric)


def all_links_are_used(fabric: Experiment) -> bool:
    """Whether no link is taken for failed, by the controller's last word about each."""
    last = {line["link"]: line for line in events(fabric, "detected")}
    return all("usable" in line for line in last.values())


def shape(spec: FabricSpec) -> str:
    grid = f"{spec.kind}-{spec.domains}x{spec.domain_size}-{spec.nic.leaves}-{spec.spares.domains}"
    return f"{grid}-{spec.nic.spine_selection}" + "-pxn" * spec.nic.pxn


def add_rule(fabric: Experiment, switch: str, rule: str) -> None:
    management = f"unix:{fabric.bed.open_vswitch.folder}/{switch}.mgmt"
    subprocess.run(["ovs-ofctl", "-OOpenFlow13", "add-flow", management, rule], check=True)
    # Until a round that begins after it, the data path may do with a flow what rules said before.
    for _ in range(2):
        wait_for_revalidators(fabric.bed.open_vswitch)


def from_to(source: Gpu, destination: Gpu) -> str:
    return f"nw_src={nic_address(source)},nw_dst={nic_address(destination)}"


def add_route(fabric: Experiment, at: Gpu, to: Gpu, **how: Any) -> None:
    """Add a route for one address; it takes precedence over the route for the whole rail."""
    with fabric.bed.links.netlink_of(fabric.topology.links_of(at.name)[0].lower) as netlink:
        netlink.route("add", dst=f"{nic_address(to)}/32", **how)


def interface(fabric: Experiment, gpu: Gpu, kind: LinkKind) -> int:
    return fabric.bed.links.index_of(fabric.topology.link_of(gpu, kind).lower)


def only_mismatch(found: FabricCheck) -> dict[str, Any]:
    (fabric,) = verify_object("x", [found])["fabrics"]
    assert fabric["verdict"] == "fail"
    assert fabric["as_intended"] == fabric["pairs"] - 1
    (mismatch,) = fabric["mismatches"]
    assert mismatch["source"] == SOURCE.name
    assert mismatch["probes"] == PROBES
    return dict(mismatch)


def test_a_rule_that_sends_a_pair_to_another_port_is_found() -> None:
    with fabric_up(small_spec(RAIL_ONLY, 3, 2), ProxyKind.PROCESS) as fabric:
        astray = f"set_field:{nic_mac(Gpu(2, 0))}->eth_dst,output:3"
        rule = f"{HIGHEST},{from_to(SOURCE, SAME_RAIL)},actions={astray}"
        add_rule(fabric, "rail0", rule)
        found = check_fabric(fabric)
    mismatch = only_mismatch(found)
    assert mismatch["destination"] == SAME_RAIL.name
    assert mismatch["intended"] == ["d0g0->rail0", "rail0->d1g0"]
    assert mismatch["found"] == ["d0g0->rail0", "rail0->d2g0", "d2g0->rail0"]
    assert (mismatch["stray"], mismatch["arrived"]) == (PROBES, 0)
    assert found.rail_isolation.verdict == "pass", "the bytes have stayed on their rail"


def test_another_spine_is_found_though_everything_arrives() -> None:
    with fabric_up(small_spec(RAIL_OPTIMIZED), ProxyKind.PROCESS) as fabric:
        up = fabric.topology.link_by_name["rail0--spine0"].lower.number
        down = fabric.topology.link_by_name["rail1--spine0"].upper.number
        for switch, port in (("rail0", up), ("spine0", down)):
            add_rule(fabric, switch, f"{HIGHEST},{from_to(SOURCE, OTHER_RAIL)},actions={port}")
        mismatch = only_mismatch(check_fabric(fabric))
    assert mismatch["destination"] == OTHER_RAIL.name
    assert mismatch["intended"] == ["d0g0->rail0", "rail0->spine1", "spine1->rail1", "rail1->d1g1"]
    assert mismatch["found"] == ["d0g0->rail0", "rail0->spine0", "spine0->rail1", "rail1->d1g1"]
    assert mismatch["arrived"] == PROBES


def test_one_flow_of_many_is_found() -> None:
    with fabric_up(small_spec(RAIL_ONLY), ProxyKind.PROCESS) as fabric:
        port = f"tp_src={SOURCE_PORTS[5]}"
        add_rule(fabric, "rail0", f"{HIGHEST},{port},{from_to(SOURCE, SAME_RAIL)},actions=drop")
        mismatch = only_mismatch(check_fabric(fabric))
    assert mismatch["found"] == ["d0g0->rail0"]
    assert (mismatch["stray"], mismatch["arrived"]) == (1, PROBES - 1)


def test_a_route_by_a_peer_on_another_rail_is_found() -> None:
    with fabric_up(small_spec(RAIL_ONLY, 2, 3), ProxyKind.PROCESS) as fabric:
        wrong_peer = str(hb_address(Gpu(0, 2)))
        out = interface(fabric, SOURCE, LinkKind.HB)
        add_route(fabric, SOURCE, OTHER_RAIL, gateway=wrong_peer, oif=out)
        found = check_fabric(fabric)
    mismatch = only_mismatch(found)
    assert mismatch["intended"] == ["d0g0->hb0", "hb0->d0g1", "d0g1->rail1", "rail1->d1g1"]
    assert mismatch["found"] == [
        *("d0g0->hb0", "hb0->d0g2"),
        *("d0g2->hb0", "hb0->d0g1"),
        *("d0g1->rail1", "rail1->d1g1"),
    ]
    assert mismatch["arrived"] == PROBES
    assert found.rail_isolation.verdict == "pass"


def test_without_a_route_nothing_is_found() -> None:
    with fabric_up(small_spec(RAIL_ONLY), ProxyKind.PROCESS) as fabric:
        add_route(fabric, SOURCE, OTHER_RAIL, type="unreachable")
        mismatch = only_mismatch(check_fabric(fabric))
    assert mismatch["found"] == []
    assert mismatch["arrived"] == 0


def send_across_rails(fabric: Experiment) -> None:
    """Send packets for another rail through the switch of the source's rail (foreign bytes)."""
    out = interface(fabric, SOURCE, LinkKind.NIC)
    add_route(fabric, SOURCE, OTHER_RAIL, gateway=str(GATEWAY), oif=out, flags=ON_LINK)
    onward = f"set_field:{nic_mac(SAME_RAIL)}->eth_dst,output:2"
    add_rule(fabric, "rail0", f"{HIGHEST},nw_dst={nic_address(OTHER_RAIL)},actions={onward}")


def test_bytes_that_cross_rails_are_counted() -> None:
    with fabric_up(small_spec(RAIL_ONLY), ProxyKind.PROCESS) as fabric:
        send_across_rails(fabric)
        found = check_fabric(fabric)
    assert only_mismatch(found)["found"] == ["d0g0->rail0", "rail0->d1g0", "d1g0->hb1", "hb1->d1g1"]
    assert found.rail_isolation.verdict == "fail"
    assert found.rail_isolation.foreign_bytes == PROBES * PROBE_BYTES


def test_bytes_crossed_earlier_are_not_forgotten() -> None:
    """Isolation is judged by the switches' counters, not by the probes."""
    with fabric_up(small_spec(RAIL_ONLY), ProxyKind.PROCESS) as fabric:
        send_across_rails(fabric)
        assert datagram_arrives(fabric, SOURCE.name, OTHER_RAIL.name)
        out = interface(fabric, SOURCE, LinkKind.NIC)
        with fabric.bed.links.netlink_of(fabric.topology.links_of(SOURCE.name)[0].lower) as netlink:
            netlink.route("del", dst=f"{nic_address(OTHER_RAIL)}/32", oif=out)
        found = check_fabric(fabric)
    assert not found.mismatches
    assert found.rail_isolation.verdict == "fail"


def test_a_run_whose_packets_go_astray_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tampered(fabric: Experiment) -> FabricCheck:
        add_rule(fabric, "rail0", f"{HIGHEST},{from_to(SOURCE, SAME_RAIL)},actions=drop")
        return check_fabric(fabric)

    monkeypatch.setattr("execution.run.check_fabric", tampered)
    workload = "{collective: all-to-all, algorithm: two-step, size: 200 kB}"
    fabric_is = ["fabric.kinds=rail-only", "fabric.domains=2"]
    changes = ["check_paths=true", *fabric_is, f"workloads=[{workload}]"]
    result = run(load(LIBRARY / "check-data.yaml", changes), ProxyKind.PROCESS, tmp_path, SILENT)
    assert_right(result)
    assert result["verdict"] == "fail"
    (fabric,) = result["paths"]["fabrics"]
    assert [m["destination"] for m in fabric["mismatches"]] == [SAME_RAIL.name]
    assert json.loads((Path(result["folder"]) / "paths.json").read_text()) == result["paths"]
