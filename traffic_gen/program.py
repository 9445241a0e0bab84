"""A schedule as programs: for each rank what it sends, what it receives, and from whom to whom."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Stream:
    """Bytes that one rank sends to another."""

    source: int
    destination: int
    size_bytes: int


def streams(
    flows: Iterable[Stream], addresses: Mapping[tuple[int, int], str], rounds: int = 1
) -> dict[int, Program]:
    """Every stream as so many transfers, each when the one before is confirmed.

    They are numbered in the order of the streams.
    """
    built: dict[int, Program] = defaultdict(_nothing)
    for place, flow in enumerate(flows):
        source, destination = built[flow.source], built[flow.destination]
        source["peers"][flow.destination] = addresses[flow.source, flow.destination]
        for number in range(place * rounds, (place + 1) * rounds):
            after = (number - 1,) if number % rounds else ()
            sent = (number, flow.destination, flow.size_bytes, after, False, ())
            source["sends"].append(sent)
            received = (number, flow.source, flow.size_bytes, None, (), False)
            destination["receives"].append(received)
    return {rank: {**program, "rank": rank} for rank, program in built.items()}


def _nothing() -> Program:
    return {"do": "load", "peers": {}, "sends": [], "receives": []}


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
