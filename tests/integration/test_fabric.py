"""Real fabrics: real switches, real TCP, real containers."""

import json
import os
import re
import signal
import subprocess
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from execution.cases.emulation import Experiment
from linux.machine.resources import FILES_BESIDE, FILES_OF_A_GPU
from linux.network.namespaces import namespace_of
from model.errors import EmulationError
from model.fabric.spec import COMPARED, FabricKind
from model.prediction.fluid import Prediction
from model.routing.paths import Routing
from model.workload.schedule import Schedule
from model.workload.transfers.collective import Collective
from testbed.nodes.controller_process import ControllerProcess, read_journal
from testbed.nodes.gpu_proxies import ProxyKind
from testbed.nodes.openvswitch import MOST_FLOWS, OpenVSwitch
from tests.integration.fabrics import fabric_up, small_spec
from tests.machine import wait_until
from tests.unit.fabrics import accepts
from traffic_gen.agents.client import Incomplete
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS
from traffic_gen.workloads.sized_collective import SizedCollective

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

KINDS = pytest.mark.parametrize("kind", COMPARED)
PROXIES = pytest.mark.parametrize("proxies", ProxyKind)


def planned(
    fabric: Experiment, collective: Collective, algorithm: str, size_bytes: int
) -> tuple[Schedule, Prediction]:
    """A schedule for a fabric, and how long it should take."""
    spec = fabric.topology.spec
    schedule = SizedCollective(collective, algorithm, spec.job_shape, size_bytes).steps()
    return schedule, fabric.predict(schedule)


def test_every_collective_is_right_element_by_element() -> None:
    """Between containers over spines; `check-data` runs between processes without."""
    spec = small_spec(FabricKind.RAIL_OPTIMIZED, 2, 3)
    with fabric_up(spec, ProxyKind.CONTAINER) as fabric:
        for collective, algorithm in ALGORITHMS:
            if not accepts((collective, algorithm), 2, 3):
                continue
            schedule, prediction = planned(fabric, collective, algorithm, 40_000)
            (repeat,) = fabric.repeats(schedule, prediction, 1, check_data=True)
            assert repeat.complete
            assert repeat.errors == ()


def test_a_gpu_takes_as_many_open_files_as_are_provided() -> None:
    begin = open_files()
    with fabric_up(small_spec(FabricKind.RAIL_ONLY, 2, 2), ProxyKind.PROCESS):
        of_four = open_files()
    with fabric_up(small_spec(FabricKind.RAIL_ONLY, 3, 3), ProxyKind.PROCESS):
        of_nine = open_files()
    assert of_nine - of_four == 5 * FILES_OF_A_GPU
    assert of_four - begin <= 4 * FILES_OF_A_GPU + FILES_BESIDE
    assert open_files() == begin


def test_open_vswitch_may_hold_all_flows() -> None:
    with fabric_up(small_spec(FabricKind.RAIL_ONLY), ProxyKind.PROCESS) as fabric:
        assert flow_limit(fabric.bed.open_vswitch) == MOST_FLOWS


def flow_limit(switch: OpenVSwitch) -> int:
    return int(re.findall(r"\(limit (\d+)\)", switch.control("upcall/show"))[0])


def test_tcp_waits_longer_where_links_are_slow() -> None:
    """On all routes to GPUs, and without tail loss probes, whose time is not stretched."""
    slow = replace(small_spec(FabricKind.RAIL_ONLY), bandwidth_scale=800_000)
    with fabric_up(slow, ProxyKind.PROCESS) as fabric:
        node = fabric.bed.network["d0g0"]
        routes = json.loads(node.cmd("ip -json route show"))
        probes = node.cmd("sysctl -n net.ipv4.tcp_early_retrans").strip()
        timeout_ms = round(fabric.topology.tcp_timeout_s * 1000)
    assert {route["metrics"][0]["rto_min"] for route in routes} == {timeout_ms}
    assert timeout_ms > 7000
    assert probes == "0"


def test_switches_keep_the_flows_of_idle_connections() -> None:
    """A flow that is gone when all GPUs begin costs packets, or time."""
    with fabric_up(small_spec(FabricKind.RAIL_OPTIMIZED, 2, 2), ProxyKind.PROCESS) as fabric:
        switch = fabric.bed.open_vswitch
        kept_ms = switch.command("get", "Open_vSwitch", ".", "other_config:max-idle")
        round_ms = switch.command("get", "Open_vSwitch", ".", "other_config:max-revalidator")
    assert int(kept_ms.strip('"\n')) > 3_600_000
    assert int(round_ms.strip('"\n')) == switch.revalidation_ms == 500


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_shell_in_a_container_works_wherever_its_user_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a folder that containers do not have
    with fabric_up(small_spec(FabricKind.RAIL_ONLY), ProxyKind.CONTAINER) as fabric:
        assert fabric.bed.network.pingPair() == 0
        node = fabric.bed.network["d0g0"]
        assert "1 received" in node.cmd("ping -c 1 10.0.0.2")
        node.sendCmd("ping 10.0.0.2")
        # A shell that has not begun its command yet takes the Ctrl-C for itself.
        wait_until(lambda: "bytes from" in node.monitor(timeoutms=100), "the command runs")
        node.sendInt()

        def has_ended() -> bool:
            node.monitor(timeoutms=100)
            return not node.waiting

        wait_until(has_ended, "Ctrl-C ends a command")


def test_the_kernel_sends_no_ipv6_and_no_multicast_reports_into_links() -> None:
    """A bridge that snoops on multicast is a member of all-snoopers, 224.0.0.106 (RFC 4286)."""
    with fabric_up(small_spec(FabricKind.RAIL_ONLY), ProxyKind.PROCESS) as fabric:
        assert Path("/proc/thread-self/net/if_inet6").read_text() == ""
        assert "6A0000E0" not in Path("/proc/thread-self/net/igmp").read_text()
        for proxy in fabric.bed.proxies.values():
            with namespace_of(proxy.process_id):
                assert Path("/proc/thread-self/net/if_inet6").read_text() == ""


@KINDS
def test_link_counters_show_the_loads_that_the_model_charges(kind: FabricKind) -> None:
    """Bytes are on the links of the routed paths: forwarding and prediction agree."""
    with fabric_up(small_spec(kind, 3, 2), ProxyKind.PROCESS) as fabric:
        schedule, prediction = planned(fabric, Collective.ALL_TO_ALL, "direct", 600_000)
        before = fabric.bed.links.read_counters().counters
        (repeat,) = fabric.repeats(schedule, prediction, 1, check_data=False)
        after = fabric.bed.links.read_counters().counters
        expected = dict.fromkeys(after, 0)
        for transfer in schedule.transfers:
            source, destination = transfer.source, transfer.destination
            gpus = fabric.topology.gpus
            for hop in Routing(fabric.topology).path(gpus[source], gpus[destination]):
                expected[hop.link.name] += transfer.size_bytes
        assert repeat.complete
        for name, payload in expected.items():
            carried = (after[name].sent_bytes + after[name].received_bytes) - (
                before[name].sent_bytes + before[name].received_bytes
            )
            # Headers, acknowledgements, address resolution, and retransmits.
            assert payload <= carried <= payload * 1.25 + 20_000, name


def test_a_healthy_rail_only_fabric_has_no_rule_that_leaves_its_rail() -> None:
    with fabric_up(small_spec(FabricKind.RAIL_ONLY), ProxyKind.PROCESS) as fabric:
        switch = fabric.bed.open_vswitch
        for name in fabric.topology.rail_switches:
            flows = subprocess.run(
                ["ovs-ofctl", "-OOpenFlow13", "dump-flows", f"unix:{switch.folder}/{name}.mgmt"],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            assert flows.count("nw_dst=") == fabric.topology.spec.domains
            assert "NORMAL" not in flows


def test_the_journal_says_what_was_installed_and_when() -> None:
    with fabric_up(small_spec(FabricKind.RAIL_OPTIMIZED), ProxyKind.PROCESS) as fabric:
        journal = read_journal(fabric.bed.controller.journal)
        sent = {line["switch"] for line in journal if line["event"] == "sent"}
        times = [int(str(line["ns"])) for line in journal]
    assert sent == set(fabric.topology.openflow_switches)
    assert times == sorted(times)


@PROXIES
@pytest.mark.parametrize("what", ["d1g0 (GPU proxy)", "the controller", "Open vSwitch"])
def test_what_dies_is_named_and_the_records_are_kept(what: str, proxies: ProxyKind) -> None:
    with fabric_up(small_spec(FabricKind.RAIL_ONLY), proxies) as fabric:
        schedule, prediction = planned(fabric, Collective.ALL_TO_ALL, "two-step", 20_000_000)
        victim = [fabric.bed.watch.process_id(what)]

        def kill(_: float) -> float:
            if victim:
                os.kill(victim.pop(), signal.SIGKILL)
            return inf

        repeats = fabric.repeats(schedule, prediction, 1, check_data=False, on_tick=kill)
        with pytest.raises(Incomplete) as caught:
            next(repeats)
    assert what in str(caught.value)
    assert "its log ends with" in str(caught.value)
    assert not caught.value.repeat.complete
    assert caught.value.repeat.records


def test_two_fabrics_at_once() -> None:
    spec = small_spec(FabricKind.RAIL_ONLY)
    with fabric_up(spec, ProxyKind.PROCESS) as one, fabric_up(spec, ProxyKind.PROCESS) as other:
        for fabric in (one, other):
            schedule, prediction = planned(fabric, Collective.ALL_REDUCE, "hierarchical", 40_000)
            (repeat,) = fabric.repeats(schedule, prediction, 1, check_data=True)
            assert repeat.complete
            assert not repeat.errors


def test_a_shaper_that_is_not_as_asked_is_noticed() -> None:
    with fabric_up(small_spec(FabricKind.RAIL_ONLY), ProxyKind.PROCESS) as fabric:
        link = fabric.topology.links[0]
        index = fabric.bed.links.index_of(link.upper)
        fabric.bed.links.switches.tc("del", "htb", index, 0x1_0000)
        with pytest.raises(EmulationError, match=f"{link.name}, hb0's end: wrong shaper"):
            fabric.bed.links.check_shaped(link)


def test_a_fabric_that_cannot_come_up_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_at_last(_process: ControllerProcess, event: str) -> None:
        if event == "ready":
            raise EmulationError("no rules today")

    monkeypatch.setattr(ControllerProcess, "wait_for_event", fail_at_last)
    spec, opened = small_spec(FabricKind.RAIL_OPTIMIZED), list[int]()
    for _ in range(2):
        with (
            pytest.raises(EmulationError, match="no rules today"),
            fabric_up(spec, ProxyKind.PROCESS),
        ):
            pytest.fail("it must not come up")
        opened.append(open_files())
    assert opened[0] == opened[1]
