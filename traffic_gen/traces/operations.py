"""Collective operations of a trace as transfers between GPUs.

An operation of the same kind, size and places is the same everywhere, but for the GPUs and for what
came before: it is built once, as a pattern.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from model.arrays import Ints
from model.fabric.job_grid import JobGrid, Shape
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import NONE, Rows
from traffic_gen.workloads.sized_collective import SizedCollective

# Numbers of transfers that a GPU has sent or received.
Ends = tuple[int, ...]
# A trace names no algorithm. These are for any number of ranks.
ALGORITHM_OF = {
    Collective.ALL_REDUCE: "ring",
    Collective.ALL_GATHER: "ring",
    Collective.REDUCE_SCATTER: "ring",
    Collective.ALL_TO_ALL: "direct",
    Collective.BROADCAST: "ring",
    Collective.REDUCE: "ring",
    Collective.GATHER: "direct",
    Collective.SCATTER: "direct",
}


@dataclass(frozen=True, eq=False)
class Pattern:
    """The transfers of a collective operation between places that have a node each.

    Numbers of transfers count from 0; `after` has those within the operation. `begins` has, for
    each transfer, the places for whose nodes' dependencies it waits, too. `entries` and `ends` have
    the transfers with which each place begins to send, and whose end is its own; `awaited` has the
    places whose nodes' dependencies each place's end includes.
    """

    source: Ints
    destination: Ints
    size_bytes: Ints
    ready: Ints
    after: Rows
    begins: Rows
    entries: Rows
    ends: Rows
    awaited: Rows

    def __len__(self) -> int:
        return len(self.source)


_ZERO, _OWN, _EMPTY = np.zeros(1, np.int64), Rows.of([[0]]), Rows.of([[]])
# A node that is one step: it says itself where the step ends, and of which size it is.
SINGLE = Pattern(_ZERO, _ZERO, _ZERO, _ZERO + NONE, _EMPTY, _OWN, _OWN, _OWN, _EMPTY)


@lru_cache(maxsize=64)
def pattern(collective: Collective, grid: Shape, size_bytes: int, gpu_of: Ends) -> Pattern:
    """Return the pattern of an operation on a grid of places, of which some may share a GPU.

    In what is waited for, `-1 - place` stands for the dependencies of the node at a place.
    """
    whole = SizedCollective(collective, ALGORITHM_OF[collective], grid, size_bytes)
    transfers = whole.steps().transfers.objects
    steps, after = list[tuple[int, int, int, int]](), list[Ends]()
    # Of each transfer, whether it is between GPUs, and its end as both see it: one within a GPU
    # ends with its dependencies.
    carried, done = list[bool](), list[Ends]()
    entries: list[Ends] = [()] * len(gpu_of)
    # The ends that each place has seen, and those that it has waited for before it sent.
    seen, awaited = ([set[int]() for _ in gpu_of] for _ in range(2))
    for transfer in transfers:
        source, to, number = transfer.source, transfer.destination, len(steps)
        waits = union([done[one] for one in transfer.after])
        # One that waits for none of its sender's begins the sender's part, as the sender's node.
        begins = not any(carried[one] and transfers[one].source == source for one in transfer.after)
        if begins:
            waits = union([waits, (-1 - source,)])
        carried.append(gpu_of[source] != gpu_of[to])
        done.append((number,) if carried[-1] else waits)
        if carried[-1]:
            ready = NONE
            if transfer.ready is not None and carried[transfer.ready]:
                (ready,) = done[transfer.ready]
            steps.append((source, to, transfer.size_bytes, ready))
            after.append(waits)
            awaited[source].update(waits)
            entries[source] += (number,) if begins else ()
        for place in (source, to):
            seen[place].update(done[-1])
    ends = list[Ends]()
    for place, own in enumerate(entries):
        last = tuple(sorted(seen[place] - awaited[place]))
        ends.append(last if own else union([(-1 - place,), last]))
    sources, destinations, sizes, meets = np.array(steps, np.int64).reshape(len(steps), 4).T.copy()
    waited, own_ends = _split(after), _split(ends)
    return Pattern(sources, destinations, sizes, meets, *waited, Rows.of(entries), *own_ends)


def _split(waits: Sequence[Ends]) -> tuple[Rows, Rows]:
    """Return the transfers among what is waited for, and the places."""
    transfers = [[number for number in row if number >= 0] for row in waits]
    return Rows.of(transfers), Rows.of([[-1 - one for one in row if one < 0] for row in waits])


def union(parts: Sequence[Ends]) -> Ends:
    """Return the numbers of all parts, in order."""
    filled = [part for part in parts if part]
    if not filled:
        return ()
    return filled[0] if len(filled) == 1 else tuple(sorted(set().union(*filled)))


def arranged(ranks: Sequence[int], gpu_of: Ints, job: JobGrid) -> tuple[list[int], Shape]:
    """Return the ranks by their place on a grid, and the grid.

    Ranks that have a GPU each, on the same rails of some domains, are on the grid of these GPUs;
    rings then cross domains along rails. All others are in a row, in the order of the trace. The
    first of the ranks is at the first place.
    """
    domain, rail = job.places[:, gpu_of[list(ranks)]]
    domains, rails = np.unique(domain), np.unique(rail)
    distinct = len(np.unique(gpu_of[list(ranks)]))
    if not len(domains) * len(rails) == distinct == len(ranks):
        return list(ranks), (1, len(ranks))
    row = (np.searchsorted(domains, domain) - np.searchsorted(domains, domain[0])) % len(domains)
    column = (np.searchsorted(rails, rail) - np.searchsorted(rails, rail[0])) % len(rails)
    order = np.argsort(row * len(rails) + column)
    return [ranks[place] for place in order.tolist()], (len(domains), len(rails))
