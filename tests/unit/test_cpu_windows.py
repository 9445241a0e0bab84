"""CPU samples: parsing of the kernel's text, and the arithmetic of windows."""

import os
import struct
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linux.machine.processor import TICKS_PER_S, idle_and_steal_s
from linux.network.netlink import (
    HEADER,
    TC_STATS,
    TCMSG,
    NetlinkSocket,
    Queue,
    parse_queues,
    read_queues,
)
from model.measurement.cpu_windows import Reading, ThreadTime, Window, window, within
from testbed.instruments import samplers
from testbed.instruments.samplers import CpuMonitor, stalled_s, thread_time
from tests.machine import wait_until

STAT = "cpu  10 20 30 400 50 60 70 80 90 100\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 1\n"
SECOND_NS = 10**9
NO_PROCESS = 2**22 + 1  # beyond all process ids (proc(5), pid_max)


def test_the_kernels_text_is_read() -> None:
    assert idle_and_steal_s(STAT) == (450 / TICKS_PER_S, 80 / TICKS_PER_S)
    status = "Name:\tovs\nvoluntary_ctxt_switches:\t23\nnonvoluntary_ctxt_switches:\t9\n"
    assert thread_time("63369 17 4\n", status) == ThreadTime(63369, 17, 23)
    pressure = "some avg10=0.00 avg60=0.07 avg300=2.37 total=2617260403\nfull avg10=0 total=9\n"
    assert stalled_s(pressure) == pytest.approx(2617.260403)


def reading(ns: int, **changes: Any) -> Reading:
    facts: dict[str, Any] = {
        "cores": 2,
        "idle_s": 0.0,
        "steal_s": 0.0,
        "stalled_s": 0.0,
        "switch": ThreadTime(0, 0),
    }
    return Reading(ns=ns, **{**facts, **changes})


def test_a_window_has_shares() -> None:
    before = reading(0, idle_s=5.0, steal_s=4.0, stalled_s=3.0, switch=ThreadTime(100, 50, 3))
    switch = ThreadTime(100 + 60_000_000, 50 + 30_000_000, 23)
    after = reading(SECOND_NS // 10, idle_s=5.1, steal_s=4.02, stalled_s=3.025, switch=switch)
    found = window(before, after)
    assert found.idle == pytest.approx(0.5)
    assert found.steal == pytest.approx(0.1)
    assert found.switch_busy == pytest.approx(0.6)
    assert found.switch_delay == pytest.approx(0.3)
    assert found.switch_behind_s == pytest.approx(0.0045)
    # Of 0.2 s of two cores, 0.12 s were unused or stolen, and 0.06 s the switch's.
    assert found.beside_switch == pytest.approx(0.2)
    assert found.stalled == pytest.approx(0.25)


def test_what_the_kernel_does_not_count_is_not_zero() -> None:
    for before_s, after_s in ((None, None), (None, 9.0), (9.0, None)):
        found = window(reading(0, stalled_s=before_s), reading(1, stalled_s=after_s))
        assert found.stalled is None


def test_without_a_switch_daemon_there_is_no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    monkeypatch.setattr(os, "setpriority", lambda *_: None)
    monkeypatch.setattr(samplers, "read_stalled_s", lambda: looks.append(0.0))
    for process_id, are_windows in ((os.getpid(), True), (NO_PROCESS, False)):
        looks.clear()
        with CpuMonitor(cast(Any, SimpleNamespace(process_id=process_id))) as monitor:
            wait_until(lambda: len(looks) > 2, "three looks at the machine")
        assert bool(monitor.windows) == are_windows


times = st.integers(0, 10**12)


@given(times, times, st.integers(1, 10**9), st.integers(1, 64))
def test_shares_are_never_more_than_all(idle: int, busy: int, length_ns: int, cores: int) -> None:
    """The kernel counts idle time in ticks: a short window may seem to have too much of it."""
    after = reading(length_ns, cores=cores, idle_s=idle / 1e9, switch=ThreadTime(busy, idle))
    found = window(reading(0, cores=cores), after)
    shares = (found.idle, found.steal, found.switch_busy, found.switch_delay, found.stalled or 0)
    assert all(0 <= share <= 1 for share in shares)
    assert 0 <= found.beside_switch <= cores


def of_span(begin_ns: int, end_ns: int) -> Window:
    return Window(begin_ns, end_ns, 1, 0, 0, 0, None)


@given(st.integers(0, 1000), st.integers(1, 1000))
def test_windows_of_an_execution_lie_within_it(begin: int, length: int) -> None:
    windows = [of_span(place, place + 100) for place in range(0, 2100, 100)]
    found = within(windows, begin, begin + length)
    assert found
    inside = [w for w in windows if w.begin_ns >= begin and w.end_ns <= begin + length]
    if inside:
        assert list(found) == inside
    else:
        assert all(w.begin_ns < begin + length and w.end_ns > begin for w in found)


def attribute(kind: int, payload: bytes) -> bytes:
    padding = b"\0" * (-len(payload) % 4)
    return struct.pack("=HH", 4 + len(payload), kind) + payload + padding


ROOT, DATA, BEHIND = 0xFFFFFFFF, 0x1_0002, 0x2_0001


def message(
    kind: str,
    interface: int,
    backlog: int,
    drops: int,
    parent: int = ROOT,
    options: bytes = b"options",
    more: bytes = b"",
) -> bytes:
    figures = TC_STATS.pack(1, 2, drops, 0, 0, 0, 3, backlog)
    body = TCMSG.pack(0, interface, 0x10000, parent, 2)
    body += attribute(1, kind.encode() + b"\0") + attribute(2, options) + attribute(3, figures)
    body += more
    return HEADER.pack(HEADER.size + len(body), 36, 2, 1, 0) + body


counts = st.integers(0, 2**31 - 1)


@given(st.dictionaries(counts, st.tuples(st.sampled_from(["htb", "noqueue"]), counts, counts)))
def test_queues_of_shapers_are_read_and_no_others(queues: dict[int, tuple[str, int, int]]) -> None:
    answer = b"".join(
        message(kind, index, held, lost) for index, (kind, held, lost) in queues.items()
    )
    answer += HEADER.pack(HEADER.size + 4, 3, 2, 1, 0) + b"\0" * 4
    expected = [
        Queue(index, held, lost) for index, (kind, held, lost) in queues.items() if kind == "htb"
    ]
    assert parse_queues([answer]) == expected


def test_marks_belong_to_the_shaper_around_the_queue_that_marks() -> None:
    stats = attribute(4, struct.pack("=IIII", 1, 2, 3, 44))
    marking = message("red", 7, 500, 3, DATA, more=stats)
    answers = [message("htb", 7, 900, 5) + message("htb", 8, 1, 0), marking]
    netlink = cast(NetlinkSocket, SimpleNamespace(dump=lambda _: answers))
    assert read_queues(netlink) == [Queue(7, 900, 5, 44), Queue(8, 1, 0)]


@pytest.mark.parametrize(("loss", "dropped"), [(0, 12), (1, 5)])
def test_what_a_lossy_link_loses_is_no_drop(loss: int, dropped: int) -> None:
    """The shaper counts losses and overflows as one: 7 and 5."""
    delaying = message("netem", 7, 0, 12, DATA, struct.pack("=IIIIII", 10, 1000, loss, 0, 0, 0))
    buffer = message("bfifo", 7, 900, 5, BEHIND)
    assert parse_queues([message("htb", 7, 900, 12) + buffer, delaying]) == [Queue(7, 900, dropped)]
