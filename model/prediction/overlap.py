"""Overlap: for how long HB domains and NICs carry data at the same time, by the model."""

import numpy as np

from model.arrays import Bools, Floats, Ints
from model.fabric.topology import LinkKind
from model.prediction.network import Network
from model.workload.critical_path import begins_s
from model.workload.transfers.columns import Transfers

OF_HB = {LinkKind.HB, LinkKind.HB_TRUNK}


def overlap(transfers: Transfers, pair: Ints, net: Network, arrival_s: Floats) -> float:
    """Return the share of the completion time in which both carry transfers; 0 without a NIC.

    `pair` is the pair of each transfer in the network. A transfer is under way from the arrival of
    its last dependency until its own arrival. A transfer that is forwarded uses both.
    """
    begin_s = begins_s(transfers, arrival_s)
    by_hb, by_nic = (
        np.array([any(has(kind) for kind in kinds or ()) for kinds in net.classes])
        for has in (OF_HB.__contains__, LinkKind.NIC.__eq__)
    )
    of = net.class_of[pair]
    end_s = float(arrival_s.max(initial=0.0))
    both_s = _both_s(begin_s, arrival_s, by_hb[of], by_nic[of])
    return min(1.0, both_s / end_s) if end_s else 0.0  # rounding must not exceed 1


def _both_s(begin_s: Floats, end_s: Floats, one: Bools, other: Bools) -> float:
    """Return for how long spans of both kinds are under way at once, in seconds."""
    moments = np.concatenate([begin_s, end_s])
    order = np.argsort(moments, kind="stable")
    under_way = [np.cumsum(np.concatenate([which, -1 * which])[order]) for which in (one, other)]
    at_once = (under_way[0] > 0) & (under_way[1] > 0)
    return float(np.diff(moments[order]) @ at_once[:-1])
