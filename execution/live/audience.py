"""The page as the audience of a session: it sees faults and answers, and gives commands."""

import json
import select
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

from execution.live.feed import LiveFeed
from execution.session.command_line import Audience
from execution.session.commands import Commands
from execution.session.session import FaultSeen, Session
from model.errors import RailbedError
from traffic_gen.probes.blackout import Blackout


class PageAudience(Audience):
    """Tells the page of a session, and executes the page's commands."""

    def __init__(self, feed: LiveFeed) -> None:
        self._feed = feed

    def follow(self, session: Session, commands: Commands) -> None:
        """Show the fabric and its workloads, and begin to execute the page's commands."""
        self._feed.show(session.fabric)
        workloads = list(commands.workloads)
        step = "The fabric is up, and takes commands from here and from its command line."
        self._feed.tell_long({"interactive": True, "workloads": workloads, "step": step})
        known: dict[str, Callable[[Sequence[str]], None]] = {
            "fault": commands.fault,
            "heal": commands.heal,
            "stop": commands.stop,
        }

        def execute(words: Sequence[str]) -> None:
            name, *rest = words
            try:
                if name == "run":
                    commands.run([*rest, "&"])
                else:
                    known[name](rest)
            except RailbedError as error:
                self.said(str(error))
            except Exception as error:
                self.said(f"{name}: {type(error).__name__}: {error}")

        self._feed.answer(execute)

    def changed(self, session: Session) -> None:
        """Show the faults that last, and the rates in bit/s of degraded links."""
        broken = {fault.target: fault.mode.value for fault in session.faults}
        self._feed.tell({"broken": broken, "degraded": dict(session.health.rates_bps)})

    def saw(self, seen: FaultSeen) -> None:
        """Show a fault's blackouts."""
        self._feed.tell({"blackout": blackout_message(seen)})

    def said(self, text: str) -> None:
        """Show the answer of a command: as much of its beginning as one write can carry."""
        while len(json.dumps({"said": text})) >= select.PIPE_BUF:
            text = text[: len(text) * 3 // 4] + "…"
        self._feed.tell({"said": text})


def blackout_message(seen: FaultSeen) -> dict[str, Any]:
    """Return the message of a fault: milliseconds since its begin, `None` for events not seen.

    Each pair has the begin and the end of its longest blackout; both are `None` without one.
    """
    longest_ms = seen.blackout_ms
    return {
        "fault": seen.fault.name,
        "detected_ms": seen.times.detected_ms,
        "confirmed_ms": seen.times.confirmed_ms,
        "probed": bool(seen.blackouts),
        "blackout_ms": longest_ms if longest_ms is not None and isfinite(longest_ms) else None,
        "pairs": [
            _span(name, blackout, seen.begun_ns) for name, blackout in seen.blackouts.items()
        ],
    }


def _span(name: str, blackout: Blackout | None, begun_ns: int) -> list[str | float | None]:
    moments_ns = (blackout.begin_ns, blackout.end_ns) if blackout else (None, None)
    return [name, *(None if ns is None else round((ns - begun_ns) / 1e6, 1) for ns in moments_ns)]
