"""When steps begin and end by their dependencies alone."""

import numpy as np

from model.arrays import Floats
from model.workload.transfers import Transfers


def ends_s(transfers: Transfers, lasts_s: Floats) -> Floats:
    """Return when each step ends, if it lasts so long and begins when those before it have ended.

    Seconds since the start. A step waits for a rendezvous as for what it depends on.
    """
    waits = transfers.waits
    values, starts = waits.values.tolist(), waits.starts.tolist()
    found: list[float] = []
    for begin, end, own_s in zip(starts, starts[1:], lasts_s.tolist(), strict=False):
        found.append(own_s + max([found[earlier] for earlier in values[begin:end]], default=0.0))
    return np.array(found)


def begins_s(transfers: Transfers, end_s: Floats) -> Floats:
    """Return when each step could begin: the end of the last one that it waits for, or 0."""
    found = np.zeros(len(transfers))
    np.maximum.at(found, transfers.waits.row, end_s[transfers.waits.values])
    return found


def longest_chain(transfers: Transfers) -> int:
    """Return the length of the longest chain of dependent steps."""
    return int(ends_s(transfers, np.ones(len(transfers))).max())
