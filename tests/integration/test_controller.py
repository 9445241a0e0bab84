"""The controller on real fabrics: it installs the state desired for the fabric's health."""

import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import permutations, product
from pathlib import Path

import pytest
from mininet.net import Mininet

import testbed.testbed
from controller.detection.fabric_state import HOLD_DOWN_S
from execution.cases.emulation import Experiment
from linux.network.namespaces import namespace_of
from model.fabric import addressing
from model.fabric.build import build_topology
from model.fabric.health import Health, without
from model.fabric.link_probes import LOST_PROBES, probe_interval_s
from model.fabric.spec import COMPARED, FabricKind
from model.fabric.topology import Gpu, Link, LinkKind
from model.faults import FaultMode
from testbed.fabric.links import Links
from testbed.fabric.mininet_network import build_network
from testbed.faults.injector import FaultInjector
from testbed.nodes.controller_process import read_journal
from testbed.nodes.gpu_proxies import ProxyKind
from testbed.nodes.openvswitch import OpenVSwitch
from tests.integration.control_plane import (
    desired,
    events,
    in_proxy,
    installed,
    ofctl,
    routes,
    rules,
)
from tests.integration.fabrics import fabric_up, small_spec
from tests.integration.link_ends import datagram_arrives
from tests.machine import wait_until
from traffic_gen.probes.blackout import longest, lost
from traffic_gen.probes.prober_process import probing

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

RAIL_ONLY = pytest.mark.parametrize("kind", [FabricKind.RAIL_ONLY])
RAIL_OPTIMIZED = pytest.mark.parametrize("kind", [FabricKind.RAIL_OPTIMIZED])
# Most seconds by which a busy machine may be late, from the return of a link to its use.
LATE_S = 1.0
FLAPS = 4


@pytest.fixture(params=COMPARED)
def kind(request: pytest.FixtureRequest) -> FabricKind:
    return FabricKind(request.param)


@pytest.fixture
def fabric(kind: FabricKind) -> Iterator[Experiment]:
    with fabric_up(small_spec(kind), ProxyKind.PROCESS) as running:
        yield running


@pytest.fixture
def faults(fabric: Experiment) -> FaultInjector:
    return FaultInjector(fabric.bed)


def nic_link(fabric: Experiment) -> Link:
    return fabric.topology.link_of(Gpu(0, 0), LinkKind.NIC)


def without_link(fabric: Experiment, link: Link) -> Health:
    return without(fabric.topology, links=[link.name])


def wait_until_installed(fabric: Experiment, health: Health) -> None:
    """Wait until all switches and proxies have exactly the state desired for this health."""
    wanted = desired(fabric, health)
    with suppress(AssertionError):
        wait_until(lambda: installed(fabric) == wanted, "all is installed", 10)
    assert installed(fabric) == wanted


def wait_until_works(fabric: Experiment, source: str, destination: str) -> None:
    wait_until(
        lambda: datagram_arrives(fabric, source, destination), f"{source} reaches {destination}"
    )


def all_pairs_work(fabric: Experiment, without_gpu: str = "") -> None:
    """Wait until every GPU reaches every other one, leaving out `without_gpu`."""
    names = [gpu.name for gpu in fabric.topology.gpus if gpu.name != without_gpu]
    for source, destination in permutations(names, 2):
        wait_until_works(fabric, source, destination)


def sent(fabric: Experiment, after_line: int) -> dict[str, tuple[int, int]]:
    """Rules and groups added and removed, by switch; no switch may have two journal lines."""
    lines = events(fabric, "sent", after_line)
    assert len({line["switch"] for line in lines}) == len(lines)
    return {line["switch"]: (line["added"], line["removed"]) for line in lines}


def changed_routes(fabric: Experiment, after_line: int) -> tuple[int, int]:
    (line,) = events(fabric, "routes", after_line)
    return line["added"], line["removed"]


def nothing(fabric: Experiment) -> dict[str, tuple[int, int]]:
    return dict.fromkeys(fabric.topology.openflow_switches, (0, 0))


def links_detected(fabric: Experiment, state: str, after_line: int = 0) -> dict[str, str]:
    """By link name, the means by which it was detected as `failed` or `usable`.

    A machine that pauses loses probes of intact links, too: ask for the link that was broken.
    """
    lines = events(fabric, "detected", after_line)
    return {line["link"]: line[state] for line in lines if state in line}


def test_switches_and_proxies_have_exactly_what_is_desired(fabric: Experiment) -> None:
    assert installed(fabric) == desired(fabric)
    assert links_detected(fabric, "failed") == {}
    all_pairs_work(fabric)


def test_links_that_come_up_late_have_not_failed(
    kind: FabricKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the machine is busy, the controller may run long before the links are there."""
    late_s = 2 * LOST_PROBES * probe_interval_s(build_topology(small_spec(kind)))

    def built_late(links: Links, switch: OpenVSwitch) -> Mininet:
        journal = switch.folder.parent / "controller" / "journal.jsonl"
        wait_until(lambda: read_journal(journal) != [], "the controller listens")
        running_s = time.monotonic()
        wait_until(lambda: time.monotonic() > running_s + late_s, "the links are late")
        return build_network(links, switch)

    monkeypatch.setattr(testbed.testbed, "build_network", built_late)
    with fabric_up(small_spec(kind), ProxyKind.PROCESS) as fabric:
        # All links are late; a pause of the machine loses the probes of a few.
        assert 2 * len(links_detected(fabric, "failed")) < len(fabric.topology.links)


@pytest.mark.parametrize("of", LinkKind)
def test_after_a_failure_they_have_what_is_desired_then_and_later_all_as_before(
    fabric: Experiment, faults: FaultInjector, of: LinkKind
) -> None:
    link = next((link for link in fabric.topology.links if link.kind is of), None)
    if link is None:  # a rail-only fabric has no uplinks
        return
    undo = faults.break_link(link, FaultMode.DOWN)
    wait_until_installed(fabric, without_link(fabric, link))
    assert links_detected(fabric, "failed")[link.name] == "carrier"
    all_pairs_work(fabric)
    undo()
    wait_until_installed(fabric, Health())
    assert links_detected(fabric, "usable")[link.name] == "carrier"
    all_pairs_work(fabric)


def test_switches_that_come_back_empty_are_filled_again(
    fabric: Experiment, faults: FaultInjector
) -> None:
    undo = [faults.break_switch(n, FaultMode.KILL) for n in fabric.topology.openflow_switches]
    for revive in undo:
        revive()
    wait_until_installed(fabric, Health())
    all_pairs_work(fabric)


def test_a_restarted_controller_finds_nothing_to_do(
    fabric: Experiment, faults: FaultInjector
) -> None:
    restart = faults.kill_controller()
    behind = fabric.bed.controller.journal_length()
    restart()
    fabric.bed.controller.wait_for_event("ready")
    assert sent(fabric, behind) == nothing(fabric)
    assert changed_routes(fabric, behind) == (0, 0)
    assert installed(fabric) == desired(fabric)
    for switch in fabric.topology.openflow_switches:
        assert set(rules(fabric, switch).values()) == {1}


def test_a_restarted_controller_sends_the_difference_alone(
    fabric: Experiment, faults: FaultInjector
) -> None:
    """Rules and routes of others stay."""
    restart = faults.kill_controller()
    behind = fabric.bed.controller.journal_length()
    lost_route = next(iter(routes(fabric, "d0g0")))
    ofctl(fabric, "add-flow", "rail0", "cookie=0x7,priority=7,ip,nw_dst=192.0.2.0/24,actions=drop")
    ofctl(fabric, "del-flows", "rail0", "ip,nw_dst=10.0.0.1")
    in_proxy(fabric, "d0g0", "ip", "route", "del", str(lost_route.destination))
    in_proxy(fabric, "d0g0", "ip", "route", "add", "192.0.2.0/24", "dev", "hb0")

    restart()
    fabric.bed.controller.wait_for_event("ready")

    assert sent(fabric, behind) == {**nothing(fabric), "rail0": (1, 0)}
    assert changed_routes(fabric, behind) == (1, 0)
    assert installed(fabric) == desired(fabric)
    (added,) = (rule for rule, generation in rules(fabric, "rail0").items() if generation != 1)
    assert str(added.destination) == "10.0.0.1/32"
    assert rules(fabric, "rail0")[added] == 2
    assert "nw_dst=192.0.2.0/24 actions=drop" in ofctl(fabric, "dump-flows", "rail0")
    assert "192.0.2.0/24" in in_proxy(fabric, "d0g0", "ip", "route")


def test_a_restarted_controller_mends_rules_of_its_own_that_others_changed(
    fabric: Experiment, faults: FaultInjector
) -> None:
    restart = faults.kill_controller()
    behind = fabric.bed.controller.journal_length()
    ofctl(fabric, "mod-flows", "rail0", "ip,nw_dst=10.0.0.1,actions=drop")
    ofctl(fabric, "mod-flows", "rail0", "ip,nw_dst=10.0.0.2,actions=dec_ttl,output:2")
    restart()
    fabric.bed.controller.wait_for_event("ready")
    assert sent(fabric, behind) == {**nothing(fabric), "rail0": (2, 0)}
    assert installed(fabric) == desired(fabric)


@RAIL_OPTIMIZED
def test_a_restarted_controller_mends_groups_of_its_own_that_others_changed(
    fabric: Experiment, faults: FaultInjector
) -> None:
    restart = faults.kill_controller()
    behind = fabric.bed.controller.journal_length()
    number, ports = next(iter(desired(fabric).groups["rail0"]))
    bucket = f"bucket=watch_port={ports[1]},actions=output:{ports[1]}"
    ofctl(fabric, "mod-group", "rail0", f"group_id={number},type=ff,{bucket}")
    restart()
    fabric.bed.controller.wait_for_event("ready")
    assert sent(fabric, behind) == {**nothing(fabric), "rail0": (1, 0)}
    assert installed(fabric) == desired(fabric)


def test_what_fails_while_the_controller_is_down_is_repaired_when_it_returns(
    fabric: Experiment, faults: FaultInjector
) -> None:
    link = nic_link(fabric)
    restart = faults.kill_controller()
    faults.break_link(link, FaultMode.DOWN)
    assert not datagram_arrives(fabric, "d0g0", "d1g0")
    restart()
    fabric.bed.controller.wait_for_event("ready")
    assert installed(fabric) == desired(fabric, without_link(fabric, link))
    all_pairs_work(fabric)


def test_a_restarted_controller_does_not_undo_what_was_done_about_a_failure(
    fabric: Experiment, faults: FaultInjector, tmp_path: Path
) -> None:
    """Acting before all switches have reported their rules would lose packets.

    Two pairs: a port of Open vSwitch holds few packets while the core of the switch is paused.
    """
    link = nic_link(fabric)
    faults.break_link(link, FaultMode.DOWN)
    wait_until_installed(fabric, without_link(fabric, link))
    pairs = list(permutations((Gpu(0, 0), Gpu(1, 1)), 2))
    with probing(fabric.bed.process_ids, pairs, tmp_path, fabric.bed.watch) as probes:
        restart = faults.kill_controller()
        behind = fabric.bed.controller.journal_length()
        restart()
        fabric.bed.controller.wait_for_event("ready")
        records = probes.stop()
    assert sent(fabric, behind) == nothing(fabric)
    assert longest(records, 0) is None
    assert lost(records, (0, records[0].sent_ns[-1])) == 0


def test_a_gray_failure_is_found_by_probes(fabric: Experiment, faults: FaultInjector) -> None:
    """A gray failure in either direction of a link of any kind: the link keeps its carrier."""
    kinds = {link.kind: link for link in fabric.topology.links}
    for link, lower in product(kinds.values(), (True, False)):
        behind = fabric.bed.controller.journal_length()
        undo = faults.blackhole([link.lower if lower else link.upper])
        wait_until_installed(fabric, without_link(fabric, link))
        assert links_detected(fabric, "failed", behind)[link.name] == "probes"
        all_pairs_work(fabric)
        undo()
        wait_until_installed(fabric, Health())


@RAIL_ONLY
def test_a_flapping_link_is_held_down_longer_each_time(
    fabric: Experiment, faults: FaultInjector
) -> None:
    link = nic_link(fabric)
    held_s = []
    for flap in range(FLAPS):
        undo = faults.break_link(link, FaultMode.DOWN)
        wait_until(
            lambda n=flap: len(detections(fabric, link, "failed")) == n + 1,  # type: ignore[misc]
            "the failure is seen",
        )
        undo()
        wait_until(
            lambda n=flap: len(detections(fabric, link, "usable")) == n + 1,  # type: ignore[misc]
            "the link is used again",
        )
        held_s.append(held_down_s(fabric, link))
    for flap, seconds in enumerate(held_s):
        assert 0 <= seconds - HOLD_DOWN_S * 2**flap < LATE_S, held_s
    all_pairs_work(fabric)


def detections(fabric: Experiment, link: Link, state: str) -> list[int]:
    """Times at which a link was detected as `failed` or `usable`, in nanoseconds."""
    lines = events(fabric, "detected")
    return [int(line["ns"]) for line in lines if state in line and line["link"] == link.name]


def held_down_s(fabric: Experiment, link: Link) -> float:
    """Seconds from the last detected failure to the last return to use."""
    failed_ns, usable_ns = (detections(fabric, link, s)[-1] for s in ("failed", "usable"))
    return (usable_ns - failed_ns) / 1e9


@RAIL_ONLY
def test_a_link_that_flaps_quickly_is_given_up_once(
    fabric: Experiment, faults: FaultInjector
) -> None:
    """The first failure lasts until it is detected; the others may be too short to be."""
    link = nic_link(fabric)
    undo = faults.break_link(link, FaultMode.DOWN)
    wait_until(lambda: detections(fabric, link, "failed") != [], "the failure is seen")
    undo()
    for _ in range(FLAPS):
        faults.break_link(link, FaultMode.DOWN)()
    wait_until(lambda: detections(fabric, link, "usable") != [], "the link is used again")
    assert len(detections(fabric, link, "failed")) == len(detections(fabric, link, "usable")) == 1
    wait_until_installed(fabric, Health())


def test_a_dead_proxy_is_let_go_and_the_others_keep_working(
    fabric: Experiment, faults: FaultInjector
) -> None:
    """The upper ends of its links go with its namespace, which open sockets would keep alive."""
    namespace = os.stat(f"/proc/{fabric.bed.proxies['d1g0'].process_id}/ns/net").st_ino
    faults.break_gpu("d1g0", FaultMode.KILL)
    upper_ends = [link.upper.interface for link in fabric.topology.links_of("d1g0")]
    there = fabric.bed.links.switches.link_lookup
    for interface in upper_ends:
        wait_until(lambda name=interface: not there(ifname=name), f"{interface} goes")  # type: ignore[misc]
    assert namespace not in namespaces_of_processes()
    assert [line["proxy"] for line in events(fabric, "died")] == ["d1g0"]
    all_pairs_work(fabric, without_gpu="d1g0")
    fabric.bed.watch.check()


def namespaces_of_processes() -> set[int]:
    """The network namespaces of all processes of the machine."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/ns/net"):
        with suppress(OSError):  # a process that ends meanwhile
            found.add(entry.stat().st_ino)
    return found


def test_pairs_without_any_path_are_reported_by_name_and_told_so(
    fabric: Experiment, faults: FaultInjector
) -> None:
    """Without the error, packets would be lost unnoticed, and a sender would wait for an answer."""
    faults.break_gpu("d0g0", FaultMode.DOWN)
    wait_until_installed(fabric, without(fabric.topology, ["d0g0"]))
    others = [gpu.name for gpu in fabric.topology.gpus if gpu.name != "d0g0"]
    cut_off = {tuple(pair) for pair in events(fabric, "computed")[-1]["cut_off"]}
    assert cut_off == {pair for name in others for pair in (("d0g0", name), (name, "d0g0"))}
    with namespace_of(fabric.bed.proxies["d1g1"].process_id):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender, pytest.raises(OSError, match="No route to host") as refused:
        sender.sendto(b"", (str(addressing.nic_address(Gpu(0, 0))), 9))
    assert refused.value.errno == errno.EHOSTUNREACH
