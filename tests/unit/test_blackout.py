"""Probes: the packet format, and the blackouts that are concluded from lost probes."""

import json
import math
from dataclasses import replace
from ipaddress import IPv4Address
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.fabric.shaping import ACKNOWLEDGEMENT_BELOW_BYTES
from results.verdicts.fault_impact import FaultTimes
from studies.benchmarks.blackout import Trial, _summary
from traffic_gen.agents.roce.packets import PORT
from traffic_gen.probes.blackout import (
    ALWAYS_NS,
    COUNTED_WITHIN_NS,
    Blackout,
    PairRecord,
    Ticks,
    blackouts,
    crossed,
    longest,
    longest_possible_ms,
    lost,
    read_records,
)
from traffic_gen.probes.packet import (
    DATA_CLASS_BYTES,
    PROBE_PORT,
    PSN_BYTES,
    PSN_OFFSET,
    UD_SEND_ONLY,
    probe_packet,
    roce_packet,
)

SOURCE, DESTINATION = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
INTERVAL_NS = 1_000_000


def record(fates: list[int | None], name: str = "a>b") -> PairRecord:
    """A record of probes with their delays, `None` for those that are lost."""
    sent_ns = tuple(INTERVAL_NS * (number + 1) for number in range(len(fates)))
    arrived = {n: sent_ns[n] + delay for n, delay in enumerate(fates) if delay is not None}
    return PairRecord(name, sent_ns, dict(sorted(arrived.items(), key=lambda item: item[1])))


# Delays of up to five intervals: later probes overtake earlier ones.
FATES = st.lists(st.none() | st.integers(1, 5 * INTERVAL_NS), max_size=40)
RECORDS = FATES.map(record)


@given(st.ip_addresses(v=4), st.ip_addresses(v=4), st.integers(1, 65535))
def test_a_probe_is_a_roce_packet(source: IPv4Address, destination: IPv4Address, port: int) -> None:
    packet = probe_packet(source, destination, port, port=PORT)
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import IP, UDP

    read = IP(packet)
    assert (read.src, read.dst) == (str(source), str(destination))
    assert (read[UDP].sport, read[UDP].dport, read[UDP].chksum) == (port, PORT, 0)
    assert (read[BTH].opcode, read[BTH].psn) == (UD_SEND_ONLY, 0)
    assert read.len == len(packet) < ACKNOWLEDGEMENT_BELOW_BYTES


def test_a_longer_probe_is_queued_with_the_data() -> None:
    packet = probe_packet(SOURCE, DESTINATION, 50_000, size_bytes=DATA_CLASS_BYTES)
    assert len(packet) == ACKNOWLEDGEMENT_BELOW_BYTES
    assert packet[2:4] == len(packet).to_bytes(2, "big")


@given(st.integers(0, (1 << 24) - 1))
def test_the_number_can_be_written_over(sequence: int) -> None:
    patched = bytearray(probe_packet(SOURCE, DESTINATION, 50_000))
    patched[PSN_OFFSET : PSN_OFFSET + PSN_BYTES] = sequence.to_bytes(PSN_BYTES, "big")
    ends = SOURCE, DESTINATION, 50_000
    built = roce_packet(*ends, b"", PROBE_PORT, opcode=UD_SEND_ONLY, psn=sequence)
    icrc_bytes = 4
    assert patched[:-icrc_bytes] == built[:-icrc_bytes]


@given(RECORDS)
def test_every_lost_probe_is_in_one_blackout(probes: PairRecord) -> None:
    missing = len(probes.sent_ns) - len(probes.arrived_ns)
    assert sum(blackout.lost for blackout in blackouts(probes)) == missing
    assert lost([probes], ALWAYS_NS) == missing


@given(RECORDS)
def test_blackouts_are_disjoint_and_in_order(probes: PairRecord) -> None:
    numbers = [
        (first := probes.sent_ns.index(blackout.begin_ns), first + blackout.lost)
        for blackout in blackouts(probes)
    ]
    assert all(end < begin for (_, end), (begin, _) in pairwise(numbers))
    for begin, end in numbers:
        assert not probes.arrived_ns.keys() & set(range(begin, end))
        assert begin == 0 or begin - 1 in probes.arrived_ns


@given(RECORDS)
def test_a_blackout_ends_with_the_next_arrival_or_never(probes: PairRecord) -> None:
    for blackout in blackouts(probes):
        after = probes.sent_ns.index(blackout.begin_ns) + blackout.lost
        if after == len(probes.sent_ns):
            assert blackout.end_ns is None
            assert blackout.duration_ms == math.inf
        else:
            assert blackout.end_ns == probes.arrived_ns[after]
            assert blackout.duration_ms > blackout.lost * INTERVAL_NS / 1e6


@given(st.lists(st.integers(1, 5 * INTERVAL_NS)))
def test_what_is_overtaken_is_not_lost(delays: list[int]) -> None:
    probes = record([*delays])
    assert blackouts(probes) == []
    assert lost([probes], ALWAYS_NS) == 0
    assert longest([probes], 0) is None


@given(st.lists(RECORDS, max_size=4), st.integers(0, 45 * INTERVAL_NS))
def test_the_longest_is_of_those_that_last_until_after(
    records: list[PairRecord], after_ns: int
) -> None:
    found = longest(records, after_ns)
    lasting = [
        blackout
        for probes in records
        for blackout in blackouts(probes)
        if (blackout.end_ns or math.inf) > after_ns
    ]
    assert (found is None) == (not lasting)
    if found is not None:
        assert found in lasting
        assert found.duration_ms == max(blackout.duration_ms for blackout in lasting)


@given(st.lists(RECORDS, max_size=4))
def test_no_blackout_lasted_longer_than_possible(records: list[PairRecord]) -> None:
    possible_ms = longest_possible_ms(records, ALWAYS_NS, INTERVAL_NS)
    for probes in records:
        first = min(probes.arrived_ns, default=0)
        for seen in blackouts(probes):
            if probes.sent_ns.index(seen.begin_ns) > first and seen.end_ns is not None:
                assert seen.duration_ms <= possible_ms


def test_trials_that_went_wrong_are_counted() -> None:
    times = FaultTimes("nic-link down", 0.3, 0.7, detected_ms=2.0, confirmed_ms=20.0)
    good = Trial(True, 20.0, 21.0, 0, 900, affected=6, skipped_ticks=3, times=times)
    undetected = replace(good, times=replace(times, detected_ms=None), blackout_ms=math.inf)
    found = _summary([good, replace(good, complete=False, lost_unaffected=2), undetected])
    assert (found["incomplete"], found["undetected"], found["skipped_ticks"]) == (1, 1, 9)
    assert (found["lost_probes_unaffected"], found["probes_unaffected"]) == (2, 2700)
    assert (found["blackout_median_ms"], found["blackout_worst_ms"]) == (20.0, math.inf)
    assert found["not_reached_again"] == 1


@pytest.mark.parametrize(
    ("changes", "right"),
    [
        ({}, True),
        ({"skipped_ticks": 400, "possible_ms": 80.0}, True),
        ({"complete": False}, False),
        ({"times": FaultTimes("nic-link down", 0.3, 0.7)}, False),
        ({"times": FaultTimes("controller kill", 0.3, 0.7), "affected": 0}, True),
        ({"blackout_ms": math.inf}, False),
        ({"lost_unaffected": 1}, False),
    ],
)
def test_trials_are_judged_and_their_worst_case_is_told(
    changes: dict[str, Any], right: bool
) -> None:
    times = FaultTimes("nic-link down", 0.3, 0.7, detected_ms=2.0, confirmed_ms=20.0)
    good = Trial(True, 20.0, 21.0, 0, 900, affected=6, skipped_ticks=3, times=times)
    other = replace(good, **changes)
    found = _summary([good, other])
    assert found["judged_right"] is right
    assert found["possible_worst_ms"] == max(21.0, other.possible_ms)


def test_a_punctual_prober_leaves_nothing_open() -> None:
    until_ns = 5 * INTERVAL_NS
    seen = record([1000, None, None, 1000])
    found = longest([seen], 0)
    assert found is not None
    assert longest_possible_ms([seen], (0, until_ns), INTERVAL_NS) == found.duration_ms
    whole = record([1000] * 4)
    assert longest_possible_ms([whole], (0, until_ns), INTERVAL_NS) == 0.0


@pytest.mark.parametrize(
    ("between", "possible_ms"),
    [
        ((0, 39_000_000), 34.0),
        ((10_000_000, 39_000_000), 27.0),  # what lies before the fault is none of its blackout
        ((36_999_000, 39_000_000), 0.001),
        ((40_000_000, 99_000_000), 59.0),  # silent until the end
    ],
)
def test_what_was_not_probed_may_have_been_a_blackout(
    between: tuple[int, int], possible_ms: float
) -> None:
    sent_ns = (1_000_000, 2_000_000, 37_000_000, 38_000_000)
    silent = PairRecord("a>b", sent_ns, {n: sent + 1000 for n, sent in enumerate(sent_ns)})
    assert longest([silent], 0) is None
    assert longest_possible_ms([silent], between, INTERVAL_NS) == pytest.approx(possible_ms)


@given(RECORDS, st.integers(0, 45 * INTERVAL_NS))
def test_every_moment_counts_once(probes: PairRecord, middle_ns: int) -> None:
    before = lost([probes], (0, middle_ns))
    after = lost([probes], (middle_ns, ALWAYS_NS[1]))
    assert before + after == lost([probes], ALWAYS_NS)


def test_an_example_in_numbers() -> None:
    quick = 100_000
    probes = record([quick, None, None, quick, quick, None])
    assert blackouts(probes) == [
        Blackout(begin_ns=2_000_000, end_ns=4_100_000, lost=2),
        Blackout(begin_ns=6_000_000, end_ns=None, lost=1),
    ]
    assert blackouts(probes)[0].duration_ms == 2.1


@given(FATES)
def test_records_are_read_as_the_prober_writes_them(fates: list[int | None]) -> None:
    sent_ns = record(fates).sent_ns
    entry = {
        "name": "a>b",
        "first_ns": sent_ns[0] if sent_ns else 0,
        "gap_ns": [INTERVAL_NS] * (len(fates) - 1),
        "delay_ns": fates,
    }
    text = json.dumps({"ticks": 7, "skipped": 2, "pairs": [entry]})
    assert read_records(text) == ([record(fates)], Ticks(7, 2))


# Twenty probes, few of them lost; begin and end of two readings of counters amid these probes.
DELAYS = st.sampled_from([None, *range(1, 5 * INTERVAL_NS, INTERVAL_NS // 2)])
TWENTY = st.lists(DELAYS, min_size=20, max_size=20).map(record)
READINGS = st.lists(st.integers(0, 25), min_size=4, max_size=4).map(
    lambda moments: [moment * INTERVAL_NS for moment in sorted(moments)]
)


@given(TWENTY, READINGS, st.data())
def test_a_link_counts_as_many_probes_as_cross_it_between_two_readings(
    record: PairRecord, moments: list[int], data: st.DataObject
) -> None:
    """Whether a reading reads the link first or last, and wherever on the path the link is."""
    before_ns, after_ns = (moments[0], moments[1]), (moments[2], moments[3])
    from_ns, to_ns = (data.draw(st.sampled_from(reading)) for reading in (before_ns, after_ns))
    counted = 0
    for number, sent_ns in enumerate(record.sent_ns):
        latest_ns = record.arrived_ns.get(number, sent_ns + 50 * INTERVAL_NS) + COUNTED_WITHIN_NS
        crossed_ns = data.draw(st.sampled_from([sent_ns, latest_ns]))
        was_lost_before = number not in record.arrived_ns and data.draw(st.booleans())
        counted += from_ns < crossed_ns <= to_ns and not was_lost_before
    least, most = crossed(record, before_ns, after_ns)
    assert least <= counted <= most


@given(TWENTY, READINGS)
def test_only_probes_under_way_during_a_reading_and_lost_ones_are_in_doubt(
    record: PairRecord, moments: list[int]
) -> None:
    before_ns, after_ns = (moments[0], moments[1]), (moments[2], moments[3])
    least, most = crossed(record, before_ns, after_ns)
    in_doubt = {n for n in range(len(record.sent_ns)) if n not in record.arrived_ns}
    for begin_ns, end_ns in (before_ns, after_ns):
        for number, arrived_ns in record.arrived_ns.items():
            if record.sent_ns[number] <= end_ns and begin_ns <= arrived_ns + COUNTED_WITHIN_NS:
                in_doubt.add(number)
    assert 0 <= most - least <= len(in_doubt)
