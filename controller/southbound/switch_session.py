"""What a connected switch has installed, as far as it has said so or confirmed it."""

from collections.abc import Iterable
from typing import Any

from controller.forwarding.diff import difference, vacated
from controller.forwarding.planner import Rule
from controller.interfaces import Signal
from controller.southbound import openflow


class SwitchSession:
    """One connection of a switch; a new connection begins anew."""

    def __init__(self, datapath: Any, done: Signal) -> None:
        self.datapath = datapath
        self.unreported = {"ports", "groups", "rules"}
        self.rules: frozenset[Rule] = frozenset()
        self.groups: frozenset[openflow.Group] = frozenset()
        self.awaited = 0
        self.done = done

    def missing(self, wanted: frozenset[Rule]) -> tuple[int, int]:
        """How many entries are to be added and to be removed, rules and groups."""
        groups = openflow.wanted_groups(wanted)
        rules, others = difference(self.rules, wanted), difference(self.groups, groups)
        added = len(rules.additions) + len(others.additions)
        return added, len(vacated(rules)) + len(openflow.vacated_groups(others))

    def install(self, wanted: frozenset[Rule], generation: int) -> None:
        """Send what makes the rules the wanted ones, additions first."""
        groups = openflow.wanted_groups(wanted)
        rules, others = difference(self.rules, wanted), difference(self.groups, groups)
        self.send(
            [
                *openflow.additions(self.datapath, rules, others, generation),
                *openflow.removals(self.datapath, rules, others),
            ]
        )
        self.rules, self.groups = wanted, groups

    def send(self, messages: Iterable[Any]) -> None:
        """Send messages, and a barrier behind them; nothing if there are none."""
        messages = list(messages)
        if messages:
            for message in (*messages, openflow.barrier(self.datapath)):
                self.datapath.send_msg(message)
            self.awaited += 1

    def confirmed(self) -> None:
        """A barrier has been answered."""
        self.awaited -= 1
        self.done.set()
