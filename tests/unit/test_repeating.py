"""How often a case is executed, and which executions count."""

import random
from collections.abc import Iterator
from contextlib import nullcontext
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from execution.cases import case
from execution.cases.case import DISTURBED_ABOVE, Executions, Measuring, are_enough, is_disturbed
from model.errors import EmulationError
from model.measurement.pauses import NOT_WATCHED, Pause, PauseLog
from model.measurement.records import Repeat
from results.verdicts.summary import median_interval
from scenarios.scenario import AUTO, Repeats
from traffic_gen.agents.client import Incomplete

SECOND_NS = 10**9
DEPTH_S = 0.01
times = st.floats(0.1, 10)


def executions(repeats: Repeats, disturbed: list[bool], warmup: int = 1) -> Executions:
    """Add executions while more are needed; number n takes 1 + n seconds."""
    done = Executions(warmup, repeats)
    for number, bad in enumerate(disturbed):
        if done.are_enough or len(done.all) == done.most:
            break
        done.add(Repeat(number, True, 1.0 + number, 0, 0, (), (), ()), disturbed=bad)
    return done


@given(st.integers(1, 8), st.lists(st.booleans(), min_size=40, max_size=40), st.integers(0, 3))
def test_a_disturbed_execution_is_replaced_up_to_a_limit(
    count: int, disturbed: list[bool], warmup: int
) -> None:
    done = executions(Repeats(count, count), disturbed, warmup)
    assert len(done.of_case.warmups) == warmup
    assert len(done.all) <= warmup + 2 * count
    if len(done.undisturbed) >= count:
        assert done.of_case.repeats == done.undisturbed
        assert len(done.of_case.repeats) == count
    else:
        assert done.of_case.repeats == tuple(done.all[warmup:])
        assert len(done.of_case.repeats) == 2 * count
    assert not set(done.disturbed) & set(done.undisturbed)
    assert sorted(done.of_case.all, key=lambda repeat: repeat.number) == done.all


def test_a_machine_that_disturbs_nothing_has_no_extra_executions() -> None:
    done = executions(Repeats(5, 5), [False] * 40)
    assert len(done.all) == 6
    assert not done.disturbed


def test_a_disturbed_warmup_is_a_warmup() -> None:
    done = executions(Repeats(2, 2), [True, False, False])
    assert (len(done.all), done.disturbed) == (3, [])


def test_a_case_fails_also_if_the_execution_that_breaks_is_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = Repeat(0, False, 1.0, 0, 0, (), (), ())

    def breaking(*_: object, **__: object) -> Iterator[Repeat]:
        yield from ()
        raise Incomplete(EmulationError("an agent died"), broken)

    monkeypatch.setattr(case, "executions", breaking)
    monkeypatch.setattr(case, "seeding", MagicMock())
    monkeypatch.setattr(case, "observing", lambda *_, **__: nullcontext(MagicMock()))
    monkeypatch.setattr(case, "is_disturbed", lambda *_: False)
    folder = MagicMock()
    measuring = Measuring(MagicMock(repeats=Repeats(1, 1)), folder, MagicMock())
    with pytest.raises(Incomplete, match="an agent died"):
        measuring.measure("a", 1.0, MagicMock(), MagicMock(), warmup=0)
    folder.add_repeat.assert_called_once_with("a", broken)


@pytest.mark.parametrize(
    ("length_ms", "count", "disturbed"),
    [(9, 50, False), (12, 5, False), (12, 6, True), (46, 1, True), (19, 1, False)],
)
def test_what_a_bucket_makes_good_disturbs_nothing(
    length_ms: int, count: int, disturbed: bool
) -> None:
    """One second of two cores; pauses may exceed the depth of 10 ms by 10 ms in all."""
    ns = length_ms * 10**6
    pauses = tuple(Pause(2 * ns * n, 2 * ns * n + ns, n % 2) for n in range(count))
    log = PauseLog(2, 0, SECOND_NS, pauses)
    assert DISTURBED_ABOVE == 0.01
    assert is_disturbed(log, DEPTH_S) is disturbed
    assert not is_disturbed(log, 1.0), "no pause is longer than such a bucket is deep"


def test_what_was_not_watched_is_not_known_to_be_disturbed() -> None:
    assert not is_disturbed(NOT_WATCHED, DEPTH_S)


@given(st.lists(times, min_size=1, max_size=60))
def test_the_interval_holds_the_median_and_lies_among_the_values(values: list[float]) -> None:
    found, ordered = median_interval(values), sorted(values)
    assert (found is None) == (len(values) < 6)
    if found is not None:
        assert found.low in values
        assert found.high in values
        assert found.low <= ordered[(len(values) - 1) // 2] <= found.high
        assert found.confidence >= 0.95


@pytest.mark.parametrize("count", [6, 9, 17, 30])
def test_the_interval_is_as_sure_as_it_says(count: int) -> None:
    chance, trials = random.Random(count), 2000
    holds = confidence = 0.0
    for _ in range(trials):
        found = median_interval([chance.expovariate(1) for _ in range(count)])
        assert found is not None
        holds += found.low <= 0.6931471805599453 <= found.high
        confidence = found.confidence
    assert holds / trials == pytest.approx(confidence, abs=0.016)


def test_auto_goes_on_until_the_median_is_known_or_a_limit_is_reached() -> None:
    assert not are_enough(AUTO, [1.0] * 5)
    assert are_enough(AUTO, [1.0] * 6)
    wide = [1.0, 1.1] * 20
    assert not are_enough(AUTO, wide[:29])
    assert are_enough(AUTO, wide[:30])
    assert are_enough(AUTO, [0.9, *[1.0] * 7, 1.2])
    assert not are_enough(AUTO, [*[1.0] * 4, *[1.01] * 2]), "the median is an end of its interval"


@given(st.lists(times, max_size=12), st.integers(1, 10))
def test_a_number_of_repeats_is_that_number(values: list[float], count: int) -> None:
    assert are_enough(Repeats(count, count), values) == (len(values) >= count)
