"""Machine pauses: the time they take, the stretches between them, the machine's profile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.measurement.pauses import NOT_WATCHED, Pause, PauseLog, profile

SECOND_NS = 10**9
MS_NS = 10**6


@st.composite
def logs(draw: st.DrawFn) -> PauseLog:
    """Pauses in one second of up to four cores; those of one core do not overlap."""
    cores = draw(st.integers(1, 4))
    moments = st.lists(st.integers(0, SECOND_NS), unique=True, max_size=20)
    pauses = []
    for core in range(cores):
        times_ns = sorted(draw(moments))
        pauses += [Pause(a, b, core) for a, b in zip(times_ns[::2], times_ns[1::2], strict=False)]
    return PauseLog(cores, 0, SECOND_NS, tuple(sorted(pauses)))


spans = st.tuples(st.integers(0, SECOND_NS), st.integers(0, SECOND_NS)).map(sorted)


@given(logs())
def test_what_is_lost_is_a_share(log: PauseLog) -> None:
    assert 0 <= log.lost <= 1
    lost_s = [log.beyond_s(depth_ms / 1e3) for depth_ms in (0, 1, 10, 1000)]
    assert lost_s == sorted(lost_s, reverse=True)
    assert lost_s[0] == pytest.approx(log.lost * log.cores)
    assert lost_s[-1] == 0


@given(logs(), spans)
def test_a_part_and_its_rest_are_the_whole(log: PauseLog, span: list[int]) -> None:
    begin_ns, end_ns = span
    parts = log.during(0, begin_ns), log.during(begin_ns, end_ns), log.during(end_ns, SECOND_NS)
    assert sum(part.lost * part.seconds for part in parts) == pytest.approx(log.lost, abs=1e-9)
    assert [part.seconds for part in parts] == pytest.approx(
        [begin_ns / SECOND_NS, (end_ns - begin_ns) / SECOND_NS, 1 - end_ns / SECOND_NS]
    )
    assert all(log.during(begin_ns, end_ns).of_core(core).cores == 1 for core in range(4))


@given(logs(), spans, st.floats(0, 0.1), st.floats(0, 0.01))
def test_stretches_lie_between_pauses(
    log: PauseLog, span: list[int], longer_than_s: float, catch_up_s: float
) -> None:
    found = list(log.stretches(span[0], span[1], longer_than_s, catch_up_s))
    edges = [moment for stretch in found for moment in stretch]
    assert edges == sorted(edges)
    assert all(span[0] <= moment <= span[1] for moment in edges)
    left_out_ns, at_ns = 0, span[0]
    for pause in log.pauses:
        if pause.length_s > longer_than_s:
            for begin_ns, end_ns in found:
                assert end_ns <= pause.begin_ns or begin_ns >= pause.end_ns
            over_ns = min(span[1], pause.end_ns + round(catch_up_s * SECOND_NS))
            left_out_ns += max(0, over_ns - max(at_ns, pause.begin_ns))
            at_ns = max(at_ns, over_ns)
    # Nothing is left out but long pauses, and what catches up after them.
    assert sum(end - begin for begin, end in found) == span[1] - span[0] - left_out_ns


def test_without_pauses_the_whole_span_is_one_stretch() -> None:
    log = PauseLog(2, 0, SECOND_NS, ())
    assert list(log.stretches(5, 50, 0.0, 0.01)) == [(5, 50)]


def test_what_was_not_watched_is_not_covered() -> None:
    assert not NOT_WATCHED.covers(0, 1)
    log = PauseLog(1, 100, 200, ())
    assert log.covers(100, 200)
    assert not log.covers(99, 200)
    assert not log.covers(100, 201)
    assert NOT_WATCHED.lost == NOT_WATCHED.during(5, 9).lost == 0


@pytest.mark.parametrize(
    ("every_ms", "long_ms", "kind", "share"),
    [
        (1000, 2, "quiet", "0.2%"),
        (100, 4, "a little noisy", "4.0%"),
        (50, 5, "noisy", "10.0%"),
        (20, 8, "very noisy", "40.0%"),
    ],
)
def test_a_profile_says_what_kind_of_machine_it_is(
    every_ms: int, long_ms: int, kind: str, share: str
) -> None:
    begins_ns = range(0, SECOND_NS, every_ms * MS_NS)
    pauses = tuple(Pause(ns, ns + long_ms * MS_NS, 0) for ns in begins_ns)
    found = profile(PauseLog(1, 0, SECOND_NS, pauses))
    assert found.half_s == found.most_s == found.longest_s == pytest.approx(long_ms / 1e3)
    assert str(found) == (
        f"This machine is {kind}: {share} of its cores' time is taken from it, in "
        f"{1000 / every_ms:.2g} pauses a second and core of up to {long_ms} ms."
    )


def test_a_machine_without_pauses_is_quiet() -> None:
    found = profile(PauseLog(2, 0, SECOND_NS, ()))
    assert str(found) == "This machine is quiet: no pause of a core was longer than 1 ms."


@given(logs())
def test_most_of_what_is_lost_is_in_pauses_of_that_length(log: PauseLog) -> None:
    found = profile(log)
    lengths_s = [pause.length_s for pause in log.pauses]
    for share, up_to_s in ((0.5, found.half_s), (0.95, found.most_s)):
        assert sum(s for s in lengths_s if s <= up_to_s) >= share * sum(lengths_s) - 1e-9
        assert sum(s for s in lengths_s if s < up_to_s) <= share * sum(lengths_s) + 1e-9
    assert found.half_s <= found.most_s <= found.longest_s
