"""Congestion control of a queue pair: how much it may have under way, and at what rate it sends.

Times and rates are the real platform's; `slowdown` stretches them: where links are slower by it,
and packets as long as they are, every time is longer by it. A part of the agent: it needs only
Python's standard library.
"""

from math import inf, sqrt


class Window:
    """What a queue pair asks and tells its congestion control; times in ns. Here, there is none.

    `window` is the most packets that are sent and not acknowledged, `rate_bps` the most bits per
    second. `next_ns` is when `tick` is due, infinity if never.
    """

    rate_bps = next_ns = inf

    def __init__(self, window: float) -> None:
        self.window = window

    def sent(self, size_bytes: int, now_ns: int) -> None:
        """Note a packet that leaves."""

    def acknowledged(self, packets: int, round_trip_ns: int | None, now_ns: int) -> None:
        """Note newly acknowledged packets, and the round trip of the last one if it is known."""

    def notified(self, now_ns: int) -> None:
        """Note a congestion notification (CNP)."""

    def lost(self, now_ns: int) -> None:
        """Note that packets are repeated, as the receiver lacks one."""

    def timed_out(self, now_ns: int) -> None:
        """Note that packets are repeated, as no acknowledgement came in time."""

    def tick(self, now_ns: int) -> None:
        """Do what is due."""


class Dcqcn(Window):
    """DCQCN at the sender, the reaction point (Zhu et al., SIGCOMM 2015, section 3.1, figure 14).

    Each notification cuts the rate by alpha / 2 (equation 1). Without one, alpha decays (equation
    2), and the rate comes back in steps: one every time the timer or the byte counter ends. The
    first steps halve the distance to the target (equation 3); once one counter has ended more than
    `FAST_STEPS` times, the target grows by `ADDITIVE_BPS` at each (equation 4), and once both have,
    by a multiple of `HYPER_BPS`, that of QCN (IEEE 802.1Qau, 32.2), from which it comes: so has
    htsim (`DCQCNSrc::increaseRate` in dcqcn.cpp), by which each step was checked. Numbers differ:
    the paper gives none for `HYPER_BPS`, adapters have ten additive steps (rpg_hai_rate,
    rpg_ai_rate), htsim two. Left out is what adapters add to the paper: a least time between cuts
    (rate_reduce_monitor_period), a rate for the first notification (rate_to_set_on_first_cnp), and
    a target that stays until the rate has grown after a cut (without clamp_tgt_rate).
    """

    GAIN, ALPHA_TIMER_NS, RATE_TIMER_NS = 1 / 256, 55_000, 55_000
    BYTE_COUNTER, FAST_STEPS = 10_000_000, 5
    ADDITIVE_BPS, HYPER_BPS = 40e6, 400e6
    # Adapters send no slower (rpg_min_rate).
    LEAST_BPS = 1e6
    # Halves of the distance to the link's rate would never reach it: by so little, it is the same.
    SAME_PART = 1e-9

    def __init__(self, window: float, link_bps: float, slowdown: float) -> None:
        super().__init__(window)
        self.rate_bps = self.target_bps = self.link_bps = link_bps
        self.slowdown, self.alpha = slowdown, 1.0
        self.alpha_ns = self.rate_ns = self.next_ns = inf
        self.bytes_left, self.by_time, self.by_bytes = self.BYTE_COUNTER, 0, 0

    def notified(self, now_ns: int) -> None:
        """Cut the rate, and begin to recover."""
        self.decay(now_ns)
        self.target_bps = self.rate_bps
        self.rate_bps *= 1 - self.alpha / 2
        self.rate_bps = max(self.rate_bps, self.LEAST_BPS / self.slowdown)
        self.alpha += self.GAIN * (1 - self.alpha)
        self.bytes_left, self.by_time, self.by_bytes = self.BYTE_COUNTER, 0, 0
        self.alpha_ns = now_ns + self.ALPHA_TIMER_NS * self.slowdown
        self.rate_ns = self.next_ns = now_ns + self.RATE_TIMER_NS * self.slowdown

    def sent(self, size_bytes: int, now_ns: int) -> None:
        """Count bytes; take a step when the counter ends."""
        self.bytes_left -= size_bytes
        if self.bytes_left <= 0:
            self.bytes_left += self.BYTE_COUNTER
            self.by_bytes += 1
            self.increase()

    def tick(self, now_ns: int) -> None:
        """Let alpha decay, and take a step for each time that the timer has ended.

        At the link's rate, the timer stops.
        """
        self.decay(now_ns)
        while now_ns >= self.rate_ns:
            self.rate_ns += self.RATE_TIMER_NS * self.slowdown
            self.by_time += 1
            self.increase()
            if self.rate_bps == self.link_bps:
                self.rate_ns = inf
        self.next_ns = self.rate_ns

    def decay(self, now_ns: int) -> None:
        """Let alpha decay for each time that its timer has ended; nothing else waits for it."""
        if now_ns >= self.alpha_ns:
            period_ns = self.ALPHA_TIMER_NS * self.slowdown
            times = (now_ns - self.alpha_ns) // period_ns + 1
            self.alpha *= (1 - self.GAIN) ** times
            self.alpha_ns += times * period_ns

    def increase(self) -> None:
        """Take a step towards the target, which may grow before."""
        steps = self.by_time, self.by_bytes
        if min(steps) > self.FAST_STEPS:
            more_bps = (min(steps) - self.FAST_STEPS) * self.HYPER_BPS
            self.target_bps += more_bps / self.slowdown
        elif max(steps) > self.FAST_STEPS:
            self.target_bps += self.ADDITIVE_BPS / self.slowdown
        self.target_bps = min(self.target_bps, self.link_bps)
        self.rate_bps = (self.rate_bps + self.target_bps) / 2
        if self.rate_bps > self.link_bps * (1 - self.SAME_PART):
            self.rate_bps = self.link_bps


class Swift(Window):
    """Swift at the sender (Kumar et al., SIGCOMM 2020, algorithm 1, sections 3.5 and 3.6).

    The window of packets grows by `ADDITIVE` for each round trip below the target delay, and
    shrinks in proportion to the excess, at most by half, and once for a round trip. The target
    grows with the number of flows that share the queue, seen by a small window (flow-based
    scaling). After `RESET_TIMEOUTS` (RETX_RESET_THRESHOLD) in a row, the window is the least.

    Left out: the target's scaling by hops, and the second window, for the delay of the receiver.
    The delay is that from the adapter's queue to the acknowledgement, of a repeated packet since it
    last left, as packets have no timestamps; no clock of the receiver is subtracted. The paper
    gives most parameters no numbers; these are htsim's (`SwiftSrc` in swift.cpp), but for the base
    and the least window.
    """

    BASE_NS, RANGE_NS = 25_000, 100_000
    ADDITIVE, DECREASE, MOST_DECREASE = 1.0, 0.8, 0.5
    LEAST_SCALED, MOST_SCALED = 0.1, 100.0
    LEAST_WINDOW, RESET_TIMEOUTS = 0.001, 5

    def __init__(self, window: float, packet_bits: float, slowdown: float) -> None:
        super().__init__(window)
        self.most, self.packet_bits, self.slowdown = window, packet_bits, slowdown
        self.size, self.decreased_ns, self.round_trip_ns = window, -inf, 0.0
        self.timeouts = 0
        self.slope_ns = self.RANGE_NS / (1 / sqrt(self.LEAST_SCALED) - 1 / sqrt(self.MOST_SCALED))

    @property
    def target_ns(self) -> float:
        """The delay to keep: equation of section 3.5, stretched."""
        scaled_ns = self.slope_ns * (1 / sqrt(self.size) - 1 / sqrt(self.MOST_SCALED))
        return (self.BASE_NS + min(self.RANGE_NS, max(0.0, scaled_ns))) * self.slowdown

    def acknowledged(self, packets: int, round_trip_ns: int | None, now_ns: int) -> None:
        """Grow below the target delay, else shrink once for a round trip."""
        self.timeouts = 0
        if round_trip_ns is None:  # the next packet will tell it: less than one would be late
            return self.resize(max(1.0, self.size))
        self.round_trip_ns, target_ns = round_trip_ns, self.target_ns
        if round_trip_ns < target_ns:
            grown = self.ADDITIVE * packets
            self.resize(self.size + (grown / self.size if self.size >= 1 else grown))
        else:
            excess = (round_trip_ns - target_ns) / round_trip_ns
            self.shrink(max(1 - self.DECREASE * excess, 1 - self.MOST_DECREASE), now_ns)

    def lost(self, now_ns: int) -> None:
        """Shrink by the most, once for a round trip."""
        self.timeouts = 0
        self.shrink(1 - self.MOST_DECREASE, now_ns)

    def timed_out(self, now_ns: int) -> None:
        """Shrink as after a loss; after several timeouts in a row, to the least window."""
        self.timeouts += 1
        if self.timeouts < self.RESET_TIMEOUTS:
            self.shrink(1 - self.MOST_DECREASE, now_ns)
        else:
            self.decreased_ns = now_ns
            self.resize(self.LEAST_WINDOW)

    def shrink(self, factor: float, now_ns: int) -> None:
        """Shrink, unless that was less than a round trip ago; pace by the last round trip."""
        is_due = now_ns - self.decreased_ns >= self.round_trip_ns
        if is_due:
            self.decreased_ns = now_ns
        self.resize(self.size * (factor if is_due else 1))

    def resize(self, size: float) -> None:
        """Set the size; below a packet, packets leave at intervals longer than a round trip."""
        self.size = min(self.most, max(self.LEAST_WINDOW, size))
        self.window = max(1.0, self.size)
        paced = self.size < 1 and self.round_trip_ns > 0
        self.rate_bps = self.size * self.packet_bits / (self.round_trip_ns / 1e9) if paced else inf
