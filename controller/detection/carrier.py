"""Which interfaces of the current namespace are up, from kernel notifications (rtnetlink(7))."""

from collections.abc import Iterable, Iterator

from controller.southbound.route_messages import RTM_NEWLINK, RTNLGRP_LINK, GroupReader, link_of
from linux.network.netlink import Message

# An interface's name, and whether it is up (RFC 2863).
Carrier = tuple[str, bool]


class LinkCarriers(GroupReader):
    """Reports interfaces that appear, disappear, and gain or lose carrier."""

    def __init__(self) -> None:
        super().__init__(RTNLGRP_LINK)
        self._known: frozenset[str] = frozenset()

    def present(self) -> list[Carrier]:
        """All interfaces; those that have disappeared are reported as down."""
        found = {name: up for name, (_, up) in self._reader.interfaces().items()}
        gone = self._known - found.keys()
        self._known = frozenset(found)
        return [*found.items(), *((name, False) for name in gone)]

    def changed(self) -> list[Carrier]:
        """Wait for notifications; return the changed interfaces, or all if some were lost."""
        notified = self._group.notifications()
        if notified is None:
            return self.present()
        changes = list(_carriers(notified))
        self._known |= {name for name, _ in changes}
        return changes


def _carriers(notified: Iterable[Message]) -> Iterator[Carrier]:
    for kind, payload in notified:
        name, _, up = link_of(payload)
        yield name, up and kind == RTM_NEWLINK
