"""Pauses: spans of time in which a core ran none of our processes, even runnable ones.

The hypervisor gave the core to another guest, or a process of higher priority than ours had it.
A watcher on each core records them (`testbed/instruments/pauses.py`). Times are nanoseconds of
CLOCK_MONOTONIC.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

NS_PER_S = 1e9
# A wake-up later than this counts as a pause. Our own load makes one in a thousand that late.
SHORTEST_PAUSE_S = 0.001


@dataclass(frozen=True, order=True)
class Pause:
    """A core ran none of our processes from `begin_ns` to `end_ns`."""

    begin_ns: int
    end_ns: int
    core: int

    @property
    def length_s(self) -> float:
        """Its length in seconds."""
        return (self.end_ns - self.begin_ns) / NS_PER_S


@dataclass(frozen=True)
class PauseLog:
    """All pauses of `cores` cores, in order, from `begin_ns` to `end_ns`, while all were watched.

    Without watchers, or if one died, the watched span is short or empty.
    """

    cores: int
    begin_ns: int
    end_ns: int
    pauses: tuple[Pause, ...]

    def covers(self, begin_ns: int, end_ns: int) -> bool:
        """Whether all of a span was watched, on all cores."""
        return self.begin_ns <= begin_ns and end_ns <= self.end_ns

    def during(self, begin_ns: int, end_ns: int) -> "PauseLog":
        """Return the log of a span; pauses that extend beyond it are cut."""
        cut = (
            Pause(max(pause.begin_ns, begin_ns), min(pause.end_ns, end_ns), pause.core)
            for pause in self.pauses
        )
        return PauseLog(
            cores=self.cores,
            begin_ns=max(self.begin_ns, begin_ns),
            end_ns=min(self.end_ns, end_ns),
            pauses=tuple(pause for pause in cut if pause.begin_ns < pause.end_ns),
        )

    def of_core(self, core: int) -> "PauseLog":
        """The pauses of one core."""
        its = tuple(pause for pause in self.pauses if pause.core == core)
        return PauseLog(1, self.begin_ns, self.end_ns, its)

    @property
    def seconds(self) -> float:
        """Length of the watched span in seconds."""
        return max(0, self.end_ns - self.begin_ns) / NS_PER_S

    @property
    def total_s(self) -> float:
        """The sum of all pauses of all cores, in seconds."""
        return sum(pause.length_s for pause in self.pauses)

    @property
    def lost(self) -> float:
        """Fraction of all cores' time lost to pauses."""
        return self.total_s / (self.seconds * self.cores) if self.seconds else 0.0

    def beyond_s(self, depth_s: float) -> float:
        """Sum in seconds, over all pauses of all cores, of the time beyond `depth_s`.

        A token bucket makes up for pauses up to its depth only.
        """
        return sum(max(0.0, pause.length_s - depth_s) for pause in self.pauses)

    @property
    def longest_s(self) -> float:
        """The longest pause, in seconds."""
        return max((pause.length_s for pause in self.pauses), default=0.0)

    def stretches(
        self, begin_ns: int, end_ns: int, longer_than_s: float, catch_up_s: float
    ) -> Iterator[tuple[int, int]]:
        """Yield the parts of a span between pauses longer than `longer_than_s`, in order.

        Each pause is extended by `catch_up_s`, in which delayed frames catch up.
        """
        for pause in self.pauses:
            over_ns = pause.end_ns + round(catch_up_s * NS_PER_S)
            if pause.length_s > longer_than_s and over_ns > begin_ns:
                if pause.begin_ns > begin_ns:
                    yield begin_ns, min(pause.begin_ns, end_ns)
                begin_ns = over_ns
                if begin_ns >= end_ns:
                    return
        yield begin_ns, end_ns


NOT_WATCHED = PauseLog(1, 0, 0, ())


@dataclass(frozen=True)
class PauseProfile:
    """Pauses of a machine: the share of time that they take, their frequency and their lengths.

    `lost` is a fraction of all cores' time; `per_s` counts pauses per second and core. Lengths are
    in seconds: half of the lost time is in pauses up to `half_s`, 95 % in those up to `most_s`.
    """

    lost: float
    per_s: float
    half_s: float
    most_s: float
    longest_s: float

    def __str__(self) -> str:
        """Describe the profile in a sentence."""
        kind = next(word for word, lost in _KINDS if self.lost <= lost)
        if not self.per_s:
            return f"This machine is {kind}: no pause of a core was longer than 1 ms."
        return (
            f"This machine is {kind}: {self.lost:.1%} of its cores' time is taken from it, in "
            f"{self.per_s:.2g} pauses a second and core of up to {self.longest_s * 1e3:.3g} ms."
        )


# The kinds of machines, each with its largest fraction of lost time.
_KINDS = (("quiet", 0.01), ("a little noisy", 0.05), ("noisy", 0.2), ("very noisy", 1.0))


def profile(log: PauseLog) -> PauseProfile:
    """Return the profile of a log of pauses."""
    lengths_s = sorted(pause.length_s for pause in log.pauses)
    return PauseProfile(
        lost=min(1.0, log.lost),
        per_s=len(lengths_s) / (log.seconds * log.cores) if log.seconds else 0.0,
        half_s=_within(lengths_s, 0.5),
        most_s=_within(lengths_s, 0.95),
        longest_s=log.longest_s,
    )


def _within(lengths_s: Sequence[float], share: float) -> float:
    """Length in seconds up to which pauses hold `share` of the lost time; 0 without pauses."""
    left_s = share * sum(lengths_s)
    for length_s in lengths_s:
        left_s -= length_s
        if left_s <= 0:
            return length_s
    return 0.0
