"""What the commands of `up` understand and say; nothing is brought up."""

import re
import signal
from dataclasses import replace
from errno import ENOSPC
from math import inf
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock, Mock

import pytest
from mininet.log import lg

from execution.session.command_line import (
    Audience,
    Commands,
    executed_line,
    fault_lines,
    greeting,
    load_lines,
    modes,
    parse_fault,
    path_lines,
    serve,
    targets,
)
from execution.session.session import Executed, FaultSeen, LinkLoad, PathSeen
from model.errors import InputError
from model.fabric.build import build_topology
from model.fabric.health import HEALTHY, Health
from model.fabric.spec import COMPARED, FabricKind, Spares
from model.fabric.topology import Hop, Topology
from model.faults import Component, Fault, FaultMode, health_under, loses_links
from model.job.placement import job_placement
from model.job.probing import probed_pairs
from model.measurement.records import ProbePath, Repeat
from model.routing.paths import Routing
from results.verdicts.fault_impact import FaultTimes
from testbed.fabric.command_line import open_command_line
from tests.unit.fabrics import spec
from traffic_gen.probes.blackout import Blackout

RAIL_ONLY, RAIL_OPTIMIZED = FabricKind.RAIL_ONLY, FabricKind.RAIL_OPTIMIZED
TIMES = FaultTimes("d0g0--rail0 down", 0.0, None, 2.1, 3.0, 4.0, 7.4)
BEGUN_NS = 10**12


def blackouts(longest_ms: float | None) -> dict[str, Blackout | None]:
    """Of three probed pairs, one with this blackout; of no pair without one."""
    if longest_ms is None:
        return {}
    end_ns = None if longest_ms == inf else BEGUN_NS + round(longest_ms * 1e6)
    shorter = Blackout(BEGUN_NS, BEGUN_NS + 1, 1)
    return {"a": None, "b": shorter, "c": Blackout(BEGUN_NS, end_ns, 9)}


@pytest.fixture
def topology() -> Topology:
    return build_topology(spec(RAIL_OPTIMIZED, 2, 2))


@pytest.mark.parametrize(
    ("words", "component", "mode", "rate_bps"),
    [
        ("d0g0--rail0", Component.NIC_LINK, FaultMode.DOWN, None),
        ("d1g1--hb1 blackhole", Component.HB_LINK, FaultMode.BLACKHOLE, None),
        ("rail1--spine0 degrade 100 Gbit/s", Component.UPLINK, FaultMode.DEGRADE, 5_000_000),
        ("spine0 kill", Component.SPINE_SWITCH, FaultMode.KILL, None),
        ("d1 down", Component.DOMAIN, FaultMode.DOWN, None),
        ("controller", Component.CONTROLLER, FaultMode.KILL, None),
    ],
)
def test_a_fault_is_what_a_scenario_would_call_it(
    topology: Topology, words: str, component: Component, mode: FaultMode, rate_bps: int | None
) -> None:
    expected = Fault(component, mode, words.split()[0], rate_bps=rate_bps)
    assert parse_fault(topology, words.split()) == expected


def test_a_path_is_of_two_different_gpus(topology: Topology) -> None:
    commands = Commands(cast(Any, SimpleNamespace(topology=topology)), [], print)
    with pytest.raises(InputError, match="paths: needs two different GPUs, got d0g0 d0g0"):
        commands.paths(["d0g0", "d0g0"])
    with pytest.raises(InputError, match=r"paths: unknown GPU 'd9g9' \(d0g0 to d1g1\)"):
        commands.paths(["d0g0", "d9g9"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "needs the name of a component"),
        ("d0g0--rail1", "component 'd0g0--rail1'; did you mean 'd0g1--rail1'?"),
        (
            "d0g0 kill",
            "mode of a gpu must be down, blackhole, got 'kill' (use a scenario for this mode)",
        ),
        ("rail0 bent", "mode of a rail-switch must be down, blackhole, kill, upgrade, got 'bent'"),
        ("rail0 down now", "down takes no further arguments, got 'now'"),
        ("d0g0--rail0 degrade", "must be a number with a unit"),
        ("d0g0--rail0 degrade 1 kbit/s", "leaves 0.05 bit/s"),
        ("d0g0--rail0 degrade 1e400 Gbit/s", "must be 1 kbit/s to 1000 Tbit/s, got '1e400 Gbit/s'"),
        ("d0g0--rail0 degrade 100", "needs a unit"),
        ("d0g0--rail0 degrade 400 Gbit/s", "must be less than the link's 400 Gbit/s"),
    ],
)
def test_a_wrong_fault_gets_a_sentence(topology: Topology, words: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        parse_fault(topology, words.split())


@pytest.mark.parametrize("name", ["faults", "load", "stop"])
def test_words_that_a_command_does_not_take_are_refused(topology: Topology, name: str) -> None:
    commands = Commands(cast(Any, SimpleNamespace(topology=topology)), [], print)
    with pytest.raises(InputError, match=f"{name}: takes no further arguments, got 'd0g0'"):
        getattr(commands, name)(["d0g0"])


def test_stop_says_that_nothing_runs(
    topology: Topology, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = Commands(cast(Any, SimpleNamespace(topology=topology)), [], print)
    commands.end()
    assert capsys.readouterr().out == ""
    commands.stop([])
    assert capsys.readouterr().out == "No workload is running.\n"


@pytest.mark.parametrize("status", ["stop", "start"])
def test_only_switches_stop_and_start(
    topology: Topology, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned: list[str] = []
    commands = Commands(cast(Any, SimpleNamespace(topology=topology)), [], print)
    monkeypatch.setattr(commands, "_turn", lambda name, *_: turned.append(name))
    switches = [*topology.openflow_switches, *topology.hb_switches]
    for name in switches:
        commands.switch([name, status])
    assert turned == switches
    for name in targets(topology).keys() - set(switches):
        with pytest.raises(InputError, match=f"switch: {name} is not a switch"):
            commands.switch([name, status])
    assert turned == switches


def test_iperf_measures_between_gpus_of_the_job() -> None:
    topology = build_topology(replace(spec(RAIL_ONLY, 3, 2), spares=Spares(domains=1)))
    measured: list[tuple[Any, Any]] = []

    def throughput_bps(*pair: Any) -> float:
        measured.append(pair)
        return 1e6

    session = SimpleNamespace(topology=topology, throughput_bps=throughput_bps)
    Commands(cast(Any, session), [], print).iperf([])
    assert measured == [(topology.job_gpus[0], topology.job_gpus[-1])]
    assert topology.job_gpus[-1] != topology.gpus[-1]


@pytest.mark.parametrize("kind", COMPARED)
def test_every_component_can_break_in_some_mode(kind: FabricKind) -> None:
    known = targets(build_topology(spec(kind, 2, 2)))
    assert {*known.values()} <= {*Component}
    assert all(modes(component) for component in known.values())


def test_every_mode_of_a_session_loses_links_or_leaves_them_a_rate(topology: Topology) -> None:
    for name, component in targets(topology).items():
        for mode in modes(component):
            rate = ["100", "Gbit/s"] if mode is FaultMode.DEGRADE else []
            fault = parse_fault(topology, [name, mode, *rate])
            assert (fault.rate_bps is None) is loses_links(mode), fault.name


def test_the_greeting_names_nodes_that_there_are(topology: Topology) -> None:
    text = greeting("quickstart", topology, ["all-reduce/hierarchical"])
    assert "rail-optimized fabric of quickstart is up: 2 HB domains of 2 GPUs" in text
    assert "d0g0 ... d1g1" in text
    assert "rail0 ... spine0" in text
    tried = [line.split() for line in text.splitlines() if line.startswith("  ")]
    assert ["d0g0", "ping", "-c", "3", "d1g1"] in tried
    assert ["run", "all-reduce/hierarchical"] in tried
    (fault,) = (words for words in tried if words[0] == "fault")
    assert parse_fault(topology, [fault[1]]).target in topology.link_by_name


def test_the_greeting_of_one_domain_names_two_of_its_gpus() -> None:
    text = greeting("quickstart", build_topology(spec(FabricKind.RAIL_ONLY, 1, 4)), [])
    assert "d0g0 ping -c 3 d0g3" in text
    assert "then: paths d0g0 d0g1, heal" in text
    assert "1 HB domain of 4 GPUs" in text


def test_the_greeting_names_no_spare_gpu_to_measure() -> None:
    fabric = replace(spec(FabricKind.RAIL_ONLY, 3, 3), spares=Spares(gpus=1, domains=1))
    text = greeting("quickstart", build_topology(fabric), [])
    assert "d0g0 ping -c 3 d1g1" in text
    assert "iperf d0g0 d1g1" in text


@pytest.mark.parametrize(
    ("blackout_ms", "said"),
    [(13.6, "Blackout: 14 ms"), (inf, "Blackout: no end was seen for 1 of"), (None, "")],
)
def test_a_fault_is_told_with_its_blackout(blackout_ms: float | None, said: str) -> None:
    fault = Fault(Component.NIC_LINK, FaultMode.DOWN, "d0g0--rail0")
    seen = FaultSeen(fault, HEALTHY, TIMES, BEGUN_NS, blackouts(blackout_ms))
    lines = fault_lines(seen)
    told = "detected after 2 ms, new paths confirmed after 7 ms"
    assert lines[0] == f"nic-link d0g0--rail0: down: {told}"
    assert lines[1:] == ([] if not said else [lines[1]])
    assert said in "".join(lines)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Fault(Component.CONTROLLER, FaultMode.KILL, "controller"), "controller: kill"),
        (Fault(Component.NIC_LINK, FaultMode.DOWN, "d0g0--rail0"), "nic-link d0g0--rail0: down"),
    ],
)
def test_without_a_controller_nothing_is_detected(fault: Fault, told: str) -> None:
    (line,) = fault_lines(FaultSeen(fault, HEALTHY, TIMES, BEGUN_NS, {}, controller_is_gone=True))
    why = "without a controller, faults are not detected and paths stay, until `heal controller`"
    assert line == f"{told}: {why}"


@pytest.mark.parametrize(
    ("complete", "changes", "told"),
    [
        (True, (), ", ratio 0.6250"),
        (False, (), ", incomplete: rank 0: stalled"),
        (
            True,
            ((0.5, "d0g0--rail0 down"), (1.25, "d0g0--rail0 healed")),
            "; the model is of the fabric at the start, which changed: "
            "d0g0--rail0 down at 0.500 s, d0g0--rail0 healed at 1.250 s",
        ),
    ],
)
def test_an_execution_is_held_against_a_model_that_holds(
    complete: bool, changes: tuple[tuple[float, str], ...], told: str
) -> None:
    errors = () if complete else ("rank 0: stalled",)
    repeat = Repeat(0, complete, 2.5, 0, 0, (), errors, ())
    case, prediction = SimpleNamespace(name="rail-only/ring"), SimpleNamespace(completion_s=4.0)
    done = Executed(cast(Any, case), repeat, cast(Any, prediction), changes)
    assert executed_line(done) == f"ring: measured 2.500 s, modeled 4.000 s{told}"


def test_a_drained_link_is_named() -> None:
    fault = Fault(Component.NIC_LINK, FaultMode.DEGRADE, "d0g0--rail0", rate_bps=1_000_000)
    drained = Health(frozenset({"d0g0--rail0"}), {}, frozenset({"d0g0--rail0"}))
    lines = fault_lines(FaultSeen(fault, drained, TIMES, BEGUN_NS, {}))
    assert "degrade to 1 Mbit/s" in lines[0]
    assert lines[1].endswith("d0g0--rail0")


def test_paths_intended_and_taken_are_told_node_by_node(topology: Topology) -> None:
    near, far = topology.gpu_at[0, 0], topology.gpu_at[1, 1]
    hops = Routing(topology).path(near, far)
    lines = path_lines(
        PathSeen(hops, (ProbePath(hops, True), ProbePath(hops, True), ProbePath((), False)))
    )
    assert lines == [
        "intended: d0g0 > rail0 > spine0 > rail1 > d1g1",
        "taken by 2 of 3 probes: d0g0 > rail0 > spine0 > rail1 > d1g1",
        "lost: 1 of 3 probes",
    ]
    assert path_lines(PathSeen(None, ())) == ["intended: none, it is cut off"]


def test_loads_are_sorted_by_use(topology: Topology) -> None:
    slow, fast = (Hop(topology.links[n], topology.links[n].lower.node) for n in (0, 4))
    loads = [LinkLoad(slow, 1e6, 0.1, 0), LinkLoad(fast, 5e5, 0.5, 1500)]
    first, second = load_lines(loads)
    assert first.split()[:4] == [fast.sender, ">", fast.receiver, "50.0%"]
    assert "1500 B queued" in first
    assert second.split()[3] == "10.0%"
    assert load_lines([LinkLoad(slow, 0, 0, 0)]) == ["No link carries data."]


def test_pairs_of_earlier_faults_are_not_probed_again() -> None:
    """A second fault affects the pairs that cross its link now, after the first one."""
    home = job_placement(spec(RAIL_ONLY, 2, 2))
    first = Fault(Component.NIC_LINK, FaultMode.DOWN, "d0g0--rail0")
    second = Fault(Component.NIC_LINK, FaultMode.DEGRADE, "d1g1--rail1", rate_bps=10_000)
    health = health_under(home.topology, [first])
    broken = type(home)(home.spec, home.cross_connects, home.gpus, health)
    affected, _ = probed_pairs(broken, [second], 100, lasting=[first])
    assert affected == []
    assert probed_pairs(home, [first], 100)[0] != []
    assert probed_pairs(broken, [second], 100, lasting=[first])[1] != []


def test_the_audience_learns_of_the_end_before_the_workload_is_stopped(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = Mock()
    order.Commands.return_value.workloads = {}
    for name in ("Session", "Commands", "open_command_line"):
        monkeypatch.setattr(f"execution.session.command_line.{name}", getattr(order, name))
    audience = Mock(spec=Audience, follow=order.follow, ended=order.ended)
    serve(MagicMock(topology=topology), Mock(), Mock(), audience)
    names = [name for name, *_ in order.mock_calls]
    last = ["follow", "Commands().all", "open_command_line", "ended", "Commands().end"]
    assert [name for name in names if name in last] == last


def test_output_that_nobody_can_read_ends_the_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = Mock(write=Mock(side_effect=OSError(ENOSPC, "full")), flush=Mock(side_effect=OSError))
    monkeypatch.setattr("sys.stdout", full)
    before = signal.getsignal(signal.SIGINT), lg.handlers[0].stream
    with pytest.raises(OSError, match="full"):
        open_command_line(Mock(), "welcome", ())
    assert (signal.getsignal(signal.SIGINT), lg.handlers[0].stream) == before
