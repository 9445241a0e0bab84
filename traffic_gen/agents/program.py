"""Convert a schedule to programs: the sends and receives of each rank, with its peers."""

from collections.abc import Iterable, Mapping
from typing import Any

from model.workload.schedule import Schedule, Transfer, initial_chunks, wanted
from traffic_gen.workloads.collectives import ELEMENT_BYTES

Program = dict[str, Any]


def programs(
    schedule: Schedule, addresses: Mapping[tuple[int, int], str], *, check_data: bool
) -> dict[int, Program]:
    """Return the program of each rank for a schedule (see `programs_of`).

    With `check_data`, ranks send real numbers and check the collective's result.
    """
    built = programs_of(range(schedule.gpus), schedule.transfers, addresses, real=check_data)
    for rank, program in built.items() if check_data else ():
        program["check"] = _data_check(schedule, rank)
    return built


def programs_of(
    ranks: Iterable[int],
    transfers: Iterable[Transfer],
    addresses: Mapping[tuple[int, int], str],
    *,
    real: bool = False,
) -> dict[int, Program]:
    """Return a program per rank; `addresses` maps (source, destination) to the address to use.

    With `real` data, programs also list the chunks that each transfer carries.
    """
    built: dict[int, Program] = {
        rank: {"do": "load", "rank": rank, "peers": {}, "sends": [], "receives": []}
        for rank in ranks
    }
    for transfer in transfers:
        source, destination = transfer.source, transfer.destination
        chunks = transfer.chunks if real else ()
        built[source]["peers"][destination] = addresses[source, destination]
        built[source]["sends"].append(
            (
                transfer.id,
                destination,
                transfer.size_bytes,
                transfer.after,
                transfer.ready is not None,
                chunks,
            )
        )
        built[destination]["receives"].append(
            (transfer.id, source, transfer.size_bytes, transfer.ready, chunks, transfer.reduce)
        )
    return built


def _data_check(schedule: Schedule, rank: int) -> dict[str, Any]:
    """Return a rank's initial chunks, and the ranks that each of its final chunks must sum up."""
    expected = wanted(schedule.collective, schedule.gpus, rank)
    return {
        "elements": schedule.chunk_bytes // ELEMENT_BYTES,
        "initial": list(initial_chunks(schedule.collective, schedule.gpus, rank)),
        "expected": [
            (chunk, [r for r in range(schedule.gpus) if contributions >> r & 1])
            for chunk, contributions in expected.items()
        ],
    }
