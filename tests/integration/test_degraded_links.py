"""Degraded links of a real fabric: the controller drains them, and uses them again."""

import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from execution.cases.emulation import Experiment
from model.fabric import addressing
from model.fabric.spec import FabricKind
from model.fabric.topology import Link, LinkKind
from model.faults import FaultMode
from testbed.faults.injector import FaultInjector
from testbed.nodes.controller_process import read_journal
from testbed.nodes.gpu_proxies import ProxyKind
from tests.integration.fabrics import fabric_up, small_spec
from tests.integration.link_ends import datagram_arrives
from tests.machine import untouched, wait_until

pytestmark = pytest.mark.integration

SHAPES = [(FabricKind.RAIL_ONLY, 3), (FabricKind.RAIL_OPTIMIZED, 4)]
RATE_BPS = 20_000_000


@pytest.fixture(scope="module", params=SHAPES, ids=lambda shape: str(shape[0]))
def fabric(request: pytest.FixtureRequest, without_dead_runs: None) -> Iterator[Experiment]:
    """A fabric whose domains have several rails; every test leaves it as it was."""
    kind, size = request.param
    with untouched(), fabric_up(small_spec(kind, 2, size), ProxyKind.PROCESS) as running:
        yield running


@pytest.fixture
def faults(fabric: Experiment) -> Iterator[FaultInjector]:
    """A fault injector; after the test, all links must be in use again, at nominal rates."""
    yield FaultInjector(fabric.bed)
    wait_until(lambda: last_computed(fabric)["drained"] == [], "nothing is drained any more")
    for link in fabric.topology.links:
        fabric.bed.links.check_shaped(link)
    fabric.bed.watch.check()


def link_of_kind(fabric: Experiment, kind: LinkKind) -> Link:
    return next(link for link in fabric.topology.links if link.kind is kind)


def lines_behind(fabric: Experiment, line: int, event: str) -> list[dict[str, Any]]:
    """Journal lines of one event after a line number."""
    return [
        entry
        for entry in read_journal(fabric.bed.controller.journal)[line:]
        if entry["event"] == event
    ]


def rates_detected(fabric: Experiment, line: int) -> list[dict[str, Any]]:
    """Journal lines with detected rates of links, after a line number."""
    return [entry for entry in lines_behind(fabric, line, "detected") if "rate_bps" in entry]


def last_computed(fabric: Experiment) -> dict[str, Any]:
    return lines_behind(fabric, 0, "computed")[-1]


def wait_for(fabric: Experiment, line: int, event: str, **facts: object) -> None:
    """Wait for a journal line of an event with these facts, after a line number."""

    def seen() -> bool:
        fabric.bed.watch.check()
        return any(facts.items() <= e.items() for e in lines_behind(fabric, line, event))

    wait_until(seen, f"{event} {facts} in {read_journal(fabric.bed.controller.journal)[line:]}")


def leaves_by(fabric: Experiment, gpu: str, destination: str) -> set[str]:
    """Names of the interfaces by which a GPU sends to another."""
    address = str(addressing.nic_address(fabric.topology.gpu_by_name[destination]))
    with fabric.bed.links.netlink_of(fabric.topology.links_of(gpu)[0].lower) as netlink:
        found = {message["index"]: message for message in netlink.get_links()}
        return {
            found[message.get_attr("RTA_OIF")].get_attr("IFLA_IFNAME")
            for message in netlink.route("get", dst=address, family=socket.AF_INET)
        }


def rules_over(fabric: Experiment, link: Link) -> list[str]:
    """The rules of a switch that send to the GPU at a NIC link."""
    target = f"unix:{fabric.bed.open_vswitch.folder}/{link.upper.node}.mgmt"
    command = ["ovs-ofctl", "-OOpenFlow13", "--no-names", "dump-flows", target]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    return [line for line in shown.splitlines() if line.endswith(f"output:{link.upper.number}")]


def test_nothing_is_degraded_while_a_fabric_comes_up(fabric: Experiment) -> None:
    assert not rates_detected(fabric, 0)


def test_a_slow_nic_link_is_left_and_taken_again(fabric: Experiment, faults: FaultInjector) -> None:
    link, name = link_of_kind(fabric, LinkKind.NIC), "d0g0--rail0"
    assert leaves_by(fabric, "d0g0", "d1g0") == {"nic0"}
    assert rules_over(fabric, link)
    begin = fabric.bed.controller.journal_length()
    undo = faults.break_link(link, FaultMode.DEGRADE, rate_bps=RATE_BPS // 4)
    wait_for(fabric, begin, "detected", link=name, degraded="rate", rate_bps=RATE_BPS // 4)
    wait_for(fabric, begin, "computed", failed=[name], drained=[name], cut_off=[])
    wait_for(fabric, begin, "settled")
    assert leaves_by(fabric, "d0g0", "d1g0") == {"hb0"}
    assert not rules_over(fabric, link)
    assert datagram_arrives(fabric, "d0g0", "d1g0")
    assert datagram_arrives(fabric, "d1g0", "d0g0")

    begin = fabric.bed.controller.journal_length()
    undo()
    wait_for(fabric, begin, "detected", link=name, usable="rate", rate_bps=RATE_BPS)
    wait_for(fabric, begin, "computed", failed=[], drained=[])
    wait_for(fabric, begin, "settled")
    assert leaves_by(fabric, "d0g0", "d1g0") == {"nic0"}
    assert rules_over(fabric, link)
    assert datagram_arrives(fabric, "d1g0", "d0g0")


@pytest.mark.parametrize(
    ("kind", "percent"), [(LinkKind.NIC, 90), (LinkKind.HB, 10)], ids=["nic-link", "hb-link"]
)
def test_a_slow_link_without_anything_better_goes_on(
    fabric: Experiment, faults: FaultInjector, kind: LinkKind, percent: int
) -> None:
    link = link_of_kind(fabric, kind)
    begin = fabric.bed.controller.journal_length()
    slow_bps = link.rate_bps * percent // 100
    undo = faults.break_link(link, FaultMode.DEGRADE, rate_bps=slow_bps)
    wait_for(fabric, begin, "detected", link=link.name, degraded="rate", rate_bps=slow_bps)
    undo()
    wait_for(fabric, begin, "detected", link=link.name, usable="rate")
    # A later real failure is computed: by then, any drain before it would have been, too.
    repair = faults.break_link(link, FaultMode.DOWN)
    wait_for(fabric, begin, "computed", failed=[link.name])
    repair()
    assert not [line for line in lines_behind(fabric, begin, "computed") if line["drained"]]
    wait_for(fabric, begin, "computed", failed=[])


@pytest.mark.parametrize("fabric", [(FabricKind.RAIL_OPTIMIZED, 4)], indirect=True)
def test_a_slow_uplink_is_left(fabric: Experiment, faults: FaultInjector) -> None:
    links = [link for link in fabric.topology.links if link.kind is LinkKind.UPLINK]
    begin = fabric.bed.controller.journal_length()
    undo = faults.break_link(links[0], FaultMode.DEGRADE, rate_bps=links[0].rate_bps // 4)
    wait_for(fabric, begin, "computed", failed=[links[0].name], drained=[links[0].name], cut_off=[])
    assert len(rates_detected(fabric, begin)) == 1
    undo()


def test_a_drained_link_that_fails_returns_to_being_drained(
    fabric: Experiment, faults: FaultInjector
) -> None:
    link = link_of_kind(fabric, LinkKind.NIC)
    begin = fabric.bed.controller.journal_length()
    undo = faults.break_link(link, FaultMode.DEGRADE, rate_bps=RATE_BPS // 4)
    wait_for(fabric, begin, "settled")
    begin = fabric.bed.controller.journal_length()
    repair = faults.break_link(link, FaultMode.DOWN)
    wait_for(fabric, begin, "detected", link=link.name, failed="carrier")
    repair()
    wait_for(fabric, begin, "detected", link=link.name, usable="carrier")
    undo()
    wait_for(fabric, begin, "computed", failed=[], drained=[])
    computed = lines_behind(fabric, begin, "computed")
    assert [line["drained"] for line in computed] == [[]], "it was not used in between"


def test_a_controller_started_anew_knows_of_slow_links(
    fabric: Experiment, faults: FaultInjector
) -> None:
    link = link_of_kind(fabric, LinkKind.NIC)
    begin = fabric.bed.controller.journal_length()
    undo = faults.break_link(link, FaultMode.DEGRADE, rate_bps=RATE_BPS // 4)
    wait_for(fabric, begin, "settled")
    begin = fabric.bed.controller.journal_length()
    faults.kill_controller()()
    fabric.bed.controller.wait_for_event("ready")
    wait_for(fabric, begin, "detected", link=link.name, degraded="rate", rate_bps=RATE_BPS // 4)
    assert [line["drained"] for line in lines_behind(fabric, begin, "computed")] == [[link.name]]
    assert all(line["added"] == 0 for line in lines_behind(fabric, begin, "sent"))
    begin = fabric.bed.controller.journal_length()
    undo()
    wait_for(fabric, begin, "detected", link=link.name, usable="rate")


def test_a_switch_that_is_shaped_again_is_no_change_of_rates(
    fabric: Experiment, faults: FaultInjector
) -> None:
    link = link_of_kind(fabric, LinkKind.NIC)
    begin = fabric.bed.controller.journal_length()
    undo = faults.break_link(link, FaultMode.DEGRADE, rate_bps=RATE_BPS // 4)
    wait_for(fabric, begin, "settled")
    begin = fabric.bed.controller.journal_length()
    faults.break_switch(link.upper.node, FaultMode.KILL)()
    wait_for(fabric, begin, "detected", link=link.name, usable="carrier")
    assert not rates_detected(fabric, begin)
    undo()
    wait_for(fabric, begin, "detected", link=link.name, usable="rate")
