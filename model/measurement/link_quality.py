"""Calibration of one link in isolation: its rate, its latency, the evenness of its frame gaps.

Full frames are sent back to back until the sender's queue is full; a train of more follows. The
train's arrival times show the effect of the token bucket. Pauses of the machine are excluded, as
only the link is in question. Tolerances and the measurements behind them:
docs/explanation/measuring.md, "Calibration".
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, inf
from statistics import median

from model.fabric.shaping import ETHERNET_HEADER_BYTES, MTU_BYTES, Shaper
from model.fabric.topology import Hop, Link, LinkKind, Topology
from model.measurement.pauses import NS_PER_S, PauseLog

FRAME_BYTES = MTU_BYTES + ETHERNET_HEADER_BYTES
LINKS_OF_A_CLASS = 2

# Length of a train in seconds, within these limits of its number of frames.
TRAIN_S = 0.08
FEWEST_FRAMES, MOST_FRAMES = 12, 2000
# Length in seconds of the sender's queue during a train, within these limits of its number of
# frames; a shaper's queue holds more.
QUEUED_S = 0.02
FEWEST_QUEUED, MOST_QUEUED = 4, 400
# A sender faster than the link empties the bucket within this many bucket depths.
MOST_DEPTHS = 8
# A sender may not exceed this share of its unshaped rate when the shaper's timers use its core:
# above it, the measured rate is the sender's, not the link's.
FILLS_UP_TO = 0.7
# After a pause, delayed frames arrive all at once: arrivals are ignored for this long.
CATCH_UP_S = 0.002
# A trial is conclusive if at least this share of its train was undisturbed by pauses.
ENOUGH_UNDISTURBED = 0.4

RATE_TOLERANCE = 0.01
LATENCY_TOLERANCE_S = 0.0005
GAP_TOLERANCE = 0.25
# A link is wrong if this many trials are, with rate errors this close, and no trial is right.
WRONG_AFTER = 3
SAME_RATE = 0.02


class Direction(StrEnum):
    """The direction of a link; up is sent by the link's lower end."""

    UP = "up"
    DOWN = "down"


class Outcome(StrEnum):
    """Calibration verdict on one direction of a link."""

    RIGHT = "right"
    WRONG = "wrong"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Arrival:
    """A received frame; frames that are not `ours` are mostly the controller's link probes."""

    at_ns: int
    size_bytes: int
    ours: bool = True


@dataclass(frozen=True)
class Train:
    """A train of frames for a link: its length, and its timing in seconds at the link's rate.

    All `frames` are sent when the bucket is empty and the queue is full: at most `most_leading` go
    before them, and `queued` wait at the sending end, which keep the link busy for `queued_s`. The
    train takes `seconds` from its first frame to its last, one frame `frame_s`. A gap spans
    `window` frames, as a bucket may let its burst through at once; it should take `gap_s`. A pause
    up to `forgiven_s` costs the link nothing: one frame less than the depth, as the bucket may hold
    nearly a frame's tokens when the pause begins.
    """

    frames: int
    most_leading: int
    queued: int
    queued_s: float
    seconds: float
    frame_s: float
    window: int
    gap_s: float
    forgiven_s: float

    @classmethod
    def on(cls, shaper: Shaper) -> "Train":
        """The train for a link with this shaper."""
        frame_s = FRAME_BYTES * 8 / shaper.rate_bps
        window = shaper.burst_bytes // FRAME_BYTES
        frames = max(FEWEST_FRAMES, window + 2, min(ceil(TRAIN_S / frame_s), MOST_FRAMES))
        queued = max(FEWEST_QUEUED, min(round(QUEUED_S / frame_s), MOST_QUEUED))
        return cls(
            frames=frames,
            most_leading=MOST_DEPTHS * window + queued,
            queued=queued,
            queued_s=queued * frame_s,
            seconds=(frames - 1) * frame_s,
            frame_s=frame_s,
            window=window,
            gap_s=window * frame_s,
            forgiven_s=shaper.burst_bytes * 8 / shaper.rate_bps - frame_s,
        )

    def backlogged(self, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
        """Return the arrivals from the train's first frame to its last.

        Earlier frames emptied the bucket: they say nothing about the rate.
        """
        ours = [place for place, arrival in enumerate(arrivals) if arrival.ours]
        return arrivals[ours[-self.frames] : ours[-1] + 1]


# The index of one of our frames in a train, and its arrival time in nanoseconds.
Point = tuple[int, int]


def undisturbed(
    arrivals: Sequence[Arrival], train: Train, pauses: PauseLog
) -> list[Sequence[Point]]:
    """Return our frames, in stretches in which the link sent without a break.

    A pause longer than the bucket's depth ends a stretch: its loss is not made up for. Frames
    in and right after a shorter pause are late and left out; those after them are on time.
    """
    points = [(n, a.at_ns) for n, a in enumerate(one for one in arrivals if one.ours)]
    begin_ns, end_ns = points[0][1], points[-1][1]
    on_time = list(pauses.stretches(begin_ns, end_ns, 0.0, CATCH_UP_S))
    kept: list[Sequence[Point]] = []
    for first_ns, last_ns in pauses.stretches(begin_ns, end_ns, train.forgiven_s, CATCH_UP_S):
        spans = [(a, b) for a, b in on_time if first_ns <= a and b <= last_ns]
        inside = [point for a, b in spans for point in points if a <= point[1] <= b]
        if len(inside) > 1:
            kept.append(inside)
    return kept


def rate_of(stretches: Sequence[Sequence[Point]]) -> float:
    """Return the rate of arrivals in bit/s: one least-squares slope through all stretches."""
    above = below = 0.0
    for points in stretches:
        middle = sum(number for number, _ in points) / len(points)
        mean_ns = sum(at_ns - points[0][1] for _, at_ns in points) / len(points)
        for number, at_ns in points:
            above += (number - middle) * (at_ns - points[0][1] - mean_ns)
            below += (number - middle) ** 2
    return FRAME_BYTES * 8 * NS_PER_S * below / max(above, 1.0) if below else 0.0


def others_rate_of(arrivals: Sequence[Arrival]) -> float:
    """Return the rate in bit/s of frames that are not ours."""
    sent_bytes = sum(arrival.size_bytes for arrival in arrivals[:-1] if not arrival.ours)
    took_ns = max(1, arrivals[-1].at_ns - arrivals[0].at_ns)
    return sent_bytes * 8 * NS_PER_S / took_ns


def gap_errors(stretches: Sequence[Sequence[Point]], train: Train) -> list[float]:
    """Return the relative error of each gap over a window, against size/rate, sorted.

    Only gaps without a pause in between are used.
    """
    gap_ns, errors = train.gap_s * NS_PER_S, []
    for points in stretches:
        for (a, a_ns), (b, b_ns) in zip(points, points[train.window :], strict=False):
            if b - a == train.window:
                errors.append(abs((b_ns - a_ns) / gap_ns - 1))
    return sorted(errors)


@dataclass(frozen=True)
class LinkRates:
    """Rates of one direction of a link during a trial, in bit/s.

    `others_bps` is the rate of other frames, mostly the controller's probes; `sender_bps` is the
    sender's rate when nothing delays its frames.
    """

    nominal_bps: int
    measured_bps: float
    others_bps: float
    sender_bps: float

    @property
    def error(self) -> float:
        """The relative error of the measured rate against the nominal one.

        The rate may be nominal with or without others' frames: the shaper sends these on top of it
        and takes their bytes back later.
        """
        if self.measured_bps > self.nominal_bps:
            return self.measured_bps / self.nominal_bps - 1
        return min(0.0, (self.measured_bps + self.others_bps) / self.nominal_bps - 1)


@dataclass(frozen=True)
class LinkCalibration:
    """One trial of one direction of a link in isolation.

    `undisturbed_s` is the part of the train's time from which rate and gaps are computed. The
    errors of gaps over a window are relative, `None` if no gap was undisturbed. `pauses` are those
    of the machine meanwhile, if they were `watched`; other programs can keep the sender waiting,
    too: for `sender_wait_s` at most between two frames of the train.
    """

    link: str
    kind: LinkKind
    direction: Direction
    trial: int
    train: Train
    undisturbed_s: float
    rates: LinkRates
    sender_wait_s: float
    latency_s: float
    gap_error_median: float | None
    gap_error_p95: float | None
    pauses: PauseLog
    watched: bool

    @property
    def outcome(self) -> Outcome:
        """The verdict of this trial alone."""
        if self.undisturbed_s < ENOUGH_UNDISTURBED * self.train.seconds:
            return Outcome.INCONCLUSIVE
        if not self.deviations:
            return Outcome.INCONCLUSIVE if self.gap_error_p95 is None else Outcome.RIGHT
        if not self.can_be_filled:
            return Outcome.INCONCLUSIVE
        # Between pauses, the rate depends on the link only; arrival times on the machine, too.
        # In more time than its queue lasted, the link had nothing to send.
        was_busy = max(self.pauses.longest_s, self.sender_wait_s) < self.train.queued_s
        about_the_link = abs(self.rates.error) > RATE_TOLERANCE or not self.pauses.total_s
        is_certain = self.watched and was_busy and about_the_link
        return Outcome.WRONG if is_certain else Outcome.INCONCLUSIVE

    @property
    def can_be_filled(self) -> bool:
        """Whether the sender is fast enough that the link limited the rate."""
        return self.rates.measured_bps < FILLS_UP_TO * self.rates.sender_bps

    @property
    def deviations(self) -> tuple[str, ...]:
        """Issues: each value out of tolerance, with its tolerance."""
        return tuple(self._deviations())

    def _deviations(self) -> Iterator[str]:
        rates, gap_error = self.rates, self.gap_error_p95
        if abs(rates.error) > RATE_TOLERANCE:
            yield (
                f"carries {rates.measured_bps / 1e6:.4g} Mbit/s instead of "
                f"{rates.nominal_bps / 1e6:.4g} ({rates.error:+.1%}, "
                f"tolerated {RATE_TOLERANCE:.0%})"
            )
        if self.latency_s > LATENCY_TOLERANCE_S:
            yield (
                f"takes {self.latency_s * 1e3:.3g} ms while idle "
                f"(tolerated {LATENCY_TOLERANCE_S * 1e3:g} ms)"
            )
        if gap_error is not None and gap_error > GAP_TOLERANCE:
            yield (
                f"5% of the gaps of {self.train.gap_s * 1e3:.3g} ms between its frames are "
                f"{gap_error:.0%} off or more (tolerated {GAP_TOLERANCE:.0%})"
            )


def calibration(
    hop: Hop,
    latencies_s: Sequence[float],
    arrivals: Sequence[Arrival],
    pauses: PauseLog,
    trial: int = 1,
    sender_bps: float = inf,
    sender_wait_s: float = 0.0,
) -> LinkCalibration:
    """Evaluate one direction from idle latencies and the arrivals of a train and frames before it.

    `sender_bps` is the sender's rate when nothing delays its frames, `sender_wait_s` its longest
    time between two of the train; `pauses` are those of the machine, by the clock of the arrivals.
    """
    link, train = hop.link, Train.on(hop.link.shaper)
    steady, span_ns = train.backlogged(arrivals), (arrivals[0].at_ns, arrivals[-1].at_ns)
    stretches = undisturbed(steady, train, pauses)
    meanwhile, watched = pauses.during(*span_ns), pauses.covers(*span_ns)
    errors = gap_errors(stretches, train)
    return LinkCalibration(
        link=link.name,
        kind=link.kind,
        direction=Direction.UP if hop.sender == link.lower.node else Direction.DOWN,
        trial=trial,
        train=train,
        undisturbed_s=sum(points[-1][0] - points[0][0] for points in stretches) * train.frame_s,
        rates=LinkRates(link.rate_bps, rate_of(stretches), others_rate_of(steady), sender_bps),
        sender_wait_s=sender_wait_s,
        latency_s=median(latencies_s),
        gap_error_median=median(errors) if errors else None,
        gap_error_p95=errors[ceil(0.95 * len(errors)) - 1] if errors else None,
        pauses=meanwhile,
        watched=watched,
    )


@dataclass(frozen=True)
class DirectionCalibration:
    """All trials of one direction of a link, in order; there is at least one."""

    trials: tuple[LinkCalibration, ...]

    @property
    def outcome(self) -> Outcome:
        """Right if any trial is; wrong if enough agree on the rate error; else inconclusive."""
        if any(trial.outcome is Outcome.RIGHT for trial in self.trials):
            return Outcome.RIGHT
        return Outcome.WRONG if self._agreeing else Outcome.INCONCLUSIVE

    @property
    def _agreeing(self) -> Sequence[LinkCalibration]:
        """Wrong trials with similar rate errors, as many as prove a link wrong; else none."""
        wrong = [trial for trial in self.trials if trial.outcome is Outcome.WRONG]
        wrong.sort(key=lambda trial: trial.rates.error)
        for first in range(len(wrong) - WRONG_AFTER + 1):
            agreeing = wrong[first : first + WRONG_AFTER]
            if agreeing[-1].rates.error - agreeing[0].rates.error <= SAME_RATE:
                return agreeing
        return ()

    @property
    def counted(self) -> LinkCalibration:
        """The trial to report: the first with the overall outcome, or else the last.

        Of a wrong link, it is the first of the agreeing trials: another trial may be off by an
        unseen pause.
        """
        if self.outcome is Outcome.WRONG:
            return min(self._agreeing, key=lambda trial: trial.trial)
        same = [trial for trial in self.trials if trial.outcome is self.outcome]
        return same[0] if same else self.trials[-1]


def representatives(topology: Topology) -> tuple[Link, ...]:
    """Choose two links of each kind at random, by the fabric's seed; of its extreme rates each."""
    chosen, links = random.Random(topology.spec.seed), []
    for kind in LinkKind:
        rates = [link.rate_bps for link in topology.links if link.kind is kind]
        for rate_bps in sorted({min(rates), max(rates)} if rates else ()):
            of_class = [
                link for link in topology.links if (link.kind, link.rate_bps) == (kind, rate_bps)
            ]
            links += chosen.sample(of_class, min(LINKS_OF_A_CLASS, len(of_class)))
    return tuple(links)
