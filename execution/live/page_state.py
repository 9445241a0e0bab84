"""The content of the page, as JSON objects: the fabric, the slow state, a frame a reading."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from execution.live.link_reader import Reading
from results.verdicts.fidelity import SATURATED_SHARE

# Most lines of the journal, and of commands' answers, that the page keeps.
KEPT_LINES = 40
# Most faults whose blackouts the page keeps.
KEPT_BLACKOUTS = 6
# Idle share of the cores below which the page warns; it fails at the verdicts' limit.
SCARCE_SHARE = 0.2
# Events of the controller's journal that the page shows, with the fact to show.
SHOWN_EVENTS: Mapping[str, str] = {
    "connected": "switch",
    "disconnected": "switch",
    "detected": "link",
    "died": "proxy",
    "computed": "failed",
    "confirmed": "",
    "settled": "",
    "ready": "",
    "error": "where",
}
# States of a link that the controller detects; the fact has the source of the detection.
DETECTED = ("failed", "usable", "degraded", "drained")

# Fields that are lists, by the name of an addition in a message.
ADDED = {"said": "said", "verdict": "verdicts", "blackout": "blackouts"}
# Fields that are no part of the slow state: the versions, and the fabric.
NOT_SLOW = ("version", "fabric_version", "fabric")


@dataclass
class PageState:
    """The present state; `version` grows with each change of the slow part."""

    version: int = 0
    fabric_version: int = 0
    fabric: dict[str, Any] | None = None
    step: str = ""
    executions: int = 0
    done: int = 0
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    degraded: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    workloads: list[str] = field(default_factory=list)
    interactive: bool = False
    ended: bool = False
    blackouts: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=KEPT_BLACKOUTS))
    said: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    journal: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    # The moment of the first event that was shown, from which the page counts.
    journal_begun_ns: int | None = None

    def show(self, fabric: dict[str, Any] | None) -> None:
        """Show another fabric, or none."""
        self.fabric = fabric
        self.fabric_version += 1
        self.broken, self.degraded, self.failed = {}, {}, []
        self.blackouts.clear()
        self.journal.clear()
        self.journal_begun_ns = None
        self.version += 1

    def note(self, changes: Mapping[str, Any]) -> None:
        """Set fields by their names; append the value of a name in `ADDED` to its list."""
        for name, value in changes.items():
            if name in ADDED:
                getattr(self, ADDED[name]).append(value)
            else:
                setattr(self, name, value)
        self.version += 1

    def add_events(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Add the journal's events that the page shows; take over failed links, and rates."""
        for event in events:
            if event["event"] == "computed":
                self.failed = list(event["failed"])
            # A session tells the rates itself, without a controller, too.
            if "rate_bps" in event and not self.interactive:
                if "degraded" in event:
                    self.degraded[event["link"]] = event["rate_bps"]
                else:
                    self.degraded.pop(event["link"], None)
            if event["event"] in SHOWN_EVENTS:
                if self.journal_begun_ns is None:
                    self.journal_begun_ns = event["ns"]
                self.journal.append({"ns": event["ns"], "text": event_line(event)})
                self.version += 1

    def rates_bps(self) -> list[int]:
        """The present rate of each direction of each link."""
        links = self.fabric["links"] if self.fabric else []
        rates = (self.degraded.get(link["name"], link["rate_bps"]) for link in links)
        return [rate for rate in rates for _ in range(2)]

    def state(self) -> dict[str, Any]:
        """The slow part of the page's content."""
        slow = {name: value for name, value in vars(self).items() if name not in NOT_SLOW}
        return {key: list(one) if isinstance(one, deque) else one for key, one in slow.items()}


def event_line(event: Mapping[str, Any]) -> str:
    """Describe an event of the controller's journal in a line."""
    value = event.get(SHOWN_EVENTS[event["event"]], "")
    if event["event"] == "computed":
        return f"computed, failed links: {len(value)}"
    detected = (f"{name} ({event[name]})" for name in DETECTED if name in event)
    return " ".join(filter(None, (event["event"], str(value), *detected)))


def frame(before: Reading, now: Reading, rates_bps: Sequence[int], cores: int) -> dict[str, Any]:
    """The frame of two readings: per mille of each direction's `rates_bps`, queues, cores."""
    seconds = max(now.s - before.s, 1e-9)
    use = [
        round(8000 * (new - old) / seconds / rate)
        for new, old, rate in zip(now.carried, before.carried, rates_bps, strict=True)
    ]
    idle = (now.idle_s - before.idle_s) / (seconds * cores)
    stolen = (now.steal_s - before.steal_s) / (seconds * cores)
    return {
        "use": use,
        "queued": now.queued,
        "carried": sum(now.carried),
        "bps": round(8 * (sum(now.carried) - sum(before.carried)) / seconds),
        "idle": round(min(1.0, idle), 3),
        "stolen": round(stolen, 3),
        "dropped": now.dropped,
        "light": cpu_verdict(idle),
    }


def cpu_verdict(idle: float) -> str:
    """Map idle CPU share to pass, warn or fail."""
    if idle < SATURATED_SHARE:
        return "fail"
    return "warn" if idle < SCARCE_SHARE else "pass"
