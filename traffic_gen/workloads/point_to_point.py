"""Transfers that are no collective's: what measurements of paths and of the machine send."""

from collections.abc import Iterable
from itertools import count

from model.workload.schedule import Transfer

PING_BYTES = 8


def ping_pong(rank_a: int, rank_b: int, rounds: int) -> tuple[Transfer, ...]:
    """Two ranks that send a few bytes to and fro: what a path takes when nothing else moves."""
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
    """Each flow (source, destination, bytes) so many times, each when the one before is confirmed.

    They are numbered in the order of the flows.
    """
    return tuple(
        Transfer(number, *flow, chunks=(), after=(number - 1,) if number > first else ())
        for first, flow in zip(count(0, rounds), flows)
        for number in range(first, first + rounds)
    )
