"""When steps begin and end by their dependencies alone."""

from itertools import pairwise

import numpy as np

from model.arrays import Floats
from model.workload.transfers import NONE, Transfers


def ends_s(transfers: Transfers, lasts_s: Floats) -> Floats:
    """Return when each step ends, if it lasts so long and begins when those before it have ended.

    Seconds since the start. A step waits for a rendezvous as for what it depends on.
    """
    waits, found = transfers.waits, lasts_s.astype(np.float64)
    starts, row = waits.starts.tolist(), waits.row
    for first, end in pairwise(_rounds(transfers)):
        values = slice(starts[first], starts[end])
        begins = np.zeros(end - first)
        np.maximum.at(begins, row[values] - first, found[waits.values[values]])
        found[first:end] += begins
    return found


def _rounds(transfers: Transfers) -> list[int]:
    """Return where the steps divide into rounds: none waits for another one of its round."""
    latest = np.full(len(transfers), NONE)
    np.maximum.at(latest, transfers.waits.row, transfers.waits.values)
    found = [0]
    for number, earlier in enumerate(latest.tolist()):
        if earlier >= found[-1]:
            found.append(number)
    return [*found, len(transfers)]


def begins_s(transfers: Transfers, end_s: Floats) -> Floats:
    """Return when each step could begin: the end of the last one that it waits for, or 0."""
    found = np.zeros(len(transfers))
    np.maximum.at(found, transfers.waits.row, end_s[transfers.waits.values])
    return found


def longest_chain(transfers: Transfers) -> int:
    """Return the length of the longest chain of dependent steps."""
    return int(ends_s(transfers, np.ones(len(transfers))).max())
