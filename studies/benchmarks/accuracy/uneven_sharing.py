"""Predictions in which forwarded TCP flows have other shares of a link than a GPU's own.

A GPU that forwards packets of others sends its own flows over the same NIC. TCP keeps no more than
about two segments of an own flow in the NIC's queue (tcp_small_queue_check in
net/ipv4/tcp_output.c), and as many of a forwarded flow as its window has. A queue serves packets in
their order, so forwarded flows get more than a fair share; how much more is chance, too. Here each
forwarded transfer has a weight; its logarithm has a mean and a standard deviation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

import numpy as np

from model.arrays import Bools, Floats


@dataclass(frozen=True)
class Shares:
    """Mean and standard deviation of the logarithms of forwarded flows' weights; own ones have 1.

    Equal shares are `Shares(0, 0)`.
    """

    mean: float
    spread: float

    @classmethod
    def of(cls, weights: Sequence[float]) -> "Shares":
        """Estimate from weights that were measured; raises `StatisticsError` with less than two."""
        logarithms = np.log(weights).tolist()
        return cls(mean(logarithms), stdev(logarithms))

    def drawn(self, forwarded: Bools, random: np.random.Generator) -> Floats:
        """Draw the weight of each transfer."""
        weights = np.exp(random.normal(self.mean, self.spread, len(forwarded)))
        return np.where(forwarded, weights, 1.0)


def weight_of(one_s: float, other_s: float) -> float:
    """Return the weight of a flow against another one by their arrivals, with equal sizes.

    Both begin at 0 on a link that is busy until the later one has arrived: the earlier one has
    carried its size in its own time, the later one the rest of that time's bytes. Raises
    `ValueError` if the link must have been idle.
    """
    first_s, last_s = sorted((one_s, other_s))
    rest_s = 2 * first_s - last_s
    if rest_s <= 0:
        raise ValueError("the later flow may not last so long after the earlier one")
    weight = last_s / rest_s
    return weight if one_s <= other_s else 1 / weight


def under_uneven_sharing(
    completion_s: Callable[[Floats], float], forwarded: Bools, shares: Shares, draws: int
) -> list[float]:
    """Return sorted completion times with weights drawn for each forwarded transfer."""
    random = np.random.default_rng(0)
    return sorted(completion_s(shares.drawn(forwarded, random)) for _ in range(draws))
