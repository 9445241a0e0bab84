"""The verdict by observation alone, and byte conservation."""

import io
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rich.console import Console

from model.fabric.build import build_topology
from model.fabric.health import HEALTHY, Epoch, Health, without
from model.fabric.link_probes import PROBE_BYTES
from model.fabric.shaping import (
    ETHERNET_HEADER_BYTES,
    PACKET_HEADER_BYTES,
    Impairment,
    SwitchQueue,
    wire_bytes,
)
from model.fabric.spec import COMPARED, FabricKind, SpineSelection
from model.fabric.topology import Hop, Topology
from model.fabric.transport import MTUS, Roce, Transport
from model.measurement.cpu_windows import Window
from model.measurement.pauses import NOT_WATCHED, Pause, PauseLog
from model.measurement.records import CaseExecutions, QueuePairSample, Repeat
from model.prediction.fluid import path_class, predict
from model.routing.paths import Routing
from model.workload.generator import OVERHEADS, Generator, QueuePairs
from model.workload.schedule import Schedule
from model.workload.transfers.collective import Collective
from results.render.terminal import print_sections
from results.sections.machine import executions_section, headroom_section
from results.store.records import plain
from results.verdicts.byte_conservation import (
    Carried,
    Irregular,
    link_reasons,
    payload_reasons,
    spans,
)
from results.verdicts.fidelity import (
    LIMITS,
    Fidelity,
    MachineHeadroom,
    Observation,
    fidelity_during_fault,
    machine_headroom,
    machine_reasons,
)
from results.verdicts.model_comparison import CaseResult, Measured, compare
from results.verdicts.summary import summarize
from results.verdicts.verdict import Thresholds, Verdict, worst
from tests.unit.fabrics import spec, transfer_paths
from traffic_gen.agents.roce import packets
from traffic_gen.agents.roce.packets import Packet
from traffic_gen.workloads.sized_collective import SizedCollective

QUIET = Window(0, 10**8, 0.8, 0.0, 0.2, 0.02, 0.05, 0.5, 0.001)
NEVER_DONE = replace(QUIET, switch_busy=1.0, switch_delay=0.06, switch_behind_s=0.1)
DEPTH_S = 0.01


def pauses(*lengths_s: float) -> PauseLog:
    """One second of two cores, with pauses of these lengths one after the other."""
    found: list[Pause] = []
    now_ns = 0
    for length_s in lengths_s:
        found.append(Pause(now_ns, now_ns + round(length_s * 1e9), len(found) % 2))
        now_ns = found[-1].end_ns
    return PauseLog(2, 0, 10**9, tuple(found))


def observation(*windows: Window, **changes: Any) -> Observation:
    facts: dict[str, Any] = {
        "seconds": 1.0,
        "agents_delay_s": (0.01, 0.02),
        "backlog_left_bytes": 0,
        "retransmits": 0,
        "start_skew_s": 0.002,
        "pauses": pauses(),
        "depth_s": DEPTH_S,
    }
    return Observation(windows=windows or (QUIET,) * 10, **{**facts, **changes})


def verdict_on(*of: Observation) -> Verdict:
    return worst(verdict for verdict, _ in machine_reasons(machine_headroom(of, 0)))


def test_delays_are_named_if_they_take_a_part_of_the_time() -> None:
    headroom = machine_headroom([observation(agents_delay_s=(0.77, 0.77))], 0)
    verdict, reason = next(machine_reasons(headroom))
    assert verdict is Verdict.FAIL
    assert reason == (
        "delays of a byte add up to 154% of an execution: "
        "each of two agents waited for a core in 77%"
    )


@pytest.mark.parametrize(
    ("window", "changes", "sentence"),
    [
        (
            replace(QUIET, switch_busy=1.0, idle=0.02),
            {},
            "the switch was saturated in 100% of an execution, and the cores were idle for 2% of "
            "the time",
        ),
        (QUIET, {"agents_delay_s": (0.4, 0.8)}, "agents waited for a core in 30% of an execution"),
        (
            QUIET,
            {"agents_delay_s": (0.2, 1.0)},
            "one agent waited for a core in 50% of an execution",
        ),
        (
            QUIET,
            {"pauses": pauses(*[0.04] * 10, 0.05)},
            "pauses of up to 50 ms took 17% of an execution beyond what the links' buckets make up "
            "for",
        ),
        (QUIET, {"retransmits": 500}, "senders retransmitted 250 segments a second"),
        (QUIET, {"start_skew_s": 0.05}, "an agent started 50 ms late, 2.5% of an execution"),
        (QUIET, {"backlog_left_bytes": 9000}, "9000 bytes still queued after completion"),
    ],
)
def test_what_is_exhausted_is_named_with_its_figures(
    window: Window, changes: dict[str, Any], sentence: str
) -> None:
    whole = replace(window, end_ns=2 * 10**9)
    headroom = machine_headroom([observation(whole, seconds=2.0, **changes)], 0)
    assert sentence in [reason for _, reason in machine_reasons(headroom)]


def test_an_aborted_execution_may_start_late() -> None:
    assert verdict_on(observation(start_skew_s=0.2)) is Verdict.FAIL
    assert verdict_on(observation(start_skew_s=0.2, complete=False)) is Verdict.PASS


@given(st.floats(0.1, 30), st.floats(0, 0.3) | st.floats(0, 1))
def test_a_second_or_a_tenth_may_lie_beside_the_samples(seconds: float, beside: float) -> None:
    sampled = replace(QUIET, begin_ns=10**9, end_ns=10**9 + round((1 - beside) * seconds * 1e9))
    too_long_s = beside * seconds - max(1.0, 0.1 * seconds)
    assume(abs(too_long_s) > 1e-6)
    assert observation(sampled, seconds=seconds).is_observed == (too_long_s < 0)


def test_a_quiet_machine_passes() -> None:
    assert list(machine_reasons(machine_headroom([observation()] * 5, 0))) == []


@pytest.mark.parametrize(
    ("windows", "changes"),
    [
        ((NEVER_DONE,) * 10, {}),
        ((replace(QUIET, switch_delay=0.6, switch_behind_s=0.1),) * 10, {}),
        ((), {"agents_delay_s": (0.5, 0.5)}),
        ((), {"agents_delay_s": (*[0.01] * 15, 0.9)}),
        ((), {"pauses": pauses(*[0.04] * 10)}),
        ((), {"retransmits": 5000}),
        ((), {"start_skew_s": 0.2}),
    ],
)
def test_what_is_overloaded_fails(windows: tuple[Window, ...], changes: dict[str, Any]) -> None:
    assert verdict_on(observation(*windows, **changes)) is Verdict.FAIL


@pytest.mark.parametrize(
    ("share", "verdict"), [(0.6, Verdict.PASS), (0.7, Verdict.WARN), (1.0, Verdict.FAIL)]
)
def test_a_switch_that_is_never_done_can_fail(share: float, verdict: Verdict) -> None:
    never = round(20 * share)
    windows = (NEVER_DONE,) * never + (QUIET,) * (20 - never)
    assert verdict_on(observation(*windows, agents_delay_s=(0.0,))) is verdict


@pytest.mark.parametrize(
    ("full", "idle", "verdict"),
    [
        (20, 0.0, Verdict.FAIL),
        (20, 0.04, Verdict.FAIL),
        (19, 0.0, Verdict.WARN),
        (18, 0.0, Verdict.PASS),
        (20, 0.2, Verdict.PASS),
    ],
)
def test_a_full_switch_is_doubtful_without_an_idle_processor(
    full: int, idle: float, verdict: Verdict
) -> None:
    """As on a machine of one processor: the switch is done at times, and too late all the same."""
    has_room = replace(QUIET, idle=idle, switch_busy=0.7, switch_delay=0.1, beside_switch=0.2)
    is_full = replace(has_room, switch_busy=0.8, switch_delay=0.18)
    windows = (is_full,) * full + (has_room,) * (20 - full)
    assert verdict_on(observation(*windows)) is verdict


def test_a_switch_that_only_looks_at_many_ports_is_not_short_of_time() -> None:
    looking = replace(NEVER_DONE, beside_switch=0.3)
    assert verdict_on(observation(*(looking,) * 20)) is Verdict.PASS


def test_who_takes_cores_away_is_not_who_forwards() -> None:
    """A core taken by noise of higher priority counts as busy, one taken by steal does not."""
    taken = pauses(*[0.01] * 40)
    looking = replace(NEVER_DONE, beside_switch=0.7)
    stolen = replace(looking, steal=0.2)
    assert verdict_on(observation(*(looking,) * 20, pauses=taken)) is Verdict.PASS
    assert verdict_on(observation(*(stolen,) * 20, pauses=taken)) is Verdict.FAIL


def test_what_others_do_counts_against_what_is_left_of_the_cores() -> None:
    """The same work is a larger share of the cores if pauses take a third of their time."""
    looking = replace(NEVER_DONE, beside_switch=0.35 + 0.7)
    left = observation(*(looking,) * 20, pauses=pauses(*[0.01] * 70))
    assert verdict_on(left) is Verdict.FAIL
    quiet = observation(*(replace(NEVER_DONE, beside_switch=0.35),) * 20)
    assert verdict_on(quiet) is Verdict.PASS


def test_steal_alone_fails_nothing() -> None:
    """Only the effects of steal count: waits for a core, and pauses beyond the bucket depth."""
    stolen = (replace(QUIET, steal=0.5),) * 10
    assert verdict_on(observation(*stolen, pauses=pauses(*[0.009] * 80))) is Verdict.PASS


def test_what_agents_and_switch_wait_adds_up() -> None:
    behind = (replace(QUIET, switch_delay=0.6, switch_behind_s=0.06),) * 10
    assert verdict_on(observation(*behind, agents_delay_s=(0.01,))) is Verdict.PASS
    assert verdict_on(observation(*behind, agents_delay_s=(0.15,))) is Verdict.WARN
    assert verdict_on(observation(*behind, agents_delay_s=(0.23,))) is Verdict.FAIL


def test_one_bad_execution_is_enough() -> None:
    bad = observation(agents_delay_s=(0.5, 0.5))
    assert verdict_on(*[observation()] * 9, bad) is Verdict.FAIL


def test_strain_is_doubtful_by_the_worst_execution_and_fails_by_the_median() -> None:
    never = observation(*(NEVER_DONE,) * 10)
    assert verdict_on(never, observation(), observation()) is Verdict.WARN
    assert verdict_on(never, never, observation()) is Verdict.FAIL


def test_pauses_beyond_the_buckets_add_to_the_delays_of_switch_and_agents() -> None:
    behind = (replace(QUIET, switch_delay=0.4, switch_behind_s=0.06),) * 10
    paused = pauses(*[0.03] * 10)
    assert verdict_on(observation(*behind, agents_delay_s=(0.1,))) is Verdict.PASS
    assert verdict_on(observation(pauses=paused)) is Verdict.WARN
    alone = observation(*behind, agents_delay_s=(0.1,))
    delayed = [machine_headroom([one], 0) for one in (alone, replace(alone, pauses=paused))]
    without, together = (one.delay_share for one in delayed if one)
    assert without == pytest.approx(0.4 + 2 * 0.1)
    assert together == pytest.approx(without + 10 * (0.03 - DEPTH_S))


def test_shares_do_not_depend_on_how_long_an_execution_lasts() -> None:
    """Everything twice as long or as often, also what the buckets make up for."""
    worse = replace(QUIET, switch_delay=0.3, switch_behind_s=0.06, stalled=None)
    found = []
    for times in (1, 2):
        log = replace(pauses(0.02 * times, 0.05 * times), end_ns=times * 10**9)
        last = replace(worse, begin_ns=(times - 1) * 10**9, end_ns=times * 10**9)
        seen = observation(
            *(replace(QUIET, stalled=None), last),
            seconds=float(times),
            agents_delay_s=(0.1 * times, 0.3 * times),
            start_skew_s=0.02 * times,
            retransmits=50 * times,
            pauses=log,
            depth_s=DEPTH_S * times,
        )
        headroom = machine_headroom([seen], 0)
        assert headroom is not None
        assert headroom.start_skew_s == pytest.approx(0.02 * times)
        assert headroom.pause_longest_s == pytest.approx(0.05 * times)
        assert headroom.pauses_per_s == pytest.approx(2 / times)
        assert (headroom.pressure_max, headroom.pressure_mean) == (None, None)
        found.append(asdict(headroom))
    counts = ("start_skew_s", "pause_longest_s", "pauses_per_s", "retransmits", "windows")
    one, other = ({k: v for k, v in each.items() if k not in counts} for each in found)
    assert one == pytest.approx(other)
    shares = "start_skew", "agents_run_delay_max", "agents_run_delay_mean", "run_delay"
    assert [one[name] for name in shares] == pytest.approx([0.02, 0.3, 0.2, 0.2 + (0.02 + 0.3) / 2])
    assert (one["lost"], one["retransmits_per_s"]) == pytest.approx((0.07 / 2, 50))
    assert one["switch_backlogged"] == pytest.approx(0.3 / 2)
    assert one["delay_share"] == pytest.approx(0.3 / 2 + 2 * 0.2 + one["lost_beyond"])


def test_figures_of_several_executions_are_those_of_the_worst() -> None:
    loud = replace(NEVER_DONE, idle=0.1, steal=0.2, stalled=0.4, beside_switch=0.9)
    changes: dict[str, Any] = {
        "start_skew_s": 0.04,
        "agents_delay_s": (0.2, 0.3),
        "pauses": pauses(0.05, 0.02),
    }
    changes |= {"backlog_left_bytes": 9000, "retransmits": 4}
    quiet, worse = observation(retransmits=3), observation(loud, **changes)
    alone, both = machine_headroom([worse], 0), machine_headroom([worse, quiet, quiet], 0)
    assert alone is not None
    assert both == machine_headroom([quiet, worse, quiet], 0)
    over_all: dict[str, Any] = {"windows": 21, "executions": 3, "retransmits": 10, "idle_p5": 0.8}
    medians: dict[str, Any] = {
        "pressure_mean": pytest.approx((20 * 0.05 + 0.4) / 21),
        "delay_share": 0.03,
    }
    assert both == replace(alone, **over_all, **medians)


def test_one_agent_that_starves_is_enough() -> None:
    """The mean over sixteen agents is far below any limit."""
    starving = observation(agents_delay_s=(*[0.01] * 15, 0.7))
    headroom = machine_headroom([starving], 0)
    assert headroom is not None
    assert headroom.agents_run_delay_mean < 0.06
    assert verdict_on(starving) is Verdict.FAIL


def test_what_a_queue_still_holds_is_doubtful() -> None:
    assert verdict_on(observation(backlog_left_bytes=1514)) is Verdict.WARN
    assert verdict_on(observation(backlog_left_bytes=2 * PROBE_BYTES)) is Verdict.PASS, (
        "a probe of links"
    )


@pytest.mark.parametrize(
    "missing",
    [
        {"windows": ()},
        {"agents_delay_s": ()},
        {"pauses": NOT_WATCHED},
        # Samples of the first second alone, as after the death of the observing thread.
        {"seconds": 100.0},
        {"seconds": 2.5},
        {"seconds": 0.0},
    ],
)
def test_what_was_not_observed_cannot_be_trusted(missing: dict[str, Any]) -> None:
    blind = replace(observation(), **missing)
    assert verdict_on(blind) is Verdict.FAIL
    ((_, reason),) = machine_reasons(machine_headroom([observation(), blind], 0))
    assert reason == "1 of 2 executions were not observed throughout"


def test_without_any_observation_nothing_passes() -> None:
    assert machine_headroom([], 0) is None
    ((verdict, reason),) = machine_reasons(None)
    assert (verdict, reason[:20]) == (Verdict.FAIL, "the machine was not ")
    assert fidelity_during_fault([]).verdict is Verdict.FAIL


def test_what_a_fault_costs_in_segments_is_no_fault_of_the_machine() -> None:
    assert fidelity_during_fault([observation(retransmits=5000)]).verdict is Verdict.PASS
    assert fidelity_during_fault([observation(agents_delay_s=(0.5,))]).verdict is Verdict.FAIL


@given(st.floats(0, 1), st.floats(0, 1))
def test_more_load_is_never_a_better_verdict(one: float, other: float) -> None:
    verdicts = list(Verdict)
    found = [
        verdicts.index(verdict_on(observation(agents_delay_s=(share,)))) for share in (one, other)
    ]
    assert (found[0] <= found[1]) == (found[0] == found[1] or one <= other)


@given(st.floats(0, 1))
def test_a_limit_has_two_steps(value: float) -> None:
    limit = Thresholds(0.3, 0.6)
    expected = "fail" if value > 0.6 else "warn" if value > 0.3 else "pass"
    assert limit.verdict(value).value == expected


def test_all_limits_warn_before_they_fail() -> None:
    for limit in LIMITS:
        assert 0 < limit.warn < limit.fail


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60))
def test_statistics_of_windows_are_in_order(idle: list[float]) -> None:
    headroom = machine_headroom([observation(*(replace(QUIET, idle=share) for share in idle))], 0)
    assert isinstance(headroom, MachineHeadroom)
    assert headroom.idle_min == min(idle)
    assert headroom.idle_min <= headroom.idle_p5
    assert headroom.idle_min - 1e-9 <= headroom.idle_mean <= max(idle) + 1e-9
    assert headroom.windows == len(idle)
    assert headroom.pressure_mean == pytest.approx(0.05)


# Byte conservation


def executed(schedule: Schedule, number: int = 0, **changes: Any) -> Repeat:
    """An execution whose agents counted exactly the schedule's bytes."""
    sent, received = Counter[int](), Counter[int]()
    for transfer in schedule.transfers:
        sent[transfer.source] += transfer.size_bytes
        received[transfer.destination] += transfer.size_bytes
    facts: dict[str, Any] = {
        "sent_bytes": tuple(sent[rank] for rank in range(schedule.gpus)),
        "received_bytes": tuple(received[rank] for rank in range(schedule.gpus)),
    }
    return Repeat(number, True, 1.0, 0, 0, (), (), (), **{**facts, **changes})


def planned(kind: FabricKind, algorithm: str = "direct") -> tuple[Topology, Schedule]:
    topology = build_topology(spec(kind, 3, 2, 3))
    return topology, SizedCollective(Collective.ALL_TO_ALL, algorithm, (3, 2), 600_000).steps()


def faithful(
    topology: Topology, schedule: Schedule, executions: int = 1, health: Health = HEALTHY
) -> Carried:
    """What links carry in a second an execution if nothing is lost: packets of six segments."""
    hops = [Hop(link, port.node) for link in topology.links for port in (link.lower, link.upper)]
    probes = 40 * executions
    sizes, packets = (
        Counter(dict.fromkeys(hops, PROBE_BYTES * probes)),
        Counter(dict.fromkeys(hops, probes)),
    )
    routing, gpus = Routing(topology, health), topology.job_gpus
    for transfer in schedule.transfers:
        size = transfer.size_bytes + 8
        count = math.ceil(size / (6 * 1448))
        there, back = gpus[transfer.source], gpus[transfer.destination]
        answers = 4 if transfer.ready is None else 8
        for hop in routing.path(there, back):
            sizes[hop] += executions * (size + 66 * count)
            packets[hop] += executions * count
        for hop in routing.path(back, there):
            sizes[hop] += executions * (answers + 66 * (count + 1))
            packets[hop] += executions * (count + 1)
    return counted(sizes, packets, executions)


def counted(sizes: Counter[Hop], packets: Counter[Hop], seconds: int) -> Carried:
    """What links carry in some seconds, from one moment until another."""
    return Carried(sizes, packets, (0, 0), (seconds * 10**9, seconds * 10**9))


def link_loads(schedule: Schedule, paths: Sequence[tuple[Hop, ...] | None]) -> dict[Hop, float]:
    """Bytes that each direction of each link has to carry, headers included."""
    loads: dict[Hop, float] = {}
    for transfer, hops in zip(schedule.transfers, paths, strict=True):
        for hop in hops or ():
            loads[hop] = loads.get(hop, 0.0) + wire_bytes(transfer.size_bytes)
    return loads


KINDS = pytest.mark.parametrize("kind", COMPARED)
IDLE = counted(Counter(), Counter(), 0)


def test_bytes_that_add_up_are_no_reason() -> None:
    _, schedule = planned(FabricKind.RAIL_ONLY)
    assert list(payload_reasons(schedule, [executed(schedule)])) == []


@given(st.integers(0, 5), st.booleans(), st.sampled_from([-1, 1, 1000]))
def test_a_single_byte_is_missed(rank: int, sent: bool, difference: int) -> None:
    _, schedule = planned(FabricKind.RAIL_ONLY)
    key = "sent_bytes" if sent else "received_bytes"
    counted = list(getattr(executed(schedule), key))
    counted[rank] += difference
    changes: dict[str, Any] = {key: tuple(counted)}
    doctored = executed(schedule, **changes)
    ((verdict, reason),) = payload_reasons(schedule, [executed(schedule), doctored])
    assert verdict is Verdict.FAIL
    assert f"rank {rank} {'sent' if sent else 'received'} {counted[rank]} bytes" in reason


@KINDS
@pytest.mark.parametrize("algorithm", ["direct", "two-step"])
def test_faithful_links_are_no_reason(kind: FabricKind, algorithm: str) -> None:
    topology, schedule = planned(kind, algorithm)
    carried, done = faithful(topology, schedule, 3), [executed(schedule)] * 3
    epoch, gpus = Epoch(topology), topology.job_gpus
    assert list(link_reasons(schedule, epoch, gpus, done, carried)) == []


def more(carried: Carried, hop: Hop, size: int) -> Carried:
    """The same with `size` more bytes in one direction of a link, in as many packets."""
    return replace(carried, bytes={**carried.bytes, hop: carried.bytes[hop] + size})


@KINDS
@pytest.mark.parametrize("difference", [-1000, -1, 200, 1000, 1_000_000])
def test_a_link_that_carries_what_is_not_charged_to_it_fails(
    kind: FabricKind, difference: int
) -> None:
    topology, schedule = planned(kind)
    carried = faithful(topology, schedule)
    hop = next(hop for hop in carried.bytes if hop.sender == "d0g0")
    doctored = more(carried, hop, difference)
    epoch, gpus, done = Epoch(topology), topology.job_gpus, executed(schedule)
    found = list(link_reasons(schedule, epoch, gpus, [done], doctored))
    assert found[0][0] is Verdict.FAIL
    expected = f"{hop.sender} -> {hop.receiver} carried {doctored.payload(hop)} bytes of payload"
    assert expected in found[0][1]
    assert found[0][1].endswith("forwarding and prediction disagree")


@pytest.mark.parametrize(
    ("again", "fails"), [({}, True), ({0: 1}, False), ({1: 4}, True), ({5: 2}, True)]
)
def test_a_segment_more_is_explained_by_a_retransmission_of_who_sends_there(
    again: dict[int, int], fails: bool
) -> None:
    topology, schedule = planned(FabricKind.RAIL_OPTIMIZED)
    carried = faithful(topology, schedule)
    doctored = more(carried, Hop(topology.link_by_name["d0g0--rail0"], "d0g0"), 1448)
    by_rank = tuple(again.get(gpu, 0) for gpu in range(len(topology.job_gpus)))
    done = replace(executed(schedule), retransmitted=by_rank)
    found = list(link_reasons(schedule, Epoch(topology), topology.job_gpus, [done], doctored))
    assert (Verdict.FAIL in [verdict for verdict, _ in found]) is fails


@pytest.mark.parametrize(
    ("disordered", "more_bytes", "fails"),
    [
        ({}, 12, False),
        ({}, 300, True),
        ({0: 9}, 300, False),
        ({0: 1}, 448, False),
        ({0: 1}, 600, True),
        ({1: 9}, 300, True),
    ],
)
def test_longer_acknowledgements_are_explained_by_packets_out_of_order_to_who_sends_them(
    disordered: dict[int, int], more_bytes: int, fails: bool
) -> None:
    topology, schedule = planned(FabricKind.RAIL_OPTIMIZED)
    carried = faithful(topology, schedule)
    hop = Hop(topology.link_by_name["d0g0--rail0"], "d0g0")
    doctored = more(carried, hop, more_bytes)
    by_rank = tuple(disordered.get(gpu, 0) for gpu in range(len(topology.job_gpus)))
    done = replace(executed(schedule), out_of_order=by_rank)
    found = list(link_reasons(schedule, Epoch(topology), topology.job_gpus, [done], doctored))
    assert any("carried" in reason for _, reason in found) is fails


@pytest.mark.parametrize(("transport", "more_answers"), [(Transport.TCP, 0), (Transport.ROCE, 3)])
def test_more_answers_than_packets_are_explained_by_repeated_packets(
    transport: Transport, more_answers: int
) -> None:
    """An answer of RoCE is four bytes shorter than the header that is subtracted."""
    topology, schedule = planned(FabricKind.RAIL_OPTIMIZED)
    fabric = Epoch(build_topology(replace(topology.spec, transport=transport)))
    hop = Hop(topology.link_by_name["d0g0--rail0"], "rail0")
    least = [
        spans(schedule, fabric, topology.job_gpus, 1, IDLE, irregular)[hop].least
        for irregular in (Irregular(), Irregular(Counter({0: 3})))
    ]
    assert least[0] - least[1] == 4 * more_answers


@pytest.mark.parametrize(("mtu", "packets"), [(1024, 5), (4096, 2)])
def test_packets_of_roce_are_as_long_as_its_mtu(mtu: int, packets: int) -> None:
    """Each has 58 bytes of headers, the first 16 more, the last 4, an answer 62; TCP's has 66."""
    topology = build_topology(replace(spec(FabricKind.RAIL_ONLY, 2, 1), transport=Transport.ROCE))
    fabric = build_topology(replace(topology.spec, roce=Roce(mtu=mtu)))
    schedule = SizedCollective(Collective.ALL_TO_ALL, "direct", (2, 1), 10_000).steps()
    hop = Hop(fabric.link_by_name["d0g0--rail0"], "d0g0")
    sent = 5000 + 16 + 4 + packets * (58 - 66)
    found = spans(schedule, Epoch(fabric), fabric.job_gpus, 1, IDLE, Irregular())[hop]
    assert (found.least, found.most) == (sent + packets * (62 - 66), sent + (62 - 66))


@pytest.mark.parametrize("generator", Generator)
def test_a_connection_may_open_on_the_links_of_its_transfers(generator: Generator) -> None:
    """The sender opens it."""
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 1))
    schedule = SizedCollective(Collective.BROADCAST, "ring", (2, 1), 10_000).steps()
    facts = schedule, Epoch(topology), topology.job_gpus, 1, IDLE, Irregular()
    found = spans(*facts, OVERHEADS[generator])
    link = topology.link_by_name["d0g0--rail0"]
    opening, answer = (
        found[hop].most - found[hop].least for hop in (Hop(link, "d0g0"), Hop(link, "rail0"))
    )
    assert (opening, answer) == (OVERHEADS[generator].opening, OVERHEADS[generator].answer)


@given(st.integers(1, 10**7), st.sampled_from(MTUS))
def test_ready_to_receive_by_roce_is_a_packet_back_and_its_answer_forth(
    size: int, mtu: int
) -> None:
    frames, ends = QueuePairs(roce=Roce(mtu=mtu)), ("10.0.0.1", "10.0.0.2", 50_000)
    answer, ready = (
        ETHERNET_HEADER_BYTES + 20 + 8 + sum(map(len, packet.parts(*ends))) - PACKET_HEADER_BYTES
        for packet in (Packet(packets.ACKNOWLEDGE, 2), Packet(packets.SEND_ONLY_IMMEDIATE, 2))
    )
    alone, with_ready = (frames.forth(size, has_rendezvous=has) for has in (False, True))
    assert with_ready - alone == answer
    least, most = frames.back(size, has_rendezvous=False)
    assert frames.back(size, has_rendezvous=True) == (least + ready, most + ready)


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), max_size=3))
def test_notifications_of_congestion_may_come_back_on_the_way_of_acknowledgements(
    counts: list[list[int]],
) -> None:
    """Each is eight bytes longer than the header that is subtracted."""
    topology, schedule = planned(FabricKind.RAIL_OPTIMIZED)
    samples = [
        QueuePairSample(0, 0, 2, 0, pair, 0, 0, count, 0, None, 32.0, None)
        for pair, growing in enumerate(counts)
        for count in accumulate(growing)
    ]
    done = [executed(schedule, number, queue_pairs=tuple(samples)) for number in range(2)]
    gpus = topology.job_gpus
    plain, notified = (
        spans(schedule, Epoch(topology), gpus, 2, IDLE, irregular)
        for irregular in (Irregular(), Irregular.of(done))
    )
    back = Routing(topology).path(gpus[2], gpus[0])
    sent = 2 * sum(sum(growing[1:]) for growing in counts)
    for hop, span in plain.items():
        assert notified[hop] == replace(span, most=span.most + 8 * sent * (hop in back))


@pytest.mark.parametrize(("sent", "fails"), [(96, False), (1448, False), (5000, True)])
def test_a_tail_loss_probe_that_passes_a_switch_during_a_reading_is_not_lost(
    sent: int, fails: bool
) -> None:
    topology, schedule = planned(FabricKind.RAIL_OPTIMIZED)
    came_in = Hop(topology.link_by_name["d1g1--hb1"], "d1g1")
    carried = more(faithful(topology, schedule), came_in, sent)
    done = executed(schedule)
    found = link_reasons(schedule, Epoch(topology), topology.job_gpus, [done], carried)
    assert any("hb1 lost bytes" in reason for _, reason in found) is fails


def test_what_a_switch_loses_is_doubtful_and_what_it_makes_is_wrong() -> None:
    topology, schedule = planned(FabricKind.RAIL_OPTIMIZED)
    carried = faithful(topology, schedule)
    out = next(hop for hop in carried.bytes if hop.sender == "rail0")
    for difference, words in ((-10_000, "rail0 lost bytes"), (10_000, "rail0 sent too many bytes")):
        changed, done = more(carried, out, difference), executed(schedule)
        reasons = list(link_reasons(schedule, Epoch(topology), topology.job_gpus, [done], changed))
        assert any(words in reason for _, reason in reasons)


@KINDS
def test_spans_hold_what_the_prediction_charges(kind: FabricKind) -> None:
    """Byte spans and prediction use the same paths, also with a lost link."""
    topology, schedule = planned(kind)
    for health in (without(topology), without(topology, links=["d0g0--rail0"])):
        epoch = Epoch(topology, health)
        paths = transfer_paths(schedule.transfers, epoch, topology.job_gpus)
        loads = link_loads(schedule, paths)
        found = spans(schedule, epoch, topology.job_gpus, 1, IDLE, Irregular())
        for hop, span in found.items():
            payload_bytes = loads.get(hop, 0.0) / wire_bytes(1)
            assert payload_bytes <= span.most
            assert span.most - payload_bytes < 30 * len(schedule.transfers)
            assert (payload_bytes > 0) <= (span.least > 0)


def test_what_is_left_open_on_a_link_is_small_on_a_large_fabric() -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 8, 8))
    carried = counted(Counter(), Counter(), 100)
    schedule = SizedCollective(Collective.ALL_TO_ALL, "direct", (8, 8), 6_000_000).steps()
    found = spans(schedule, Epoch(topology), topology.job_gpus, 5, carried, Irregular())
    assert max(span.most - span.least for span in found.values()) < 5000


def judged(
    topology: Topology, schedule: Schedule, ratio: float, seen: Observation, **changes: Any
) -> CaseResult:
    """A case that took `ratio` times its modeled time."""
    paths = transfer_paths(schedule.transfers, Epoch(topology), topology.job_gpus)
    prediction = predict(
        schedule, [Epoch(topology)], dict.fromkeys((path_class(hops) for hops in paths if hops), 0)
    )
    repeat = replace(executed(schedule), completion_s=prediction.completion_s * ratio)
    measured = Measured(topology, schedule, CaseExecutions((repeat,)), machine=(seen,), **changes)
    return compare("a/b/c", measured, prediction, 1.0, Thresholds(0.02, 0.05))


def test_a_case_has_both_verdicts_apart() -> None:
    """The verdict by observation knows nothing of the model."""

    def case(ratio: float, seen: Observation) -> tuple[str, str]:
        found = judged(*planned(FabricKind.RAIL_ONLY, "two-step"), ratio, seen)
        return found.verdict.value, found.fidelity.verdict.value

    assert case(1.0, observation()) == ("pass", "pass")
    assert case(1.2, observation()) == ("fail", "pass")
    assert case(1.0, observation(agents_delay_s=(0.9,))) == ("fail", "fail")


def test_links_of_a_case_are_checked_if_the_fabric_stayed_as_it_was() -> None:
    topology, schedule = planned(FabricKind.RAIL_ONLY)
    carried, epoch = faithful(topology, schedule), Epoch(topology)
    wrong = more(carried, next(hop for hop in carried.bytes if hop.sender == "d0g0"), 10**6)
    for at, seen, verdict in (
        (epoch, carried, Verdict.PASS),
        (epoch, wrong, Verdict.FAIL),
        (None, wrong, Verdict.PASS),
    ):
        facts = {"epoch": at, "carried": seen, "gpus": topology.job_gpus}
        found = judged(topology, schedule, 1.0, observation(), **facts)
        assert found.fidelity.verdict is verdict


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, Verdict.FAIL),
        ({"queue": SwitchQueue(200_000)}, Verdict.PASS),
        ({"impairment": Impairment(loss=0.001)}, Verdict.PASS),
        ({"impairment": Impairment(delay_s=0.001)}, Verdict.FAIL),
        ({"spine_selection": SpineSelection.SPRAY}, Verdict.PASS),
    ],
)
def test_packets_that_a_scenario_loses_say_nothing_of_the_machine(
    changes: dict[str, Any], verdict: Verdict
) -> None:
    topology, schedule = planned(FabricKind.RAIL_OPTIMIZED)
    spec = replace(topology.spec, transport=Transport.ROCE)
    topology = build_topology(replace(spec, nic=replace(spec.nic, **changes)))
    found = judged(topology, schedule, 1.0, observation(retransmits=5000))
    assert found.fidelity.verdict is verdict
    dropped = judged(topology, schedule, 1.0, observation(), dropped_packets=2)
    assert dropped.fidelity.verdict is (Verdict.PASS if "queue" in changes else Verdict.WARN)


def test_the_table_has_a_line_for_each_observed_case() -> None:
    seen = plain(Fidelity.of((), headroom=machine_headroom([observation()], 0)))
    name = "rail-only/all-reduce/hierarchical"
    cases = [
        {"case": name, "fabric": {"kind": "rail-only"}, "fidelity": seen},
        {"case": "rail-only/unseen", "fabric": {"kind": "rail-only"}, "fidelity": {}},
    ]
    text = io.StringIO()
    print_sections([headroom_section(cases)], Console(file=text, width=80))
    lines = text.getvalue().splitlines()
    (line,) = [line for line in lines if "all-reduce/hierarchical" in line]
    assert line.split()[1:] == ["80%", "20%", "0%", "0%", "1.5%", "0", "pass"]
    assert not any("unseen" in line for line in lines)


def test_the_table_of_executions_has_counts_and_the_interval_beside_a_long_name() -> None:
    seen = plain(Fidelity.of((), headroom=machine_headroom([observation(pauses=pauses(0.004))], 0)))
    name = "rail-only/all-to-all/two-step-pipelined"
    case = {
        "case": name,
        "fabric": {"kind": "rail-only"},
        "fidelity": seen,
        "measured_s": asdict(summarize([1.0, 1.0, 1.01, 1.0, 1.0, 1.0])),
        "disturbed_s": [1.3, 1.4],
        "disturbed_counted": False,
    }
    kept = json.loads(json.dumps([case, {**case, "disturbed_counted": True}]))
    text = io.StringIO()
    print_sections([executions_section(kept)], Console(file=text, width=80))
    one, other = (line.split() for line in text.getvalue().splitlines() if "pipelined" in line)
    assert one[1:] == ["6", "2", "1.00%", "0.2%", "4.0", "ms"]
    assert other[1:5] == ["6", "2,", "all", "count"]
