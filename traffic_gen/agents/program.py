"""Convert a schedule to programs: the sends and receives of each rank, with its peers."""

from collections.abc import Iterable, Mapping
from typing import Any

from model.workload.schedule import Schedule, Steps
from model.workload.transfers.collective import EVERYONE, Demand
from model.workload.transfers.columns import Transfer
from traffic_gen.workloads.sized_collective import ELEMENT_BYTES

Program = dict[str, Any]


def programs(
    schedule: Steps, addresses: Mapping[tuple[int, int], str], *, check_data: bool
) -> dict[int, Program]:
    """Return the program of each rank for a schedule (see `programs_of`).

    With `check_data`, the ranks of a collective send real numbers, and check its result. Other
    workloads have no result to check.
    """
    if not isinstance(schedule, Schedule):
        return programs_of(range(schedule.gpus), schedule.transfers, addresses)
    built = programs_of(range(schedule.gpus), schedule.transfers, addresses, real=check_data)
    for rank, program in built.items() if check_data else ():
        program["check"] = _data_check(schedule.demand, rank)
    return built


def programs_of(
    ranks: Iterable[int],
    transfers: Iterable[Transfer],
    addresses: Mapping[tuple[int, int], str],
    *,
    real: bool = False,
) -> dict[int, Program]:
    """Return a program per rank; `addresses` maps (source, destination) to the address to use.

    A step of compute is a send of a rank to itself. With `real` data, programs also list the
    chunks that each transfer carries.
    """
    built: dict[int, Program] = {
        rank: {"do": "load", "rank": rank, "peers": {}, "sends": [], "receives": []}
        for rank in ranks
    }
    for transfer in transfers:
        source, destination = transfer.source, transfer.destination
        chunks = transfer.chunks if real else ()
        built[source]["sends"].append(
            (
                transfer.id,
                destination,
                transfer.size_bytes,
                transfer.after,
                transfer.ready is not None,
                chunks,
                transfer.compute_ns,
            )
        )
        if transfer.is_compute:
            continue
        peers = built[source]["peers"]
        if destination not in peers:
            peers[destination] = addresses[source, destination]
        built[destination]["receives"].append(
            (transfer.id, source, transfer.size_bytes, transfer.ready, chunks, transfer.reduce)
        )
    return built


def _data_check(demand: Demand, rank: int) -> dict[str, Any]:
    """Return a rank's initial chunks, and the ranks whose sum each of its final chunks must be.

    `elements` has the length of every chunk.
    """
    held, wanted = demand.held.at(rank), demand.wanted.at(rank)
    expected = zip(
        demand.wanted.chunks[wanted].tolist(), demand.contributor[wanted].tolist(), strict=True
    )
    return {
        "elements": (demand.chunk_bytes // ELEMENT_BYTES).tolist(),
        "initial": demand.held.chunks[held].tolist(),
        "expected": [
            (chunk, demand.holders.at(chunk).tolist() if only == EVERYONE else [only])
            for chunk, only in expected
        ],
    }
