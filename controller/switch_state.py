"""What a connected switch has installed, as far as it has said so or confirmed it."""

from collections.abc import Iterable
from typing import Any

from ryu.lib import hub

from controller import openflow
from controller.desired import Rule


class SwitchState:
    """One connection of a switch; a new connection begins anew."""

    def __init__(self, datapath: Any) -> None:
        self.datapath = datapath
        self.unreported = {"ports", "groups", "rules"}
        self.rules: set[Rule] = set()
        self.groups: frozenset[tuple[int, openflow.Buckets]] = frozenset()
        self.awaited = 0
        self.done = hub.Event()

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
