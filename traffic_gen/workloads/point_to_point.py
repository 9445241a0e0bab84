"""Transfers outside collectives, for measurements of the machine."""

from collections.abc import Iterable
from itertools import count

from model.workload.transfers.columns import Transfer


def streams(flows: Iterable[tuple[int, int, int]], rounds: int = 1) -> tuple[Transfer, ...]:
    """Repeat each flow (source, destination, bytes) `rounds` times, each after the one before.

    A transfer starts when its predecessor is confirmed. Numbers follow the order of the flows.
    """
    return tuple(
        Transfer(number, *flow, chunks=(), after=(number - 1,) if number > first else ())
        for first, flow in zip(count(0, rounds), flows)
        for number in range(first, first + rounds)
    )
