"""What a link, measured alone, must be: its rate, its latency, how evenly it lets frames go.

Full frames are sent back to back until the sending end's queue is full; a train of more follows.
What the token bucket makes of these shows in the times of their arrival. What the machine took
meanwhile is left out: the question is about the link. Tolerances and the figures that they come
from: docs/measuring.md, "Calibration".
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, inf
from statistics import median

from model.fabric.shaping import ETHERNET_HEADER_BYTES, MTU_BYTES, Shaper
from model.fabric.topology import Hop, Link, LinkKind, Topology
from model.measurement.pauses import PauseLog

FRAME_BYTES = MTU_BYTES + ETHERNET_HEADER_BYTES
LINKS_OF_A_CLASS = 2

# A train takes about so long, if that is neither too few frames nor too many to be kept.
TRAIN_S = 0.08
FEWEST_FRAMES, MOST_FRAMES = 12, 2000
# What waits at the sending end while a train is sent: about so long, and fewer frames than a
# shaper's queue holds.
QUEUED_S = 0.02
FEWEST_QUEUED, MOST_QUEUED = 4, 400
# The bucket is empty after so many times its depth at the latest, if the sender is any faster.
MOST_DEPTHS = 8
# What a sender can send as long as the bucket lets all pass, beyond that part it may not reach
# when the shaper's timers take its core: then the rate is the sender's, and not the link's.
FILLS_UP_TO = 0.7
# Behind a pause, frames that it held up come all at once: for so long they say nothing.
SETTLING_S = 0.002
# A trial says something of the link if so much of its train was not held up by pauses.
ENOUGH_UNDISTURBED = 0.4

RATE_TOLERANCE = 0.01
LATENCY_TOLERANCE_S = 0.0005
GAP_TOLERANCE = 0.25
# A link is wrong if so many trials found it so, and the same of its rate, and none found it right.
WRONG_AFTER = 3
SAME_RATE = 0.02
_BILLION = 1e9


class Direction(StrEnum):
    """Up is what the link's lower end sends."""

    UP = "up"
    DOWN = "down"


class Outcome(StrEnum):
    """What calibration says of one direction of a link."""

    RIGHT = "right"
    WRONG = "wrong"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Arrival:
    """A frame at the receiving end; others' are mostly the controller's probes of the link."""

    at_ns: int
    size_bytes: int
    ours: bool = True


@dataclass(frozen=True)
class Train:
    """The frames to send on a link with this shaper, and how to read their arrivals."""

    shaper: Shaper

    @property
    def frames(self) -> int:
        """How many frames are sent when the bucket is empty and the queue is full."""
        in_time = ceil(TRAIN_S / self.frame_s)
        return max(FEWEST_FRAMES, self.window + 2, min(in_time, MOST_FRAMES))

    @property
    def queued(self) -> int:
        """How many frames may wait at the sending end."""
        return max(FEWEST_QUEUED, min(round(QUEUED_S / self.frame_s), MOST_QUEUED))

    @property
    def frame_s(self) -> float:
        """What a frame takes at the link's rate."""
        return FRAME_BYTES * 8 / self.shaper.rate_bps

    @property
    def most_leading(self) -> int:
        """How many frames go before it at most, so that the bucket runs empty."""
        return MOST_DEPTHS * self.window + self.queued

    @property
    def seconds(self) -> float:
        """What the frames that count take at the link's rate."""
        return (self.frames - 1) * self.frame_s

    @property
    def window(self) -> int:
        """A gap is taken over so many frames: a bucket may let its burst through at once."""
        return self.shaper.burst_bytes // FRAME_BYTES

    @property
    def gap_s(self) -> float:
        """The gap over a window, if it is even."""
        return self.window * self.frame_s

    @property
    def forgiven_s(self) -> float:
        """A pause that is no longer takes nothing from the link.

        The bucket may hold the tokens of nearly a frame when the pause begins.
        """
        return self.shaper.burst_bytes * 8 / self.shaper.rate_bps - self.frame_s

    def backlogged(self, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
        """What arrived with the train, from its first frame to its last.

        Those before it let the bucket run empty: they say nothing of the rate.
        """
        ours = [place for place, arrival in enumerate(arrivals) if arrival.ours]
        return arrivals[ours[-self.frames] : ours[-1] + 1]


# The place of a frame of ours in a train, and when it arrived in nanoseconds.
Point = tuple[int, int]


def undisturbed(
    arrivals: Sequence[Arrival], train: Train, pauses: PauseLog
) -> list[Sequence[Point]]:
    """Our frames, in stretches in which the link sent without a break.

    A pause that is longer than the bucket is deep ends a stretch: what it took does not come
    back. Frames in and right behind a shorter one are late, but those after them are on time.
    """
    points = [(n, a.at_ns) for n, a in enumerate(one for one in arrivals if one.ours)]
    begin_ns, end_ns = points[0][1], points[-1][1]
    on_time = list(pauses.stretches(begin_ns, end_ns, 0.0, SETTLING_S))
    found: list[Sequence[Point]] = []
    for first_ns, last_ns in pauses.stretches(begin_ns, end_ns, train.forgiven_s, SETTLING_S):
        spans = [(a, b) for a, b in on_time if first_ns <= a and b <= last_ns]
        inside = [point for a, b in spans for point in points if a <= point[1] <= b]
        if len(inside) > 1:
            found.append(inside)
    return found


def rate_of(stretches: Sequence[Sequence[Point]]) -> float:
    """The rate in bit/s at which frames came: one slope through all stretches, by least squares."""
    above = below = 0.0
    for points in stretches:
        middle = sum(number for number, _ in points) / len(points)
        mean_ns = sum(at_ns - points[0][1] for _, at_ns in points) / len(points)
        for number, at_ns in points:
            above += (number - middle) * (at_ns - points[0][1] - mean_ns)
            below += (number - middle) ** 2
    return FRAME_BYTES * 8 * _BILLION * below / max(above, 1.0) if below else 0.0


def others_rate_of(arrivals: Sequence[Arrival]) -> float:
    """The rate in bit/s of what others sent meanwhile."""
    sent_bytes = sum(arrival.size_bytes for arrival in arrivals[:-1] if not arrival.ours)
    took_ns = max(1, arrivals[-1].at_ns - arrivals[0].at_ns)
    return sent_bytes * 8 * _BILLION / took_ns


def gap_errors(stretches: Sequence[Sequence[Point]], train: Train) -> list[float]:
    """How far each gap over a window of our frames is from size/rate, as a part of that; sorted.

    Of frames without a pause between them.
    """
    gap_ns, errors = train.gap_s * _BILLION, []
    for points in stretches:
        for (a, a_ns), (b, b_ns) in zip(points, points[train.window :], strict=False):
            if b - a == train.window:
                errors.append(abs((b_ns - a_ns) / gap_ns - 1))
    return sorted(errors)


@dataclass(frozen=True)
class LinkCalibration:
    """One trial of one direction of a link, measured alone; gap errors are parts of `gap_s`.

    `others_bps` is what others, mostly the controller's probes, sent at the same time, `sender_bps`
    what the sender can send when nothing holds its frames up. `paused_s`
    is how long pauses took meanwhile, if they were `watched`; `undisturbed_s` how much of the
    train's time is in the stretches that rate and gaps are of; `queued_s` for how long frames lay
    ready for the link. Gap errors are `None` if no gap was undisturbed.
    """

    link: str
    kind: LinkKind
    direction: Direction
    nominal_bps: int
    rate_bps: float
    others_bps: float
    latency_s: float
    gap_s: float
    gap_error_median: float | None
    gap_error_p95: float | None
    frames: int
    sender_bps: float
    seconds: float
    undisturbed_s: float
    paused_s: float
    pause_longest_s: float
    queued_s: float
    watched: bool
    trial: int

    @property
    def rate_error(self) -> float:
        """How far the rate is from the nominal one, as a part of that.

        The shaper lets what others send go on top, and takes it back later: it may count or not.
        """
        if self.rate_bps > self.nominal_bps:
            return self.rate_bps / self.nominal_bps - 1
        return min(0.0, (self.rate_bps + self.others_bps) / self.nominal_bps - 1)

    @property
    def outcome(self) -> Outcome:
        """What this trial alone says."""
        if self.undisturbed_s < ENOUGH_UNDISTURBED * self.seconds:
            return Outcome.UNDECIDED
        if not self.flaws:
            return Outcome.RIGHT
        if not self.can_be_filled:
            return Outcome.UNDECIDED
        # Between pauses the rate is the link's; when a frame comes is the machine's, too.
        # In a pause that was longer than its queue, the link was given nothing to carry.
        was_busy = self.pause_longest_s < self.queued_s
        about_the_link = was_busy and abs(self.rate_error) > RATE_TOLERANCE
        found = self.watched and (about_the_link or not self.paused_s)
        return Outcome.WRONG if found else Outcome.UNDECIDED

    @property
    def can_be_filled(self) -> bool:
        """Whether the sender is so fast that it was the link that limited the rate."""
        return self.rate_bps < FILLS_UP_TO * self.sender_bps

    @property
    def flaws(self) -> tuple[str, ...]:
        """What is out of tolerance: found and tolerated."""
        return tuple(self._flaws())

    def _flaws(self) -> Iterator[str]:
        if abs(self.rate_error) > RATE_TOLERANCE:
            yield (
                f"carries {self.rate_bps / 1e6:.4g} Mbit/s instead of "
                f"{self.nominal_bps / 1e6:.4g} ({self.rate_error:+.1%}, "
                f"tolerated {RATE_TOLERANCE:.0%})"
            )
        if self.latency_s > LATENCY_TOLERANCE_S:
            yield (
                f"takes {self.latency_s * 1e3:.3g} ms while idle "
                f"(tolerated {LATENCY_TOLERANCE_S * 1e3:g} ms)"
            )
        if self.gap_error_p95 is not None and self.gap_error_p95 > GAP_TOLERANCE:
            yield (
                f"5 % of the gaps of {self.gap_s * 1e3:.3g} ms between its frames are "
                f"{self.gap_error_p95:.0%} off or more (tolerated {GAP_TOLERANCE:.0%})"
            )


def calibration(
    hop: Hop,
    latencies_s: Sequence[float],
    arrivals: Sequence[Arrival],
    pauses: PauseLog,
    trial: int = 1,
    *,
    sender_bps: float = inf,
) -> LinkCalibration:
    """What frames on an idle link, and a train with those before it, say of this direction.

    `sender_bps` is what the sender can send; `pauses` are those of the machine, by the clock of
    the arrivals.
    """
    link, train = hop.link, Train(hop.link.shaper)
    steady = train.backlogged(arrivals)
    stretches = undisturbed(steady, train, pauses)
    errors = gap_errors(stretches, train)
    meanwhile = pauses.during(arrivals[0].at_ns, arrivals[-1].at_ns)
    return LinkCalibration(
        link=link.name,
        kind=link.kind,
        direction=Direction.UP if hop.sender == link.lower.node else Direction.DOWN,
        nominal_bps=link.rate_bps,
        rate_bps=rate_of(stretches),
        others_bps=others_rate_of(steady),
        latency_s=median(latencies_s),
        gap_s=train.gap_s,
        gap_error_median=median(errors) if errors else None,
        gap_error_p95=errors[ceil(0.95 * len(errors)) - 1] if errors else None,
        frames=train.frames,
        sender_bps=sender_bps,
        seconds=train.seconds,
        undisturbed_s=sum(points[-1][0] - points[0][0] for points in stretches) * train.frame_s,
        paused_s=sum(pause.length_s for pause in meanwhile.pauses),
        pause_longest_s=meanwhile.longest_s,
        queued_s=train.queued * train.frame_s,
        watched=pauses.covers(arrivals[0].at_ns, arrivals[-1].at_ns),
        trial=trial,
    )


@dataclass(frozen=True)
class DirectionCalibration:
    """All trials of one direction of a link, in order; there is at least one."""

    trials: tuple[LinkCalibration, ...]

    @property
    def outcome(self) -> Outcome:
        """Right once is right; wrong each time, often enough and in the same way, is wrong."""
        if any(trial.outcome is Outcome.RIGHT for trial in self.trials):
            return Outcome.RIGHT
        errors = sorted(t.rate_error for t in self.trials if t.outcome is Outcome.WRONG)
        alike = zip(errors, errors[WRONG_AFTER - 1 :], strict=False)
        found = any(most - least <= SAME_RATE for least, most in alike)
        return Outcome.WRONG if found else Outcome.UNDECIDED

    @property
    def counted(self) -> LinkCalibration:
        """The trial that stands for all: the first that says what all say, or else the last."""
        same = [trial for trial in self.trials if trial.outcome is self.outcome]
        return same[0] if same else self.trials[-1]


def representatives(topology: Topology) -> tuple[Link, ...]:
    """Some links of each class, which the fabric's seed chooses."""
    chosen, links = random.Random(topology.spec.seed), []
    for kind in LinkKind:
        alike = [link for link in topology.links if link.kind is kind]
        links += chosen.sample(alike, min(LINKS_OF_A_CLASS, len(alike)))
    return tuple(links)
