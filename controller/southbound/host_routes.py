"""Host routes of the proxies: one netlink socket in each proxy's namespace."""

from controller.forwarding.diff import difference, vacated
from controller.forwarding.planner import Route
from controller.southbound.route_messages import Netlink
from linux.network.namespaces import namespace_of


class HostRoutes:
    """The routes of one proxy, read once at the start: nobody else changes our routes.

    `timeout_s` is the least retransmission timeout of TCP on them, in seconds.
    """

    def __init__(self, process_id: int, timeout_s: float) -> None:
        self._timeout_ms = round(timeout_s * 1000)
        with namespace_of(process_id):
            self._netlink = Netlink()
        self._index = self._interfaces()
        self.installed = self._netlink.routes({index: name for name, index in self._index.items()})

    def reconcile(self, desired: frozenset[Route]) -> tuple[int, int]:
        """Change the routes to the desired ones; return how many were added and removed."""
        if desired is self.installed:
            return 0, 0
        change = difference(self.installed, desired)
        removals = vacated(change)
        # The proxy may have got its links after the interfaces were last read.
        if not {route.interface for route in change.additions} - {""} <= self._index.keys():
            self._index = self._interfaces()
        self._netlink.change(change.additions, removals, self._index, self._timeout_ms)
        self.installed = desired
        return len(change.additions), len(removals)

    def _interfaces(self) -> dict[str, int]:
        return {name: index for name, (index, _) in self._netlink.interfaces().items()}

    def close(self) -> None:
        """Release the proxy's namespace."""
        self._netlink.close()
