"""Interfaces that the reconciler uses: switches, host routes, link probes, journal, clock.

Implementations are in `southbound/`, `detection/`, `journal.py` and `app.py`; tests pass their own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from controller.planner import Route, Rule
from model.fabric.topology import Topology


class Signal(Protocol):
    """An event that one task waits for and others set, as in `threading.Event`."""

    def set(self) -> None:
        """Wake all waiting tasks."""

    def clear(self) -> None:
        """Reset the signal, so that the next wait blocks."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for at most `timeout` seconds; return whether the signal was set."""


class Switch(Protocol):
    """One connection of a switch: its rules, as reported or sent, and its unanswered barriers.

    `unreported` are the parts of its state that were requested and are not yet reported; `awaited`
    is the number of barriers that it has not answered.
    """

    unreported: set[str]
    rules: frozenset[Rule]
    awaited: int

    @property
    def done(self) -> Signal:
        """Signal that is set by each barrier reply, and when the connection ends."""

    def missing(self, wanted: frozenset[Rule]) -> tuple[int, int]:
        """Numbers of entries to add and to remove."""

    def install(self, wanted: frozenset[Rule], generation: int) -> None:
        """Send the difference to the wanted rules, additions first, and a barrier."""


class ProxyRoutes(Protocol):
    """The host routes of one proxy: those that are `installed`."""

    installed: frozenset[Route]

    def reconcile(self, desired: frozenset[Route]) -> tuple[int, int]:
        """Change the routes to the desired ones; return how many were added and removed."""

    def close(self) -> None:
        """Release the proxy's namespace."""


class Probes(Protocol):
    """The probes of all links."""

    @property
    def converged(self) -> bool:
        """Whether enough rounds have passed to detect a gray failure."""

    def watch(self, topology: Topology) -> None:
        """Probe the links of this topology from now on."""


class Log(Protocol):
    """A log of events with their facts."""

    def write(self, event: str, **facts: object) -> None:
        """Append one event."""


@dataclass(frozen=True)
class Clock:
    """Time in seconds, a sleep, and the signal that wakes the reconciler."""

    now_s: Callable[[], float]
    sleep: Callable[[float], None]
    changed: Signal
