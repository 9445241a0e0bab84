"""Links measured alone: what the arrivals of frames say, held against token buckets."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from model.calibration import (
    FRAME_BYTES,
    LATENCY_TOLERANCE_S,
    LINKS_OF_A_CLASS,
    Arrival,
    Direction,
    LinkCalibration,
    Train,
    calibration,
    representatives,
)
from model.errors import EmulationError
from model.fabric import FabricKind
from model.shaping import MIN_RATE_BPS, Shaper
from model.topology import Hop, Link, LinkKind, Port, Topology, build_topology
from results.calibration import calibration_objects
from results.contract import run_object
from results.table import print_run
from scenarios.calibrating import TRIALS, best_trial, require_calibrated
from tests.unit.fabrics import spec, topologies

RATES = st.integers(MIN_RATE_BPS, 1_000_000_000)
TIMER_NS = 50_000
OTHERS_BYTES, OTHERS_NS = 62, 25_000_000
LATENCIES_S = [0.000_003, 0.000_004, 0.01]


def hop_at(rate_bps: int, sender: str = "d0g0") -> Hop:
    link = Link(LinkKind.NIC, Port("d0g0", 2, "nic0"), Port("rail0", 1, "to-d0g0"), rate_bps)
    return Hop(link, sender)


def departures(nominal_bps: int, rate_bps: float) -> Iterator[int]:
    """When a token bucket of this rate lets a train for the nominal one go, in nanoseconds."""
    burst_bytes = Shaper(nominal_bps).burst_bytes
    for number in range(Train(nominal_bps).frames):
        yield round(max(0.0, number * FRAME_BYTES - burst_bytes) * 8e9 / rate_bps)


def measured(
    nominal_bps: int, rate_bps: float, late: Callable[[int], int] = lambda at_ns: at_ns
) -> LinkCalibration:
    """The calibration of a link with such a bucket, whose frames arrive as late as `late` says."""
    arrivals = sorted(late(at_ns) for at_ns in departures(nominal_bps, rate_bps))
    return calibration(
        hop_at(nominal_bps), LATENCIES_S, [Arrival(at_ns, FRAME_BYTES) for at_ns in arrivals]
    )


@given(RATES, st.randoms(use_true_random=False))
def test_a_token_bucket_with_a_timer_is_within_tolerance(rate_bps: int, random: object) -> None:
    jitter: Callable[[int, int], int] = random.randint  # type: ignore[attr-defined]
    found = measured(rate_bps, rate_bps, lambda at_ns: at_ns + jitter(0, TIMER_NS))
    assert found.flaws == ()
    assert found.rate_error == pytest.approx(0, abs=0.005)
    assert found.latency_s == LATENCIES_S[1], "the median: one probe that was late does not count"


@given(RATES)
def test_the_rate_of_an_exact_bucket_is_exact(rate_bps: int) -> None:
    found = measured(rate_bps, rate_bps)
    assert found.rate_error == pytest.approx(0, abs=1e-5)
    assert found.gap_error_p95 == pytest.approx(0, abs=1e-4)


@given(RATES, st.one_of(st.floats(0.2, 0.98), st.floats(1.02, 5)))
def test_a_shaper_that_is_two_percent_off_is_found(rate_bps: int, share: float) -> None:
    found = measured(rate_bps, share * rate_bps)
    assert found.rate_error == pytest.approx(share - 1, abs=0.001)
    assert found.flaws[0].startswith("carries ")
    assert f"instead of {rate_bps / 1e6:.4g} (" in found.flaws[0]


@given(RATES, st.floats(2, 4))
def test_frames_that_leave_in_lumps_are_found(rate_bps: int, bursts: float) -> None:
    tick_ns = round(bursts * Train(rate_bps).gap_s * 1e9)
    found = measured(rate_bps, rate_bps, lambda at_ns: -(-at_ns // tick_ns) * tick_ns)
    assert any("of the gaps" in flaw for flaw in found.flaws)


def test_one_pause_is_not_an_uneven_link() -> None:
    pause_ns = 200_000
    middle_ns = 40_000_000
    found = measured(20_000_000, 20_000_000, lambda at_ns: at_ns + pause_ns * (at_ns > middle_ns))
    assert found.flaws == ()


def shared_with_others(rate_bps: int) -> list[Arrival]:
    """A train on a link that carries small frames of others, too, and is as fast with them."""
    arrivals: list[Arrival] = []
    tokens_bytes, now_ns, ours, others = float(Shaper(rate_bps).burst_bytes), 0.0, 0, 0
    while ours < Train(rate_bps).frames:
        now_ns += max(0.0, -tokens_bytes * 8e9 / rate_bps)
        is_ours = now_ns < others * OTHERS_NS
        size_bytes = FRAME_BYTES if is_ours else OTHERS_BYTES
        arrivals.append(Arrival(round(now_ns), size_bytes, is_ours))
        tokens_bytes = max(0.0, tokens_bytes) - size_bytes
        ours, others = ours + is_ours, others + (not is_ours)
    return arrivals


@given(RATES)
def test_what_others_send_may_take_its_part_of_the_rate(rate_bps: int) -> None:
    found = calibration(hop_at(rate_bps), LATENCIES_S, shared_with_others(rate_bps))
    assert found.rate_bps + found.others_bps == pytest.approx(rate_bps, rel=1e-4)
    assert found.rate_error == pytest.approx(0, abs=1e-4)
    assert found.flaws == ()


@given(RATES, st.data())
def test_what_others_send_may_come_on_top_of_the_rate(rate_bps: int, data: st.DataObject) -> None:
    exact = [Arrival(at_ns, FRAME_BYTES) for at_ns in departures(rate_bps, rate_bps)]
    times_ns = st.integers(exact[0].at_ns, exact[-1].at_ns)
    others = [Arrival(at_ns, OTHERS_BYTES, False) for at_ns in data.draw(st.lists(times_ns))]
    both = sorted((*exact, *others), key=lambda arrival: arrival.at_ns)
    found = calibration(hop_at(rate_bps), LATENCIES_S, both)
    assert found.rate_error == pytest.approx(0, abs=1e-5)
    assert found.flaws == ()


def test_a_link_that_waits_while_it_is_idle_is_found() -> None:
    arrivals = [Arrival(at_ns, FRAME_BYTES) for at_ns in departures(20_000_000, 20_000_000)]
    found = calibration(hop_at(20_000_000), [3 * LATENCY_TOLERANCE_S], arrivals)
    assert found.flaws == ("takes 1.5 ms while idle (tolerated 0.5 ms)",)


def test_each_direction_has_its_name() -> None:
    arrivals = [Arrival(at_ns, FRAME_BYTES) for at_ns in departures(20_000_000, 20_000_000)]
    directions = [
        calibration(hop_at(20_000_000, sender), LATENCIES_S, arrivals).direction
        for sender in ("d0g0", "rail0")
    ]
    assert directions == [Direction.UP, Direction.DOWN]


@pytest.mark.parametrize("rate_bps", [MIN_RATE_BPS, 20_000_000, 180_000_000, 600_000_000])
def test_a_train_takes_a_third_of_a_second_at_most(rate_bps: int) -> None:
    train = Train(rate_bps)
    assert (train.frames - train.leading) * train.frame_s < 1 / 3
    assert train.window < train.frames - train.leading


@given(topologies())
def test_links_of_every_class_are_chosen(topology: Topology) -> None:
    chosen = representatives(topology)
    assert representatives(topology) == chosen
    assert len(set(chosen)) == len(chosen)
    for kind in LinkKind:
        there = [link for link in topology.links if link.kind is kind]
        assert len([c for c in chosen if c.kind is kind]) == min(len(there), LINKS_OF_A_CLASS)


def test_the_seed_chooses_the_links() -> None:
    seeds = (spec(FabricKind.RAIL_ONLY, 4, 4, seed=seed) for seed in range(5))
    assert len({representatives(build_topology(fabric)) for fabric in seeds}) > 1


def test_a_run_stops_with_all_that_is_out_of_tolerance() -> None:
    good, slow = measured(20_000_000, 20_000_000), measured(20_000_000, 18_000_000)
    require_calibrated("rail-only", (good, good))
    with pytest.raises(EmulationError) as raised:
        require_calibrated("rail-only", (good, slow, replace(slow, direction=Direction.DOWN)))
    message = str(raised.value)
    carries = "carries 18 Mbit/s instead of 20 (-10.0%, tolerated 1%)"
    assert f"rail-only: nic-link d0g0--rail0, upwards: {carries}\n" in message
    assert f"rail-only: nic-link d0g0--rail0, downwards: {carries}\n" in message
    assert "docs/measuring.md" in message


def test_a_run_keeps_and_shows_its_calibration() -> None:
    exact = measured(20_000_000, 20_000_000)
    links = (exact, replace(exact, rate_bps=19_900_000.0, direction=Direction.DOWN))
    result = run_object(
        "id", "s", Path("/f"), [], calibration=calibration_objects({"rail-only": links})
    )
    (fabric,) = json.loads(json.dumps(result))["calibration"]
    assert fabric["fabric"] == "rail-only"
    assert [link["direction"] for link in fabric["links"]] == ["up", "down"]
    assert fabric["links"][1]["rate_error"] == pytest.approx(-0.005)
    assert fabric["links"][1]["flaws"] == []
    text = StringIO()
    print_run(result, Console(file=text, width=80))
    (row,) = [line.split() for line in text.getvalue().splitlines() if "nic-link" in line]
    assert row[:4] == ["nic-link", "20", "Mbit/s", "-0.50%"]


def shares_of(trials: list[tuple[float, float]]) -> tuple[list[float], int]:
    """What counts of trials in which both directions have these shares of their rate."""
    left = iter(trials)
    best = best_trial(lambda: tuple(measured(20_000_000, 20e6 * share) for share in next(left)))  # type: ignore[arg-type, return-value]
    return [found.rate_bps / 20e6 for found in best], len(trials) - len(list(left))


@pytest.mark.parametrize(
    ("trials", "best", "needed"),
    [
        ([(1, 1), (1, 0.9), (0.9, 1)], (1, 1), 1),
        ([(1, 0.9), (0.9, 1), (1, 1)], (1, 1), 2),
        ([(1, 0.9), (1, 0.8), (1, 0.98)], (1, 0.98), 3),
        ([(0.9, 0.9), (0.5, 0.98), (0.98, 0.5)], (0.98, 0.98), 3),
    ],
)
def test_the_best_trial_of_each_direction_counts(
    trials: list[tuple[float, float]], best: tuple[float, float], needed: int
) -> None:
    shares, taken = shares_of(trials)
    assert shares == pytest.approx(best, abs=1e-3)
    assert taken == needed <= TRIALS
