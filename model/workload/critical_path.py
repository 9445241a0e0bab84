"""Begin and end of steps by their dependencies alone."""

from itertools import pairwise

import numpy as np

from model.arrays import Floats
from model.workload.transfers.columns import NONE, Transfers


def ends_s(transfers: Transfers, lasts_s: Floats) -> Floats:
    """Return the end of each step that lasts `lasts_s` and begins when its dependencies have ended.

    Seconds since the start. A rendezvous counts as a dependency.
    """
    waits, end_s = transfers.waits, lasts_s.astype(np.float64)
    starts, row = waits.starts.tolist(), waits.row
    for first, end in pairwise(_rounds(transfers)):
        values = slice(starts[first], starts[end])
        begins = np.zeros(end - first)
        np.maximum.at(begins, row[values] - first, end_s[waits.values[values]])
        end_s[first:end] += begins
    return end_s


def _rounds(transfers: Transfers) -> list[int]:
    """Return the boundaries of rounds: no step waits for another step of its round."""
    latest = np.full(len(transfers), NONE)
    np.maximum.at(latest, transfers.waits.row, transfers.waits.values)
    boundaries = [0]
    for number, earlier in enumerate(latest.tolist()):
        if earlier >= boundaries[-1]:
            boundaries.append(number)
    return [*boundaries, len(transfers)]


def begins_s(transfers: Transfers, end_s: Floats) -> Floats:
    """Return the earliest begin of each step: the end of its last dependency, or 0."""
    begin_s = np.zeros(len(transfers))
    np.maximum.at(begin_s, transfers.waits.row, end_s[transfers.waits.values])
    return begin_s


def longest_chain(transfers: Transfers) -> int:
    """Return the length of the longest chain of dependent steps."""
    return int(ends_s(transfers, np.ones(len(transfers))).max())
