"""Verdicts on probed paths: intended or stray, bytes across rails, and the printed report."""

import dataclasses
import io
import json
import struct
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from commands.app import app
from execution.path_check import judge_isolation, rails_of
from model.fabric.addressing import nic_address, rail_network
from model.fabric.build import build_topology
from model.fabric.spec import FabricKind, Spares
from model.fabric.topology import Gpu, Hop, Topology
from model.measurement.records import ProbePath
from model.routing.paths import Routing
from results.render.terminal import print_sections
from results.sections.machine import verify_sections
from results.sections.run import run_sections
from results.store.records import plain
from results.verdicts.path_check import (
    FabricCheck,
    IsolationCheck,
    Mismatch,
    isolation_check,
    mismatch,
    verify_object,
)
from results.verdicts.run import RunResult
from results.verdicts.verdict import Verdict
from testbed.nodes.gpu_proxies import ProxyKind
from testbed.nodes.openvswitch import RuleCount, parse_rules
from tests.unit.fabrics import regular_topologies, spec
from traffic_gen.probes.packet import PROBE_PORT, probe_packet
from traffic_gen.probes.path_tracer import Flow, parse_flow

TOPOLOGY = build_topology(spec(FabricKind.RAIL_ONLY, 3, 2))
SOURCE, DESTINATION = Gpu(0, 0), Gpu(1, 1)
INTENDED = Routing(TOPOLOGY).path(SOURCE, DESTINATION)
ASTRAY = Routing(TOPOLOGY).path(SOURCE, Gpu(1, 0))
AS_INTENDED = ProbePath(INTENDED, True)
ISOLATED = isolation_check(own_bytes=100, foreign_bytes=0)


def pair(*traces: ProbePath) -> Mismatch | None:
    return mismatch(SOURCE, DESTINATION, (INTENDED,), traces)


def in_words(path: Sequence[Hop]) -> tuple[str, ...]:
    return tuple(f"{hop.sender}->{hop.receiver}" for hop in path)


def checked(*pairs: Mismatch | None, isolation: IsolationCheck = ISOLATED) -> FabricCheck:
    return FabricCheck(FabricKind.RAIL_ONLY, 30, [one for one in pairs if one], isolation)


def printed(result: dict[str, Any]) -> str:
    text = io.StringIO()
    print_sections(verify_sections(result), Console(file=text, width=80))
    return text.getvalue()


def test_a_pair_is_as_intended_when_every_probe_is() -> None:
    assert pair(AS_INTENDED, AS_INTENDED) is None


@pytest.mark.parametrize(
    "trace",
    [
        ProbePath(ASTRAY, True),
        ProbePath(INTENDED, False),
        ProbePath((), False),
        ProbePath((), True),
    ],
)
def test_one_stray_probe_is_enough(trace: ProbePath) -> None:
    found = pair(AS_INTENDED, AS_INTENDED, trace)
    assert found is not None
    assert (found.stray, found.found) == (1, in_words(trace.hops))


def test_the_path_of_most_stray_probes_is_reported() -> None:
    found = pair(ProbePath((), False), *[ProbePath(ASTRAY, True)] * 2, *[AS_INTENDED] * 5)
    assert found is not None
    assert found.found == in_words(ASTRAY)


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_rails_are_isolated_when_their_own_bytes_are_all_there_are(own: int, foreign: int) -> None:
    passed = isolation_check(own, foreign).verdict is Verdict.PASS
    assert passed == (own > 0 and foreign == 0)


def test_the_object_of_what_is_as_intended() -> None:
    assert verify_object("x", [checked(), checked(isolation=IsolationCheck())]) == {
        "schema": "railbed.verify/1",
        "scenario": "x",
        "verdict": "pass",
        "fabrics": [
            {
                "kind": "rail-only",
                "verdict": "pass",
                "pairs": 30,
                "as_intended": 30,
                "mismatches": [],
                "rail_isolation": isolation,
            }
            for isolation in (
                {"verdict": "pass", "foreign_bytes": 0, "own_bytes": 100},
                {"verdict": "not applicable", "foreign_bytes": None, "own_bytes": None},
            )
        ],
    }


def test_a_mismatch_is_named_with_both_paths() -> None:
    result = verify_object("x", [checked(pair(AS_INTENDED, ProbePath(ASTRAY, False))), checked()])
    assert result["verdict"] == "fail"
    assert [fabric["verdict"] for fabric in result["fabrics"]] == ["fail", "pass"]
    assert result["fabrics"][0]["as_intended"] == 29
    assert result["fabrics"][0]["mismatches"] == [
        {
            "source": "d0g0",
            "destination": "d1g1",
            "intended": ["d0g0->hb0", "hb0->d0g1", "d0g1->rail1", "rail1->d1g1"],
            "found": ["d0g0->rail0", "rail0->d1g0"],
            "probes": 2,
            "stray": 1,
            "arrived": 1,
        }
    ]
    assert (
        "fail: rail-only: d0g0 to d1g1: "
        "intended d0g0->hb0 hb0->d0g1 d0g1->rail1 rail1->d1g1; found d0g0->rail0 rail0->d1g0; "
        "1 of 2 probes astray, 1 arrived\n"
    ) in printed(result)


def test_bytes_across_rails_fail_and_are_said() -> None:
    result = verify_object("x", [checked(isolation=isolation_check(100, 58))])
    assert result["verdict"] == "fail"
    assert "fail: rail-only: rails are not isolated: 58 bytes crossed" in printed(result)
    nothing = verify_object("x", [checked(isolation=isolation_check(0, 0))])
    assert "isolation is not shown" in printed(nothing)


def test_not_more_mismatches_are_printed_than_can_be_read() -> None:
    result = verify_object("x", [checked(*[pair(ProbePath((), False))] * 30)])
    assert len(result["fabrics"][0]["mismatches"]) == 30
    assert printed(result).count("found nothing") == 20
    assert "and 10 more pairs" in printed(result)


def test_a_run_fails_with_its_paths_whatever_its_cases_say(tmp_path: Path) -> None:
    for isolation, verdict in ((ISOLATED, "pass"), (isolation_check(100, 58), "fail")):
        paths = verify_object("x", [checked(isolation=isolation)])
        result = plain(RunResult("id", "x", tmp_path, [], paths=paths))
        assert result["verdict"] == verdict
        assert result["paths"] == paths
        text = io.StringIO()
        print_sections(run_sections(result), Console(file=text, width=80))
        assert ("58 bytes crossed" in text.getvalue()) == (verdict == "fail")


@pytest.mark.parametrize("arguments", [[], ["--json"]])
@pytest.mark.parametrize(
    ("found", "exit_code"), [(checked(), 0), (checked(pair(ProbePath((), False))), 1)]
)
def test_the_command_ends_as_its_verdict_says(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    found: FabricCheck,
    exit_code: int,
    arguments: list[str],
) -> None:
    def verified(*_: object) -> Iterator[FabricCheck]:
        yield found

    monkeypatch.setattr("commands.options.ready", lambda kind, _: ProxyKind(kind))
    monkeypatch.setattr("execution.path_check.verify", verified)
    command = ["verify", "quickstart", "--proxies", "process", *arguments]
    assert app(command, standalone_mode=False) == exit_code
    said = capsys.readouterr().out
    if arguments:
        assert json.loads(said) == verify_object("quickstart", [found])
    else:
        assert ("d0g0 to d1g1" in said) == bool(exit_code)


# Parsing of captured frames and of switches' counters


def frame(packet: bytes, ethertype: int = 0x0800) -> bytes:
    return bytes(12) + struct.pack("!H", ethertype) + packet


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1))
def test_the_flow_of_a_probe_is_read_from_its_frame(source: int, target: int, port: int) -> None:
    flow = Flow(IPv4Address(source), IPv4Address(target), port)
    whole = frame(probe_packet(*flow))
    assert parse_flow(whole, PROBE_PORT) == flow
    assert parse_flow(whole[:38], PROBE_PORT) == flow


def test_other_frames_have_no_flow() -> None:
    packet = probe_packet(nic_address(SOURCE), nic_address(DESTINATION), 49152)
    tcp = packet[:9] + b"\6" + packet[10:]
    with_options = b"\x46" + packet[1:]
    others = [frame(packet, 0x88B5), frame(tcp), frame(with_options), frame(packet)[:37], b""]
    assert [parse_flow(other, PROBE_PORT) for other in others] == [None] * len(others)
    assert parse_flow(frame(packet), PROBE_PORT + 1) is None


# As ovs-ofctl 3.1.0 prints it.
DUMP = """\
OFPST_FLOW reply (OF1.3) (xid=0x2):
 cookie=0x5241494c00000001, duration=2.7s, table=0, n_packets=64, n_bytes=3712, \
priority=164,ip,nw_dst=10.0.0.1 actions=set_field:02:02:0a:00:00:01->eth_dst,output:1
 cookie=0x5241494c00000001, duration=2.7s, table=0, n_packets=2, n_bytes=116, \
priority=134,ip,nw_dst=10.0.128.0/17 actions=group:65537
 cookie=0x0, duration=2.7s, table=0, n_packets=9, n_bytes=900, priority=1,ip actions=drop
 cookie=0x0, duration=2.7s, table=0, n_packets=1, n_bytes=50, in_port=1 actions=NORMAL
"""


def test_rules_that_forward_are_read_with_what_they_counted() -> None:
    assert parse_rules(DUMP) == [
        RuleCount(IPv4Network("10.0.0.1"), 3712),
        RuleCount(IPv4Network("10.0.128.0/17"), 116),
        RuleCount(IPv4Network("0.0.0.0/0"), 50),
    ]


def test_what_a_rule_without_a_rail_forwards_is_foreign() -> None:
    rules = parse_rules(DUMP)
    assert judge_isolation(TOPOLOGY, {"rail0": rules}) == isolation_check(3712, 166)
    assert judge_isolation(TOPOLOGY, {"rail1": rules}) == isolation_check(116, 3762)


@given(regular_topologies())
def test_a_switch_serves_its_own_rail_or_all_of_them(topology: Topology) -> None:
    size, nics = topology.spec.domain_size, topology.spec.nics
    for switch in topology.switches:
        if switch.rail is None:
            assert rails_of(topology, switch.name) == set(range(size))
        else:
            first, end = switch.rail * size // nics, (switch.rail + 1) * size // nics
            assert rails_of(topology, switch.name) == set(range(first, max(first + 1, end)))


def test_a_spare_rail_switch_has_no_rail_of_its_own() -> None:
    spares = dataclasses.replace(spec(FabricKind.RAIL_ONLY, 2, 2), spares=Spares(rail_switches=1))
    topology = build_topology(spares)
    assert rails_of(topology, "rail2") == set()
    counted = {"rail2": [RuleCount(rail_network(2), 7)]}
    assert judge_isolation(topology, counted) == isolation_check(0, 7)
