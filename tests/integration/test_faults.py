"""Faults of a real fabric: each has its effect, and its undo removes the effect.

How controller and hosts react to a fault does not matter here.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import permutations
from pathlib import Path

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from execution.cases.emulation import Experiment
from execution.faults.convergence import wait_until_converged
from linux.processes.lifetime import output_of
from model.errors import EmulationError
from model.fabric.spec import FabricKind
from model.fabric.topology import Gpu, Link, LinkKind
from model.faults import FaultMode
from testbed.faults.injector import FaultInjector, missing_for
from testbed.nodes.controller_process import read_journal
from testbed.nodes.gpu_proxies import ProxyKind
from tests.integration.fabrics import fabric_up, small_spec
from tests.integration.link_ends import carrier, carriers, datagram_arrives, works
from tests.machine import untouched, wait_until
from tests.unit.fabrics import with_hb_leaves
from traffic_gen.probes.blackout import ALWAYS_NS, lost
from traffic_gen.probes.prober_process import probing

pytestmark = pytest.mark.integration

UNTOUCHED = pytest.mark.usefixtures("untouched_machine")
LINK_KINDS = pytest.mark.parametrize("kind", LinkKind)
SLOW_BPS = 2_000_000


@pytest.fixture(scope="module")
def fabric(without_dead_runs: None) -> Iterator[Experiment]:
    """A fabric with links of all kinds; tests leave it, and together the machine, as it was."""
    spec = with_hb_leaves(small_spec(FabricKind.RAIL_OPTIMIZED), 2)
    with untouched(), fabric_up(spec, ProxyKind.PROCESS) as running:
        yield running


@pytest.fixture
def faults(fabric: Experiment) -> Iterator[FaultInjector]:
    """A fault injector; after the test, every link must work and be shaped as before."""
    yield FaultInjector(fabric.bed)
    for link in fabric.topology.links:
        wait_until(
            lambda link=link: works(fabric, link) == (True, True),  # type: ignore[misc]
            f"{link.name} carries again, soon after it has carrier (dev_activate in the kernel)",
        )
        fabric.bed.links.check_shaped(link)
    fabric.bed.watch.check()


def link_of_kind(fabric: Experiment, kind: LinkKind) -> Link:
    return next(link for link in fabric.topology.links if link.kind is kind)


@UNTOUCHED
def test_other_switches_go_on_while_one_is_killed(tmp_path: Path) -> None:
    """All switches are one process, which must not forget the flows of the others."""
    pairs = list(permutations([Gpu(domain, 1) for domain in range(4)], 2))
    with fabric_up(small_spec(FabricKind.RAIL_ONLY, 4, 2), ProxyKind.PROCESS) as running:
        faults, forgotten = FaultInjector(running.bed), ("coverage/read-counter", "dpif_flow_flush")
        with probing(running.bed.process_ids, pairs, tmp_path, running.bed.watch) as probes:
            before = running.bed.open_vswitch.control(*forgotten)
            faults.break_switch("rail0", FaultMode.KILL)()
            assert running.bed.open_vswitch.control(*forgotten) == before
            records = probes.stop()
    assert min(len(record.sent_ns) for record in records) > 0
    assert lost(records, ALWAYS_NS) == 0


@UNTOUCHED
@pytest.mark.parametrize("mode", FaultMode)
def test_this_kernel_can_make_every_fault(mode: FaultMode) -> None:
    assert missing_for(mode) is None


def test_a_fault_that_the_kernel_cannot_make_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.faults.link_faults.BLACKHOLE", "whitehole")
    found = missing_for(FaultMode.BLACKHOLE)
    assert found is not None
    assert "does not support the fault 'blackhole'" in found


@LINK_KINDS
def test_a_link_that_is_down_has_no_carrier(
    fabric: Experiment, faults: FaultInjector, kind: LinkKind
) -> None:
    link = link_of_kind(fabric, kind)
    undo = faults.break_link(link, FaultMode.DOWN)
    assert carriers(fabric, [link]) == {False}
    undo()
    assert carriers(fabric, [link]) == {True}
    undo()


@LINK_KINDS
def test_a_blackhole_keeps_carrier_and_passes_nothing(
    fabric: Experiment, faults: FaultInjector, kind: LinkKind
) -> None:
    link = link_of_kind(fabric, kind)
    undo = faults.break_link(link, FaultMode.BLACKHOLE)
    assert works(fabric, link) == (False, False)
    assert carriers(fabric, [link]) == {True}
    undo()
    assert works(fabric, link) == (True, True)
    undo()


@LINK_KINDS
@pytest.mark.parametrize("from_above", [False, True], ids=["lower", "upper"])
def test_a_one_way_blackhole_passes_the_other_way(
    fabric: Experiment, faults: FaultInjector, kind: LinkKind, from_above: bool
) -> None:
    link = link_of_kind(fabric, kind)
    if from_above:
        undo = faults.blackhole([link.upper])
    else:
        undo = faults.break_link(link, FaultMode.BLACKHOLE_ONE_WAY)
    assert works(fabric, link) == (from_above, not from_above)
    undo()


@LINK_KINDS
def test_a_degraded_link_has_the_rate_that_was_asked_for(
    fabric: Experiment, faults: FaultInjector, kind: LinkKind
) -> None:
    link = link_of_kind(fabric, kind)
    undo = faults.break_link(link, FaultMode.DEGRADE, rate_bps=SLOW_BPS)
    with pytest.raises(EmulationError, match="wrong shaper"):
        fabric.bed.links.check_shaped(link)
    assert works(fabric, link) == (True, True)
    undo()
    fabric.bed.links.check_shaped(link)
    undo()


@pytest.mark.parametrize("mode", [FaultMode.DOWN, FaultMode.BLACKHOLE])
@pytest.mark.parametrize("switch", ["rail0", "spine0", "hb0"])
def test_a_broken_switch_breaks_all_its_links_and_no_other(
    fabric: Experiment, faults: FaultInjector, switch: str, mode: FaultMode
) -> None:
    links = list(fabric.topology.links_of(switch))
    undo = faults.break_switch(switch, mode)
    for link in fabric.topology.links:
        assert works(fabric, link) == (link not in links,) * 2, link.name
    assert carriers(fabric, links) == {mode is FaultMode.BLACKHOLE}
    undo()


@pytest.mark.parametrize("switch", ["rail0", "spine0"])
def test_a_killed_switch_comes_back_with_the_rules_of_the_controller_alone(
    fabric: Experiment, faults: FaultInjector, switch: str
) -> None:
    open_vswitch = fabric.bed.open_vswitch
    before = open_vswitch.command("list-ports", switch)
    strange = "cookie=0x7,priority=7,ip,nw_dst=192.0.2.0/24,actions=drop"
    output_of(*open_vswitch.openflow_command(switch, "add-flow", strange))
    undo = faults.break_switch(switch, FaultMode.KILL)
    assert open_vswitch.command("get", "controller", switch, "is_connected").strip() == "false"
    assert carriers(fabric, list(fabric.topology.links_of(switch))) == {False}
    undo()
    undo()
    assert open_vswitch.command("list-ports", switch) == before
    for link in fabric.topology.links_of(switch):
        port = link.port_of(switch)
        number = open_vswitch.command("get", "interface", port.interface, "ofport")
        assert int(number) == port.number
    for source, destination in (("d0g0", "d1g0"), ("d0g0", "d1g1"), ("d1g1", "d0g0")):
        wait_until(
            lambda a=source, b=destination: datagram_arrives(fabric, a, b),  # type: ignore[misc]
            f"{source} reaches {destination} again",
        )
    assert "cookie=0x7" not in output_of(*open_vswitch.openflow_command(switch, "dump-flows"))


def test_a_gpu_that_is_down_has_no_carrier(fabric: Experiment, faults: FaultInjector) -> None:
    links = list(fabric.topology.links_of("d0g0"))
    undo = faults.break_gpu("d0g0", FaultMode.DOWN)
    assert carriers(fabric, links) == {False}
    undo()
    assert carriers(fabric, links) == {True}


def test_overlapping_faults_end_with_the_last(fabric: Experiment, faults: FaultInjector) -> None:
    link = link_of_kind(fabric, LinkKind.NIC)
    switch = link.upper.node
    undo_link = faults.break_link(link, FaultMode.DOWN)
    undo_switch = faults.break_switch(switch, FaultMode.DOWN)
    undo_link()
    assert carriers(fabric, [link]) == {False}
    undo_switch()
    assert carriers(fabric, [link]) == {True}
    undo_slow = faults.break_link(link, FaultMode.DEGRADE, rate_bps=SLOW_BPS)
    undo_blackhole = faults.break_link(link, FaultMode.BLACKHOLE)
    undo_killed = faults.break_switch(switch, FaultMode.KILL)
    undo_killed()
    assert works(fabric, link) == (False, False)
    undo_slow()
    undo_blackhole()
    twice = [
        faults.break_switch(switch, FaultMode.KILL),
        faults.break_switch(switch, FaultMode.KILL),
    ]
    for undo in twice:
        assert carriers(fabric, [link]) == {False}
        undo()


def test_a_killed_controller_is_started_again(fabric: Experiment, faults: FaultInjector) -> None:
    before = read_journal(fabric.bed.controller.journal)
    undo = faults.kill_controller()
    assert not fabric.bed.controller.is_running
    assert datagram_arrives(fabric, "d0g0", "d1g1")
    fabric.bed.watch.check()
    undo()
    undo()
    fabric.bed.controller.wait_for_event("ready")
    after = read_journal(fabric.bed.controller.journal)
    assert after[: len(before)] == before
    assert {"listening", "ready"} <= {str(line["event"]) for line in after[len(before) :]}


def test_a_switch_that_could_not_be_upgraded_can_be_killed_and_revived(
    fabric: Experiment, faults: FaultInjector
) -> None:
    """Without a controller, nobody drains it."""
    restart = faults.kill_controller()
    with pytest.raises(EmulationError, match="the controller: is dead, and drains no links"):
        faults.break_switch("rail0", FaultMode.UPGRADE)
    restart()
    fabric.bed.controller.wait_for_event("ready")
    faults.break_switch("rail0", FaultMode.KILL)()
    wait_until_converged(fabric.bed, frozenset())
    assert datagram_arrives(fabric, "d0g0", "d1g0")


def test_what_cannot_be_broken_so_is_refused(fabric: Experiment, faults: FaultInjector) -> None:
    link = link_of_kind(fabric, LinkKind.NIC)
    with pytest.raises(EmulationError, match=f"{link.name}: degrade needs a rate"):
        faults.break_link(link, FaultMode.DEGRADE)
    with pytest.raises(EmulationError, match=f"{link.name}: kill is not a fault mode of a link"):
        faults.break_link(link, FaultMode.KILL)
    with pytest.raises(EmulationError, match="hb0: kill is not a fault mode of this switch"):
        faults.break_switch("hb0", FaultMode.KILL)
    with pytest.raises(EmulationError, match="d0g0: degrade is not a fault mode of a GPU"):
        faults.break_gpu("d0g0", FaultMode.DEGRADE)


@UNTOUCHED
@pytest.mark.parametrize("proxies", ProxyKind)
def test_a_killed_gpu_takes_its_links_along_and_nothing_else(proxies: ProxyKind) -> None:
    with fabric_up(small_spec(FabricKind.RAIL_ONLY), proxies) as fabric:
        bed, faults = fabric.bed, FaultInjector(fabric.bed)
        counted = bed.links.read_counters().counters
        undo = faults.break_gpu("d1g0", FaultMode.KILL)
        process = f"/proc/{bed.proxies['d1g0'].process_id}/ns/net"
        wait_until(lambda: not os.path.exists(process), "the proxy is dead")
        bed.watch.check()
        for link in fabric.topology.links_of("d1g0"):
            with suppress(NetlinkError):  # its namespace may have gone, and both ends with it
                assert not carrier(fabric, link.upper)
        after = bed.links.read_counters().counters
        assert all(after[name].sent_bytes >= counted[name].sent_bytes for name in counted)
        assert datagram_arrives(fabric, "d0g1", "d1g1")
        undo()
        faults.kill_controller()()
        bed.controller.wait_for_event("ready")
        assert datagram_arrives(fabric, "d0g1", "d1g1")
        with pytest.raises(EmulationError, match="d1g0: GPU proxy is already dead"):
            faults.break_gpu("d1g0", FaultMode.KILL)


@UNTOUCHED
def test_an_undo_after_the_fabric_is_harmless() -> None:
    with fabric_up(small_spec(FabricKind.RAIL_ONLY), ProxyKind.PROCESS) as fabric:
        faults = FaultInjector(fabric.bed)
        link = link_of_kind(fabric, LinkKind.NIC)
        undos = [
            faults.break_link(link, FaultMode.DOWN),
            faults.break_link(link, FaultMode.BLACKHOLE),
            faults.break_link(link, FaultMode.DEGRADE, rate_bps=SLOW_BPS),
        ]
    for undo in undos:
        undo()
