"""Convert a schedule to programs: the sends and receives of each rank, with its peers."""

from collections.abc import Iterable, Mapping
from typing import Any

from model.workload.collective import EVERYONE, contributor, initial_chunks, sliced, wanted_chunks
from model.workload.schedule import Schedule, Steps
from model.workload.transfers import Transfer
from traffic_gen.workloads.collectives import ELEMENT_BYTES

Program = dict[str, Any]


def programs(
    schedule: Steps, addresses: Mapping[tuple[int, int], str], *, check_data: bool
) -> dict[int, Program]:
    """Return the program of each rank for a schedule (see `programs_of`).

    With `check_data`, ranks send real numbers and check the collective's result; other steps have
    none.
    """
    if not isinstance(schedule, Schedule):
        return programs_of(range(schedule.gpus), schedule.transfers, addresses)
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
        built[source]["peers"][destination] = addresses[source, destination]
        built[destination]["receives"].append(
            (transfer.id, source, transfer.size_bytes, transfer.ready, chunks, transfer.reduce)
        )
    return built


def _data_check(schedule: Schedule, rank: int) -> dict[str, Any]:
    """Return a rank's initial chunks, and the ranks that each of its final chunks must sum up."""
    collective, gpus = schedule.collective, schedule.gpus
    slices = schedule.slices
    chunks = sliced(wanted_chunks(collective, gpus, rank), slices)
    contributors = contributor(collective, gpus, chunks // slices).tolist()
    return {
        "elements": schedule.chunk_bytes // ELEMENT_BYTES,
        "initial": sliced(initial_chunks(collective, gpus, rank), slices).tolist(),
        "expected": [
            (chunk, list(range(gpus)) if only == EVERYONE else [only])
            for chunk, only in zip(chunks.tolist(), contributors, strict=True)
        ],
    }
