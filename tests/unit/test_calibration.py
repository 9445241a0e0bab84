"""Link calibration: conclusions from frames' arrival times, with simulated token buckets."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from execution.link_check import (
    calibrate_direction,
    calibration_object,
    inconclusive_reasons,
    require_calibrated,
)
from model.errors import EmulationError
from model.fabric.build import build_topology
from model.fabric.link_probes import PROBE_BYTES, PROBES_SHARE, SHORTEST_INTERVAL_S
from model.fabric.shaping import DEFAULT_DEPTH_S, LEAST_DEPTH_S, MIN_RATE_BPS, MOST_DEPTH_S, Shaper
from model.fabric.spec import FabricKind
from model.fabric.topology import Hop, Link, LinkKind, Port, Topology
from model.measurement.link_quality import (
    FRAME_BYTES,
    LATENCY_TOLERANCE_S,
    LINKS_OF_A_CLASS,
    WRONG_AFTER,
    Arrival,
    Direction,
    DirectionCalibration,
    LinkCalibration,
    Outcome,
    Train,
    calibration,
    gap_errors,
    representatives,
    undisturbed,
)
from model.measurement.pauses import NOT_WATCHED, Pause, PauseLog
from results.render.terminal import print_sections
from results.sections.machine import calibration_section
from results.sections.run import run_sections
from results.store.records import plain
from results.verdicts.run import RunResult
from results.verdicts.verdict import Verdict
from studies.benchmarks.accuracy import rows_by_class
from tests.unit.fabrics import spec, topologies

RATES = st.integers(MIN_RATE_BPS, 1_000_000_000)
DEPTHS_S = st.floats(LEAST_DEPTH_S, MOST_DEPTH_S)
TIMER_NS = 50_000
SECOND_NS = 10**9
LATENCIES_S = [0.000_003, 0.000_004, 0.01]
SAMPLE = Path(__file__).parents[1] / "samples" / "result.json"
NO_PAUSES = PauseLog(1, -(10**12), 10**12, ())


def shaper(rate_bps: int, depth_s: float = DEFAULT_DEPTH_S) -> Shaper:
    return Shaper(rate_bps, depth_s)


def leading(plan: Train) -> int:
    """Return how many frames an unlimited sender sends before its queue is full."""
    return plan.window + 1 + plan.queued


def hop_at(rate_bps: int, sender: str = "d0g0", depth_s: float = DEFAULT_DEPTH_S) -> Hop:
    ends = Port("d0g0", 2, "nic0"), Port("rail0", 1, "to-d0g0")
    return Hop(Link(LinkKind.NIC, *ends, rate_bps, depth_s), sender)


def departures(nominal_bps: int, rate_bps: float, depth_s: float = DEFAULT_DEPTH_S) -> list[int]:
    """Return when, in ns, a bucket of `rate_bps` releases each frame of a nominal-rate train."""
    bucket = shaper(nominal_bps, depth_s)
    plan, burst_bytes = Train.on(bucket), bucket.burst_bytes
    return [
        round(max(0.0, number * FRAME_BYTES - burst_bytes) * 8e9 / rate_bps)
        for number in range(leading(plan) + plan.frames)
    ]


def measured(
    nominal_bps: int, rate_bps: float, late: Callable[[int], int] = lambda at_ns: at_ns
) -> LinkCalibration:
    """Calibrate a link with such a bucket; `late` maps departures to arrivals in nanoseconds."""
    arrivals = sorted(late(at_ns) for at_ns in departures(nominal_bps, rate_bps))
    return of_arrivals(nominal_bps, arrivals)


def of_arrivals(
    nominal_bps: int,
    arrivals_ns: Sequence[int],
    pauses: PauseLog = NO_PAUSES,
    depth_s: float = DEFAULT_DEPTH_S,
) -> LinkCalibration:
    arrivals = [Arrival(at_ns, FRAME_BYTES) for at_ns in arrivals_ns]
    return calibration(hop_at(nominal_bps, depth_s=depth_s), LATENCIES_S, arrivals, pauses)


def paused(nominal_bps: int, rate_bps: float, pauses: PauseLog, depth_s: float) -> list[int]:
    """Return when, in ns, each frame leaves a bucket on a machine that sends none during pauses.

    Tokens arrive during pauses, too, up to the depth of the bucket.
    """
    bucket = shaper(nominal_bps, depth_s)
    plan, found, now_ns = Train.on(bucket), list[int](), 0.0
    burst = tokens = float(bucket.burst_bytes)
    for _ in range(leading(plan) + plan.frames):
        due_ns = now_ns + max(0.0, FRAME_BYTES - tokens) * 8e9 / rate_bps
        for pause in pauses.pauses:
            if pause.begin_ns <= due_ns < pause.end_ns:
                due_ns = pause.end_ns
        tokens = min(burst, tokens + (due_ns - now_ns) * rate_bps / 8e9) - FRAME_BYTES
        now_ns = due_ns
        found.append(round(now_ns))
    return found


@given(RATES, st.randoms(use_true_random=False))
def test_a_token_bucket_with_a_timer_is_within_tolerance(rate_bps: int, random: object) -> None:
    jitter: Callable[[int, int], int] = random.randint  # type: ignore[attr-defined]
    found = measured(rate_bps, rate_bps, lambda at_ns: at_ns + jitter(0, TIMER_NS))
    assert found.deviations == ()
    assert found.rates.error == pytest.approx(0, abs=0.005)
    assert found.latency_s == LATENCIES_S[1], "the median: one probe that was late does not count"


def test_a_link_whose_gaps_were_all_disturbed_is_not_known_to_be_right() -> None:
    spans = [(at, at + 6_000_000) for at in range(0, SECOND_NS, 16_000_000)]
    pauses = replace(NO_PAUSES, pauses=tuple(Pause(*span, 0) for span in spans))
    rate_bps, depth_s = 20_000_000, 0.01
    found = of_arrivals(rate_bps, paused(rate_bps, rate_bps, pauses, depth_s), pauses, depth_s)
    assert (found.gap_error_p95, found.deviations) == (None, ())
    assert found.outcome is Outcome.INCONCLUSIVE


@given(RATES)
def test_the_rate_of_an_exact_bucket_is_exact(rate_bps: int) -> None:
    found = measured(rate_bps, rate_bps)
    assert found.rates.error == pytest.approx(0, abs=1e-5)
    assert found.gap_error_p95 == pytest.approx(0, abs=1e-4)
    arrivals = [Arrival(at_ns, FRAME_BYTES) for at_ns in departures(rate_bps, rate_bps)]
    stretches = undisturbed(found.train.backlogged(arrivals), found.train, NO_PAUSES)
    gaps = gap_errors(stretches, found.train)
    assert len(gaps) == found.train.frames - found.train.window


@given(RATES, st.one_of(st.floats(0.2, 0.98), st.floats(1.02, 5)))
def test_a_shaper_that_is_two_percent_off_is_found(rate_bps: int, share: float) -> None:
    found = measured(rate_bps, share * rate_bps)
    assert found.rates.error == pytest.approx(share - 1, abs=0.001)
    assert found.deviations[0].startswith("carries ")
    assert f"instead of {rate_bps / 1e6:.4g} (" in found.deviations[0]


@given(RATES, st.floats(2, 4))
def test_frames_that_leave_in_lumps_are_found(rate_bps: int, bursts: float) -> None:
    tick_ns = round(bursts * Train.on(shaper(rate_bps)).gap_s * 1e9)
    found = measured(rate_bps, rate_bps, lambda at_ns: -(-at_ns // tick_ns) * tick_ns)
    assert any("of the gaps" in issue for issue in found.deviations)


@st.composite
def pause_logs(draw: st.DrawFn, most_ms: float) -> PauseLog:
    """Pauses of 1 ms and more, which take up to 40 % of half a second."""
    pauses, now_ns = [], 0
    while now_ns < SECOND_NS // 2:
        length_ns = draw(st.integers(10**6, round(most_ms * 1e6)))
        begin_ns = now_ns + round(length_ns * draw(st.floats(1.5, 20)))
        pauses.append(Pause(begin_ns, begin_ns + length_ns, 0))
        now_ns = begin_ns + length_ns
    return replace(NO_PAUSES, pauses=tuple(pauses))


@settings(max_examples=40)
@given(RATES, DEPTHS_S, st.data())
def test_pauses_do_not_count(rate_bps: int, depth_s: float, data: st.DataObject) -> None:
    """Whatever the pauses, a correct link is found right or inconclusive."""
    pauses = data.draw(pause_logs(most_ms=46))
    found = of_arrivals(rate_bps, paused(rate_bps, rate_bps, pauses, depth_s), pauses, depth_s)
    assert found.outcome in (Outcome.RIGHT, Outcome.INCONCLUSIVE)
    if found.outcome is Outcome.RIGHT:
        assert found.rates.error == pytest.approx(0, abs=0.006)


def test_a_pause_just_below_the_buckets_depth_may_take_tokens() -> None:
    """When the pause begins, the bucket already holds the tokens of nearly a frame."""
    rate_bps, depth_s = 7_707_219, 0.0078125
    spans = (78_645_682, 88_793_512), (465_732_822, 500_000_032)
    pauses = replace(NO_PAUSES, pauses=tuple(Pause(*span, 0) for span in spans))
    found = of_arrivals(rate_bps, paused(rate_bps, rate_bps, pauses, depth_s), pauses, depth_s)
    assert found.outcome is Outcome.RIGHT


@settings(max_examples=40)
@given(RATES, st.sampled_from([0.97, 1.03]), st.data())
def test_a_wrong_link_is_found_between_pauses(
    rate_bps: int, share: float, data: st.DataObject
) -> None:
    pauses = data.draw(pause_logs(most_ms=8))
    arrivals_ns = paused(rate_bps, rate_bps * share, pauses, DEFAULT_DEPTH_S)
    found = of_arrivals(rate_bps, arrivals_ns, pauses)
    assert found.outcome in (Outcome.WRONG, Outcome.INCONCLUSIVE)
    if found.outcome is Outcome.WRONG:
        assert found.rates.error == pytest.approx(share - 1, abs=0.006)


def test_uneven_gaps_on_a_noisy_machine_say_nothing() -> None:
    exact_ns = departures(20_000_000, 20e6)
    uneven_ns = [ns + 4_000_000 * (number // 5 % 2) for number, ns in enumerate(exact_ns)]
    alone = of_arrivals(20_000_000, uneven_ns)
    last_ns = uneven_ns[-1]
    pause = replace(NO_PAUSES, pauses=(Pause(last_ns - 2_000_000, last_ns - 1_000_000, 0),))
    beside = of_arrivals(20_000_000, uneven_ns, pause)
    assert (alone.outcome, beside.outcome) == (Outcome.WRONG, Outcome.INCONCLUSIVE)


def test_without_a_watch_nothing_is_known_to_be_wrong() -> None:
    slow_ns = departures(20_000_000, 18e6)
    assert of_arrivals(20_000_000, slow_ns).outcome is Outcome.WRONG
    assert of_arrivals(20_000_000, slow_ns, NOT_WATCHED).outcome is Outcome.INCONCLUSIVE


def test_a_link_that_its_sender_hardly_fills_is_not_known_to_be_wrong() -> None:
    slow = measured(20_000_000, 18_000_000)
    for share, outcome in ((0.69, Outcome.WRONG), (0.71, Outcome.INCONCLUSIVE)):
        rates = replace(slow.rates, sender_bps=slow.rates.measured_bps / share)
        found = replace(slow, rates=rates)
        assert found.outcome is outcome
    ((_, reason),) = inconclusive_reasons("rail-only", [tried(found)])
    assert "this CPU cannot saturate these links" in reason


def test_a_sender_that_lets_its_queue_run_empty_proves_nothing_wrong() -> None:
    """Other programs, or a limit of processor time, keep it waiting without a pause."""
    slow = measured(20_000_000, 18_000_000)
    late = replace(measured(20_000_000, 20_000_000), latency_s=2 * LATENCY_TOLERANCE_S)
    for wrong in (slow, late):
        assert wrong.outcome is Outcome.WRONG
        starved = replace(wrong, sender_wait_s=wrong.train.queued_s)
        assert starved.outcome is Outcome.INCONCLUSIVE


def test_one_pause_is_not_an_uneven_link() -> None:
    pause_ns = 200_000
    middle_ns = 40_000_000
    found = measured(20_000_000, 20_000_000, lambda at_ns: at_ns + pause_ns * (at_ns > middle_ns))
    assert found.deviations == ()


def shared_with_probes(rate_bps: int) -> list[Arrival]:
    """Arrivals of a train on a link that carries the controller's probes, too, at its full rate."""
    probes_s = max(SHORTEST_INTERVAL_S, PROBE_BYTES * 8 / (PROBES_SHARE * rate_bps))
    arrivals: list[Arrival] = []
    bucket = shaper(rate_bps)
    plan, tokens_bytes, now_ns, ours, probes = (
        Train.on(bucket),
        float(bucket.burst_bytes),
        0.0,
        0,
        0,
    )
    while ours < leading(plan) + plan.frames:
        now_ns += max(0.0, -tokens_bytes * 8e9 / rate_bps)
        is_ours = now_ns < probes * probes_s * 1e9
        size_bytes = FRAME_BYTES if is_ours else PROBE_BYTES
        arrivals.append(Arrival(round(now_ns), size_bytes, is_ours))
        tokens_bytes = max(0.0, tokens_bytes) - size_bytes
        ours, probes = ours + is_ours, probes + (not is_ours)
    return arrivals


@given(RATES)
def test_what_others_send_may_take_its_part_of_the_rate(rate_bps: int) -> None:
    found = calibration(hop_at(rate_bps), LATENCIES_S, shared_with_probes(rate_bps), NO_PAUSES)
    # At the slowest rates a train is a dozen frames, and probes lie unevenly between them.
    assert found.rates.measured_bps + found.rates.others_bps == pytest.approx(rate_bps, rel=4e-3)
    assert found.rates.error == pytest.approx(0, abs=4e-3)
    assert found.deviations == ()


@given(RATES, st.data())
def test_what_others_send_may_come_on_top_of_the_rate(rate_bps: int, data: st.DataObject) -> None:
    exact = [Arrival(at_ns, FRAME_BYTES) for at_ns in departures(rate_bps, rate_bps)]
    times_ns = st.integers(exact[0].at_ns, exact[-1].at_ns)
    others = [Arrival(at_ns, PROBE_BYTES, False) for at_ns in data.draw(st.lists(times_ns))]
    both = sorted((*exact, *others), key=lambda arrival: arrival.at_ns)
    found = calibration(hop_at(rate_bps), LATENCIES_S, both, NO_PAUSES)
    assert found.rates.error == pytest.approx(0, abs=1e-5)
    assert found.deviations == ()


def test_a_link_that_waits_while_it_is_idle_is_found() -> None:
    arrivals = [Arrival(at_ns, FRAME_BYTES) for at_ns in departures(20_000_000, 20_000_000)]
    found = calibration(hop_at(20_000_000), [3 * LATENCY_TOLERANCE_S], arrivals, NO_PAUSES)
    assert found.deviations == ("takes 1.5 ms while idle (tolerated 0.5 ms)",)


def test_each_direction_has_its_name() -> None:
    arrivals = [Arrival(at_ns, FRAME_BYTES) for at_ns in departures(20_000_000, 20_000_000)]
    directions = [
        calibration(hop_at(20_000_000, sender), LATENCIES_S, arrivals, NO_PAUSES).direction
        for sender in ("d0g0", "rail0")
    ]
    assert directions == [Direction.UP, Direction.DOWN]


@pytest.mark.parametrize("rate_bps", [MIN_RATE_BPS, 20_000_000, 180_000_000, 600_000_000])
def test_a_train_takes_a_third_of_a_second_or_has_a_dozen_frames_at_most(rate_bps: int) -> None:
    train = Train.on(shaper(rate_bps))
    assert train.frames * train.frame_s < 1 / 3 or train.frames <= 12
    assert train.window < train.frames


@given(RATES, DEPTHS_S)
def test_a_train_and_the_queue_before_it_last_long_enough_within_bounds(
    rate_bps: int, depth_s: float
) -> None:
    """A shorter queue runs empty in a short pause; a longer one is not the sender's."""
    train = Train.on(shaper(rate_bps, depth_s))
    assert 4 <= train.queued <= 400
    assert train.queued_s <= 0.02 + 0.51 * train.frame_s or train.queued == 4
    assert train.queued_s >= 0.02 - 0.51 * train.frame_s or train.queued == 400
    assert train.seconds >= 0.08 - train.frame_s * 1.01 or train.frames == 2000
    assert train.seconds == pytest.approx((train.frames - 1) * FRAME_BYTES * 8 / rate_bps)


@given(topologies())
def test_links_of_every_class_are_chosen(topology: Topology) -> None:
    chosen = representatives(topology)
    assert representatives(topology) == chosen
    assert len(set(chosen)) == len(chosen)
    for kind in LinkKind:
        rates = Counter(link.rate_bps for link in topology.links if link.kind is kind)
        measured_rates = Counter(link.rate_bps for link in chosen if link.kind is kind)
        extremes = {min(rates), max(rates)} if rates else set()
        assert measured_rates == {rate: min(rates[rate], LINKS_OF_A_CLASS) for rate in extremes}


def test_the_seed_chooses_the_links() -> None:
    seeds = (spec(FabricKind.RAIL_ONLY, 4, 4, seed=seed) for seed in range(5))
    assert len({representatives(build_topology(fabric)) for fabric in seeds}) > 1


def test_a_run_stops_with_all_that_is_out_of_tolerance() -> None:
    good, slow = measured(20_000_000, 20_000_000), measured(20_000_000, 18_000_000)
    require_calibrated("rail-only", map(tried, (good, good)))
    down = replace(slow, direction=Direction.DOWN)
    with pytest.raises(EmulationError) as raised:
        require_calibrated("rail-only", map(tried, (good, slow, down)))
    message = str(raised.value)
    carries = "carries 18 Mbit/s instead of 20 (-10.0%, tolerated 1%)"
    assert f"rail-only: nic-link d0g0--rail0, upwards: {carries}\n" in message
    assert f"rail-only: nic-link d0g0--rail0, downwards: {carries}\n" in message
    assert "docs/explanation/measuring.md" in message


def test_a_run_keeps_and_shows_its_calibration() -> None:
    exact = measured(20_000_000, 20_000_000)
    slower = replace(exact.rates, measured_bps=19_900_000.0)
    links = (exact, replace(exact, rates=slower, direction=Direction.DOWN))
    objects = [calibration_object("rail-only", [tried(link, count=1) for link in links])]
    result = plain(RunResult("id", "s", Path("/f"), [], calibration=objects))
    (fabric,) = json.loads(json.dumps(result))["calibration"]
    assert fabric["fabric"] == "rail-only"
    assert [link["direction"] for link in fabric["links"]] == ["up", "down"]
    assert fabric["links"][1]["rate_error"] == pytest.approx(-0.005)
    assert fabric["links"][1]["deviations"] == []
    assert [len(link["trials"]) for link in fabric["links"]] == [1, 1]
    assert [link["outcome"] for link in fabric["links"]] == ["right", "right"]
    text = StringIO()
    print_sections(run_sections(result), Console(file=text, width=80))
    (row,) = [line.split() for line in text.getvalue().splitlines() if "nic-link" in line]
    assert row[:4] == ["nic-link", "20", "Mbit/s", "-0.50%"]
    assert row[-4:] == ["1", "0", "ms", "right"]


def test_the_object_of_a_link_has_the_keys_of_a_stored_one_in_their_order() -> None:
    (fabric,) = json.loads(SAMPLE.read_text())["calibration"]
    found = calibration_object("rail-only", [tried(measured(20_000_000, 20e6), count=1)])
    (link,), stored = found["links"], fabric["links"][0]
    assert list(link) == list(stored)
    assert list(link["trials"][0]) == list(stored["trials"][0])


def test_links_of_a_run_with_faults_are_under_the_name_of_their_case() -> None:
    link = measured(20_000_000, 20e6)
    case = "rail-optimized/all-reduce/hierarchical"
    fabric = calibration_object(case, [tried(link, count=1)])
    assert (fabric["fabric"], fabric["case"]) == (case.replace("/", "_"), case)
    assert "case" not in calibration_object("rail-only", [])
    text = StringIO()
    print_sections([calibration_section([fabric])], Console(file=text, width=80))
    header, heading, row = (line.rstrip() for line in text.getvalue().splitlines())
    assert heading == case
    assert header.index("nominal") + len("nominal") == row.index("Mbit/s") + len("Mbit/s")


def test_its_benchmark_has_a_row_for_each_class_that_the_fabric_has() -> None:
    slow, fast = measured(20_000_000, 20e6), measured(20_000_000, 20.2e6)
    rows = list(rows_by_class([tried(slow), tried(replace(fast, kind=LinkKind.HB)), tried(fast)]))
    assert [row["kind"] for row in rows] == [slow.kind.value, LinkKind.HB.value]
    assert rows[0]["rate_error_least"] < rows[0]["rate_error_most"] == rows[1]["rate_error_most"]


RIGHT, WRONG, OPEN = 1.0, 0.9, -1.0


def tried(trial: LinkCalibration, count: int = WRONG_AFTER) -> DirectionCalibration:
    return DirectionCalibration((trial,) * count)


def decided_after(shares: list[float], patience: int = 10) -> DirectionCalibration:
    """Decide from trials with these rate shares (-1: inconclusive), at most 3 + `patience`."""
    left = iter(shares)

    def trial(number: int) -> LinkCalibration:
        share = next(left)
        found = measured(20_000_000, 20e6 * abs(share))
        return replace(found, trial=number, undisturbed_s=found.undisturbed_s if share > 0 else 0)

    taken = iter(range(patience))
    return calibrate_direction(trial, lambda: next(taken, None) is not None)


@pytest.mark.parametrize(
    ("trials", "outcome", "counted", "needed"),
    [
        ([RIGHT, WRONG], Outcome.RIGHT, 1, 1),
        ([WRONG, RIGHT, WRONG], Outcome.RIGHT, 2, 2),
        ([OPEN, OPEN, OPEN, OPEN, RIGHT], Outcome.RIGHT, 5, 5),
        ([WRONG, WRONG, WRONG, RIGHT], Outcome.WRONG, 1, 3),
        ([OPEN, WRONG, WRONG, OPEN, WRONG, RIGHT], Outcome.WRONG, 2, 5),
        # If each trial finds another rate, the link is not the cause.
        ([0.9, 1.1, 0.8, 0.95, 1.05, RIGHT], Outcome.RIGHT, 6, 6),
        ([0.9, 1.1, 0.8, 0.905, 0.895], Outcome.WRONG, 1, 5),
        ([0.84, 0.9, 0.9, 0.9, RIGHT], Outcome.WRONG, 2, 4),
    ],
)
def test_right_once_is_right_and_wrong_takes_three(
    trials: list[float], outcome: Outcome, counted: int, needed: int
) -> None:
    found = decided_after(trials)
    assert found.outcome is outcome
    assert found.counted.trial == counted
    assert [trial.trial for trial in found.trials] == list(range(1, needed + 1))


@pytest.mark.parametrize("patience", [0, 4])
def test_what_cannot_be_decided_in_time_ends_no_run_and_is_said(patience: int) -> None:
    found = decided_after([OPEN, WRONG, WRONG, *[OPEN] * 10], patience)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert len(found.trials) == WRONG_AFTER + patience
    require_calibrated("rail-only", [found])
    assert inconclusive_reasons("rail-only", [tried(measured(20_000_000, 20e6))]) == []
    assert decided_after([0.9, 1.1, 0.8], 0).counted.trial == 3, "the last, if none agree"
    ((verdict, reason),) = inconclusive_reasons("rail-only", [found] * 3)
    assert verdict is Verdict.WARN
    named = "rail-only: nic-link d0g0--rail0, upwards"
    assert reason == (f"calibration inconclusive: the machine paused ({named}, {named} and 1 more)")
