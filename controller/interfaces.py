"""What the reconciler is handed: switches, host routes, link probes, the journal, and time.

The real ones are in `southbound/`, `detection/` and `app.py`; tests hand in their own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from controller.forwarding.planner import Route, Rule
from model.fabric.topology import Topology


class Signal(Protocol):
    """An event that one task waits for and others set, as in `threading.Event`."""

    def set(self) -> None:
        """Wake whoever waits."""

    def clear(self) -> None:
        """Let the next wait wait again."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for at most `timeout` seconds; return whether it was set."""


class Switch(Protocol):
    """One connection of a switch: its rules, as reported or sent, and the barriers not answered."""

    @property
    def unreported(self) -> set[str]:
        """The parts of its state that it was asked for and has not reported yet."""

    @property
    def rules(self) -> frozenset[Rule]:
        """The rules that it has."""

    @property
    def awaited(self) -> int:
        """How many barriers it has not answered."""

    @property
    def done(self) -> Signal:
        """Is set with each barrier that it answers, and when its connection ends."""

    def missing(self, wanted: frozenset[Rule]) -> tuple[int, int]:
        """How many entries are to be added and to be removed."""

    def install(self, wanted: frozenset[Rule], generation: int) -> None:
        """Send the difference to the wanted rules, additions first, and a barrier."""


class ProxyRoutes(Protocol):
    """The host routes of one proxy."""

    @property
    def installed(self) -> frozenset[Route]:
        """The routes that it has."""

    def reconcile(self, desired: frozenset[Route]) -> tuple[int, int]:
        """Make its routes the desired ones; return how many were added and removed."""

    def close(self) -> None:
        """Let go of the proxy's namespace."""


class Probes(Protocol):
    """The probes of all links."""

    @property
    def settled(self) -> bool:
        """Whether a link that fails silently has been found by now."""

    def watch(self, topology: Topology) -> None:
        """Probe the links of this topology from now on."""


class Log(Protocol):
    """Takes events with their facts."""

    def write(self, event: str, **facts: object) -> None:
        """Append one event."""


@dataclass(frozen=True)
class Clock:
    """Time in seconds, and the waits of the task."""

    now_s: Callable[[], float]
    sleep: Callable[[float], None]
    changed: Signal
