"""pyroute2's sockets for rtnetlink(7), with requests that no signal interrupts.

pyroute2 runs a loop of asyncio for each request. An exception of a signal handler may be swallowed
there, or leave the loop in a state in which the next request fails.
"""

from collections.abc import Callable, Iterator
from typing import Any, Self

from pyroute2 import IPBatch, IPRoute

from linux.processes.interruptions import uninterrupted


class RouteSocket:
    """A socket in the present network namespace, with the requests of pyroute2's `IPRoute`.

    Answers that are iterators in pyroute2 are tuples.
    """

    kind = IPRoute

    def __init__(self) -> None:
        with uninterrupted():
            self._socket = self.kind()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._socket, name)
        if callable(attribute):
            attribute = _whole(attribute)
            setattr(self, name, attribute)  # thousands of requests come, and this is asked once
        return attribute


class RouteBatch(RouteSocket):
    """A collection of encoded requests, which are not sent: pyroute2's `IPBatch`."""

    kind = IPBatch


def _whole(request: Callable[..., Any]) -> Callable[..., Any]:
    def answered(*args: Any, **named: Any) -> Any:
        with uninterrupted():
            answer = request(*args, **named)
            return tuple(answer) if isinstance(answer, Iterator) else answer

    return answered
