"""Rules and groups of a connected switch, as it reported them or was sent them."""

from collections.abc import Iterable
from typing import Any

from controller.forwarding.diff import Difference, difference, vacated
from controller.forwarding.planner import Rule
from controller.interfaces import Signal
from controller.southbound import openflow


class SwitchSession:
    """One connection of a switch; after a reconnect, a new session starts empty."""

    def __init__(self, datapath: Any, done: Signal) -> None:
        self.datapath = datapath
        self.unreported = {"ports", "groups", "rules"}
        self.rules: frozenset[Rule] = frozenset()
        self.groups: frozenset[openflow.Group] = frozenset()
        self.awaited = 0
        self.done = done

    def missing(self, wanted: frozenset[Rule]) -> tuple[int, int]:
        """Numbers of entries (rules and groups) to add and to remove."""
        rules, groups = self._difference(wanted)
        added = len(rules.additions) + len(groups.additions)
        return added, len(vacated(rules)) + len(openflow.vacated_groups(groups))

    def install(self, wanted: frozenset[Rule], generation: int) -> None:
        """Send the difference to the wanted rules, additions first, and a barrier."""
        rules, groups = self._difference(wanted)
        self.send(
            [
                *openflow.additions(self.datapath, rules, groups, generation),
                *openflow.removals(self.datapath, rules, groups),
            ]
        )
        self.rules, self.groups = wanted, openflow.wanted_groups(wanted)

    def _difference(
        self, wanted: frozenset[Rule]
    ) -> tuple[Difference[Rule], Difference[openflow.Group]]:
        groups = openflow.wanted_groups(wanted)
        return difference(self.rules, wanted), difference(self.groups, groups)

    def send(self, messages: Iterable[Any]) -> None:
        """Send messages followed by a barrier; send nothing if there are no messages."""
        messages = list(messages)
        if messages:
            for message in (*messages, openflow.barrier(self.datapath)):
                self.datapath.send_msg(message)
            self.awaited += 1

    def confirmed(self) -> None:
        """Record that the switch has answered a barrier."""
        self.awaited -= 1
        self.done.set()
