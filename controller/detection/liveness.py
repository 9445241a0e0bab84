"""Which links are usable, from the carrier at their ends and from link probes.

Pure: callers pass the time. A failed link is unusable at once. A link that returns is usable only
after a hold-down, doubled for each further failure within `FLAP_WINDOW_S`: a flapping link would
otherwise take its traffic down with every flap.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from model.fabric.link_probes import LOST_PROBES

HOLD_DOWN_S = 0.1
LONGEST_HOLD_DOWN_S = 2.0
FLAP_WINDOW_S = 10.0


@dataclass
class LinkState:
    """Carrier, lost probes and failure times of one link."""

    lost_carrier: set[str] = field(default_factory=set)
    misses: dict[str, int] = field(default_factory=dict)
    failures_s: list[float] = field(default_factory=list)
    good_since_s: float | None = float("-inf")

    def works(self) -> bool:
        """Whether both ends have carrier and neither direction loses its probes."""
        return not self.lost_carrier and all(n < LOST_PROBES for n in self.misses.values())

    def update(self, now_s: float) -> None:
        """Record the time if the link has just failed or just started to work again."""
        if not self.works():
            if self.good_since_s is not None:
                recent = [moment for moment in self.failures_s if moment > now_s - FLAP_WINDOW_S]
                self.failures_s = [*recent, now_s]
            self.good_since_s = None
        elif self.good_since_s is None:
            self.good_since_s = now_s

    def usable_from_s(self) -> float:
        """Time at which the hold-down of a working link ends; infinity for a failed link."""
        if self.good_since_s is None:
            return float("inf")
        if not self.failures_s:
            return self.good_since_s
        hold_down_s = HOLD_DOWN_S * 2.0 ** (len(self.failures_s) - 1)
        return self.good_since_s + min(hold_down_s, LONGEST_HOLD_DOWN_S)


class Liveness:
    """The states of all links, by a key of the caller's choice."""

    def __init__(self) -> None:
        self._links: defaultdict[str, LinkState] = defaultdict(LinkState)

    def carrier(self, link: str, end: str, up: bool, now_s: float) -> None:
        """Record whether one end of a link has carrier."""
        state = self._links[link]
        if up:
            state.lost_carrier.discard(end)
        else:
            state.lost_carrier.add(end)
        state.update(now_s)

    def probed(self, link: str, sender: str, arrived: bool, now_s: float) -> None:
        """Record whether the last probe of one direction has arrived."""
        state = self._links[link]
        state.misses[sender] = 0 if arrived else state.misses.get(sender, 0) + 1
        state.update(now_s)

    def unusable(self, now_s: float) -> frozenset[str]:
        """The links that must not be used: failed, or in hold-down."""
        return frozenset(
            link for link, state in self._links.items() if state.usable_from_s() > now_s
        )

    def has_gray_failure(self, link: str) -> bool:
        """Whether a link has a gray failure: it fails although its ends have carrier."""
        state = self._links[link]
        return not state.lost_carrier and not state.works()
