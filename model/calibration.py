"""What a link, measured alone, must be: its rate, its latency, how evenly it lets frames go.

A train of full frames is sent back to back, so that the sending end's queue is never empty; what
its token bucket makes of them shows in the times of their arrival. Tolerances and the figures that
they come from: docs/measuring.md, "Calibration".
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from statistics import median

from model.shaping import ETHERNET_HEADER_BYTES, MTU_BYTES, Shaper
from model.topology import Hop, Link, LinkKind, Topology

FRAME_BYTES = MTU_BYTES + ETHERNET_HEADER_BYTES
LINKS_OF_A_CLASS = 2

# A train takes about so long, if that is neither too few frames nor too many to be kept.
TRAIN_S = 0.08
FEWEST_FRAMES, MOST_FRAMES = 12, 2000
# While the first frames are sent, the bucket still fills: it is empty some bursts later.
EMPTYING_S = 0.004

RATE_TOLERANCE = 0.01
LATENCY_TOLERANCE_S = 0.0005
GAP_TOLERANCE = 0.25
_BILLION = 1e9


class Direction(StrEnum):
    """Up is what the link's lower end sends."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True)
class Arrival:
    """A frame at the receiving end; others' are mostly the controller's probes of the link."""

    at_ns: int
    size_bytes: int
    ours: bool = True


@dataclass(frozen=True)
class Train:
    """The frames to send on a link of this rate, and how to read their arrivals."""

    rate_bps: int

    @property
    def leading(self) -> int:
        """The first frames, until a full bucket is empty: they say nothing of the rate."""
        return self.window + 2 + int(EMPTYING_S / self.frame_s)

    @property
    def frames(self) -> int:
        """How many frames are sent."""
        in_time = ceil(TRAIN_S / self.frame_s)
        return self.leading + max(FEWEST_FRAMES, min(in_time, MOST_FRAMES))

    @property
    def frame_s(self) -> float:
        """What a frame takes at the link's rate."""
        return FRAME_BYTES * 8 / self.rate_bps

    @property
    def window(self) -> int:
        """A gap is taken over so many frames: a bucket may let its burst through at once."""
        return Shaper(self.rate_bps).burst_bytes // FRAME_BYTES

    @property
    def gap_s(self) -> float:
        """The gap over a window, if it is even."""
        return self.window * self.frame_s

    def backlogged(self, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
        """What arrived from the first frame on that had to wait for its tokens."""
        ours = [place for place, arrival in enumerate(arrivals) if arrival.ours]
        return arrivals[ours[self.leading] : ours[-1] + 1]


def rate_of(arrivals: Sequence[Arrival], ours: bool) -> float:
    """The rate in bit/s of our frames, or of others': the next comes when one is paid for."""
    sent_bytes = sum(arrival.size_bytes for arrival in arrivals[:-1] if arrival.ours is ours)
    took_ns = max(1, arrivals[-1].at_ns - arrivals[0].at_ns)
    return sent_bytes * 8 * _BILLION / took_ns


def gap_errors(arrivals: Sequence[Arrival], train: Train) -> list[float]:
    """How far each gap over a window of our frames is from size/rate, as a part of that; sorted."""
    times_ns = [arrival.at_ns for arrival in arrivals if arrival.ours]
    pairs = zip(times_ns, times_ns[train.window :], strict=False)
    return sorted(abs((b_ns - a_ns) / (train.gap_s * _BILLION) - 1) for a_ns, b_ns in pairs)


@dataclass(frozen=True)
class LinkCalibration:
    """One direction of a link, measured alone; gap errors are parts of the gap `gap_s`.

    `others_bps` is what others, mostly the controller's probes, sent at the same time.
    """

    link: str
    kind: LinkKind
    direction: Direction
    nominal_bps: int
    rate_bps: float
    others_bps: float
    latency_s: float
    gap_s: float
    gap_error_median: float
    gap_error_p95: float
    frames: int

    @property
    def rate_error(self) -> float:
        """How far the rate is from the nominal one, as a part of that.

        The shaper lets what others send go on top, and takes it back later: it may count or not.
        """
        if self.rate_bps > self.nominal_bps:
            return self.rate_bps / self.nominal_bps - 1
        return min(0.0, (self.rate_bps + self.others_bps) / self.nominal_bps - 1)

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
        if self.gap_error_p95 > GAP_TOLERANCE:
            yield (
                f"5 % of the gaps of {self.gap_s * 1e3:.3g} ms between its frames are "
                f"{self.gap_error_p95:.0%} off or more (tolerated {GAP_TOLERANCE:.0%})"
            )


def calibration(
    hop: Hop, latencies_s: Sequence[float], arrivals: Sequence[Arrival]
) -> LinkCalibration:
    """What frames on an idle link, and the arrivals of a whole train, say of this direction."""
    link, train = hop.link, Train(hop.link.rate_bps)
    steady = train.backlogged(arrivals)
    errors = gap_errors(steady, train)
    return LinkCalibration(
        link=link.name,
        kind=link.kind,
        direction=Direction.UP if hop.sender == link.lower.node else Direction.DOWN,
        nominal_bps=link.rate_bps,
        rate_bps=rate_of(steady, ours=True),
        others_bps=rate_of(steady, ours=False),
        latency_s=median(latencies_s),
        gap_s=train.gap_s,
        gap_error_median=median(errors),
        gap_error_p95=errors[ceil(0.95 * len(errors)) - 1],
        frames=train.frames - train.leading,
    )


def representatives(topology: Topology) -> tuple[Link, ...]:
    """Some links of each class, which the fabric's seed chooses."""
    chosen, links = random.Random(topology.spec.seed), []
    for kind in LinkKind:
        alike = [link for link in topology.links if link.kind is kind]
        links += chosen.sample(alike, min(LINKS_OF_A_CLASS, len(alike)))
    return tuple(links)
