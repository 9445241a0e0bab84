"""A schedule as programs: for each rank what it sends, what it receives, and from whom to whom."""

from collections.abc import Mapping
from typing import Any

from model.schedule import Schedule, initial_chunks, wanted
from traffic_gen.collectives import ELEMENT_BYTES

Program = dict[str, Any]


def programs(
    schedule: Schedule, addresses: Mapping[tuple[int, int], str], *, verify: bool
) -> list[Program]:
    """One program a rank. `addresses` gives, for (source, destination), where the source connects.

    With `verify`, ranks send real numbers and check the collective's result.
    """
    built: list[Program] = [
        {"do": "load", "rank": rank, "peers": {}, "sends": [], "receives": []}
        for rank in range(schedule.gpus)
    ]
    for transfer in schedule.transfers:
        source, destination = transfer.source, transfer.destination
        chunks = transfer.chunks if verify else ()
        built[source]["peers"][destination] = addresses[source, destination]
        built[source]["sends"].append(
            (
                transfer.id,
                destination,
                transfer.size_bytes,
                transfer.after,
                transfer.clear is not None,
                chunks,
            )
        )
        built[destination]["receives"].append(
            (transfer.id, source, transfer.size_bytes, transfer.clear, chunks, transfer.reduce)
        )
    if verify:
        for rank, program in enumerate(built):
            program["verify"] = _verification(schedule, rank)
    return built


def ping_pong(rank_a: int, rank_b: int, addresses: tuple[str, str], rounds: int) -> list[Program]:
    """Two ranks that send eight bytes to and fro: what a path takes when nothing else moves.

    `addresses` are where a reaches b, and where b reaches a.
    """
    ranks = rank_a, rank_b
    built: list[Program] = [
        {"do": "load", "rank": ranks[i], "peers": {ranks[1 - i]: addresses[i]}}
        | {"sends": [], "receives": []}
        for i in range(2)
    ]
    for number in range(2 * rounds):
        sender = number % 2
        after = (number - 1,) if number else ()
        entry = (number, ranks[1 - sender], ELEMENT_BYTES, after, False, ())
        built[sender]["sends"].append(entry)
        built[1 - sender]["receives"].append(
            (number, ranks[sender], ELEMENT_BYTES, None, (), False)
        )
    return built


def streams(
    pairs: Mapping[int, int],
    addresses: Mapping[tuple[int, int], str],
    size_bytes: int,
    rounds: int,
) -> dict[int, Program]:
    """Every rank sends to its partner so many transfers, each when the last is confirmed.

    `pairs` has the partner of every rank; who is a partner has a partner, too.
    """
    built: dict[int, Program] = {
        rank: {"do": "load", "rank": rank, "peers": {}, "sends": [], "receives": []}
        for rank in pairs
    }
    for place, (rank, partner) in enumerate(pairs.items()):
        built[rank]["peers"][partner] = addresses[rank, partner]
        for number in range(place * rounds, (place + 1) * rounds):
            after = (number - 1,) if number % rounds else ()
            built[rank]["sends"].append((number, partner, size_bytes, after, False, ()))
            built[partner]["receives"].append((number, rank, size_bytes, None, (), False))
    return built


def _verification(schedule: Schedule, rank: int) -> dict[str, Any]:
    """What a rank starts with, and whose numbers it must hold the sum of in the end."""
    expected = wanted(schedule.collective, schedule.gpus, rank)
    return {
        "elements": schedule.chunk_bytes // ELEMENT_BYTES,
        "initial": list(initial_chunks(schedule.collective, schedule.gpus, rank)),
        "expected": [
            (chunk, [r for r in range(schedule.gpus) if contributions >> r & 1])
            for chunk, contributions in expected.items()
        ],
    }
