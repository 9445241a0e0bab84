"""Transfers outside collectives, for measurements of paths and of the machine."""

from collections.abc import Iterable
from itertools import count

from model.workload.transfers.columns import Transfer

PING_BYTES = 8


def ping_pong(rank_a: int, rank_b: int, rounds: int) -> tuple[Transfer, ...]:
    """Return transfers of 8 bytes between two ranks in turn, to measure an idle path's latency."""
    ranks = rank_a, rank_b
    return tuple(
        Transfer(
            id=number,
            source=ranks[number % 2],
            destination=ranks[1 - number % 2],
            size_bytes=PING_BYTES,
            chunks=(),
            after=(number - 1,) if number else (),
        )
        for number in range(2 * rounds)
    )


def streams(flows: Iterable[tuple[int, int, int]], rounds: int = 1) -> tuple[Transfer, ...]:
    """Repeat each flow (source, destination, bytes) `rounds` times, each after the one before.

    A transfer starts when its predecessor is confirmed. Numbers follow the order of the flows.
    """
    return tuple(
        Transfer(number, *flow, chunks=(), after=(number - 1,) if number > first else ())
        for first, flow in zip(count(0, rounds), flows)
        for number in range(first, first + rounds)
    )
