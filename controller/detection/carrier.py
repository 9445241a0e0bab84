"""Which interfaces of the present namespace work, as the kernel tells (rtnetlink(7))."""

from collections.abc import Iterable, Iterator

from controller.southbound.route_messages import (
    RTM_NEWLINK,
    RTNLGRP_LINK,
    GroupReader,
    Message,
    link_of,
)

# An interface, and whether it works (RFC 2863).
Carrier = tuple[str, bool]


class LinkCarriers(GroupReader):
    """Interfaces that come, go, and get and lose carrier."""

    def __init__(self) -> None:
        super().__init__(RTNLGRP_LINK)
        self._known: frozenset[str] = frozenset()

    def present(self) -> list[Carrier]:
        """All interfaces; those that have gone do not work."""
        found = {name: up for name, (_, up) in self._reader.interfaces().items()}
        gone = self._known - found.keys()
        self._known = frozenset(found)
        return [*found.items(), *((name, False) for name in gone)]

    def changed(self) -> list[Carrier]:
        """What has changed meanwhile; waits for the first."""
        news = self._news.news()
        if news is None:
            return self.present()
        changes = list(_carriers(news))
        self._known |= {name for name, _ in changes}
        return changes


def _carriers(news: Iterable[Message]) -> Iterator[Carrier]:
    for kind, payload in news:
        name, _, up = link_of(payload)
        yield name, up and kind == RTM_NEWLINK
