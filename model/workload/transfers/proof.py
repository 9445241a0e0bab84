"""Proof that the transfers of a schedule meet its demand.

The transfers are executed symbolically. Shown for each transfer: it is well-formed; its sender
holds the chunks; in any order in which real transfers may run, the deliveries of these chunks come
before it; it adds no contribution twice. In the end, every rank holds what is wanted there.
"""

from typing import NoReturn

import numpy as np

from model.arrays import Bools, Ints
from model.workload.transfers.collective import EVERYONE, Cells, Demand
from model.workload.transfers.columns import NONE, Transfers
from model.workload.transfers.contents import Contents
from model.workload.transfers.happens_before import first_unordered
from model.workload.transfers.versions import History, history_of

# A cell and a version must fit into one number, with two bits more.
NUMBER_BITS = 61


class ScheduleError(ValueError):
    """Steps do not do what their collective or other workload asks; the message says why."""


def prove(gpus: int, demand: Demand, transfers: Transfers) -> None:
    """Raise `ScheduleError` unless the transfers of these ranks meet the demand."""
    _check_form(gpus, demand, transfers)
    check_dependencies(transfers)
    chunks = len(demand.chunk_bytes)
    initial, wanted = _cells(demand.held, chunks), _cells(demand.wanted, chunks)
    versions = len(initial) + len(transfers.chunks.values) + len(wanted)
    if (gpus * chunks).bit_length() + versions.bit_length() > NUMBER_BITS:
        raise ScheduleError(f"{chunks} chunks at {gpus} ranks exceed what can be proved")
    history = history_of(transfers, chunks, initial, wanted)
    _check_order(history)
    contents = Contents(gpus, history, demand.held.ranks)
    if contents.twice != NONE:
        _refuse_move(transfers, contents.twice, "chunk {} is added twice")
    _check_postcondition(demand, history.last, contents)


def _cells(cells: Cells, chunks: int) -> Ints:
    """Return the numbers of cells."""
    return cells.ranks * chunks + cells.chunks


def _refuse(transfer: int, what: str) -> NoReturn:
    raise ScheduleError(f"transfer {transfer}: {what}")


def _refuse_move(transfers: Transfers, move: int, what: str) -> NoReturn:
    _refuse(transfers.chunks.row[move], what.format(transfers.chunks.values[move]))


def _first(wrong: Bools) -> int:
    """Return the place of the first true value, `NONE` if there is none."""
    return int(wrong.argmax()) if wrong.any() else NONE


def _is_outside(gpus: int, transfers: Transfers) -> Bools:
    """Whether each transfer has an end that is not among the ranks."""
    wrong = (transfers.source < 0) | (transfers.source >= gpus)
    wrong |= (transfers.destination < 0) | (transfers.destination >= gpus)
    return wrong


def _check_form(gpus: int, demand: Demand, transfers: Transfers) -> None:
    """Raise `ScheduleError` unless each transfer is between two ranks, and carries whole chunks."""
    if (place := _first(_is_outside(gpus, transfers))) != NONE:
        _refuse(place, f"must be between GPUs 0 to {gpus - 1}")
    if (place := _first(transfers.source == transfers.destination)) != NONE:
        _refuse(place, f"GPU {transfers.source[place]} sends to itself")
    carried, known = transfers.chunks, len(demand.chunk_bytes)
    if (move := _first((carried.values < 0) | (carried.values >= known))) != NONE:
        _refuse_move(transfers, move, f"unknown chunk {{}}; known: 0 to {known - 1}")
    if (place := _first(transfers.size_bytes != carried.sums(demand.chunk_bytes))) != NONE:
        _refuse(place, f"{transfers.size_bytes[place]} bytes differ from the sum of its chunks")


def check_steps(gpus: int, transfers: Transfers) -> None:
    """Raise `ScheduleError` for ranks that do not exist, and for compute without a duration."""
    if (place := _first(_is_outside(gpus, transfers))) != NONE:
        raise ScheduleError(
            f"step {place}: source or destination is not a rank from 0 to {gpus - 1}"
        )
    computes = transfers.is_compute
    wrong = (computes != (transfers.compute_ns > 0)) | (computes != (transfers.size_bytes == 0))
    if (place := _first(wrong)) != NONE:
        raise ScheduleError(f"step {place}: is neither a transfer nor compute")


def check_dependencies(transfers: Transfers) -> None:
    """Raise `ScheduleError` for a dependency that is later, or whose end the sender cannot see."""
    source, destination, after = transfers.source, transfers.destination, transfers.after
    if (place := _first((after.values < 0) | (after.values >= after.row))) != NONE:
        what = f"depends on {after.values[place]}, which does not come before it"
        _refuse(after.row[place], what)
    sender = np.repeat(source, after.lengths)
    seen = sender == source[after.values]
    seen |= sender == destination[after.values]
    if (place := _first(~seen)) != NONE:
        _refuse(
            after.row[place], f"GPU {sender[place]} takes no part in transfer {after.values[place]}"
        )
    waits = np.flatnonzero(transfers.ready != NONE)
    ready = np.minimum(transfers.ready[waits], waits)
    wrong = (ready < 0) | (ready == waits) | (destination[ready] != destination[waits])
    if (place := _first(wrong)) != NONE:
        what = f"{transfers.ready[waits[place]]} does not make its destination ready-to-receive"
        _refuse(waits[place], what)


def _check_order(history: History) -> None:
    """Raise `ScheduleError` unless senders hold their data in any possible order of transfers."""
    if (move := _first(history.repeated)) != NONE:
        _refuse_move(history.transfers, move, "carries chunk {} twice")
    if (move := _first(history.reads == NONE)) != NONE:
        _refuse_move(history.transfers, move, "sender does not hold chunk {}")
    unordered = first_unordered(history.transfers, *history.needed())
    if unordered is not None:
        _refuse(unordered[0], f"does not wait for {unordered[1]}, whose data it sends")


def _check_postcondition(demand: Demand, last: Ints, contents: Contents) -> None:
    """Raise `ScheduleError` unless every rank holds the wanted contributions.

    `last` has the last version of each wanted cell. Contributions come from ranks that held the
    chunk before, each at most once: if there are as many as holders, none is missing.
    """
    chunks, promised = demand.wanted.chunks, demand.contributor
    final = np.where(last == NONE, NONE, contents.set_of[last])
    holders = np.bincount(demand.held.chunks, minlength=len(demand.chunk_bytes))
    whole = (final != NONE) & (contents.size[final] == holders[chunks])
    right = np.where(promised == EVERYONE, whole, final == promised)
    if (place := _first(~right)) != NONE:
        held = 0 if final[place] == NONE else contents.bits(final[place])
        asked = (
            demand.holders.at(chunks[place]) if promised[place] == EVERYONE else promised[[place]]
        )
        must = sum(1 << rank for rank in asked.tolist())
        raise ScheduleError(
            f"rank {demand.wanted.ranks[place]} ends with chunk {chunks[place]} with "
            f"contributions {held:b}, must have {must:b}"
        )
