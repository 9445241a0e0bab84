"""Max-min fair rates of flows, and the tokens that they find in the buckets of their links."""

import numpy as np

from model.arrays import Floats, Ints

# Shares that differ by less than this part are equal: rounding must not separate them.
SAME_SHARE = 1e-12


def fair_rates(paths: Ints, rate: Floats, weight: Floats) -> Floats:
    """Return the weighted max-min fair rate of each flow.

    `paths` has a row of links for each flow, `rate` the rate of each link, `weight` the weight of
    each flow. All flows are raised evenly, in proportion to their weights; a link that is the
    tightest of all its flows freezes them at its fair share.
    """
    rates = np.zeros(len(paths))
    spare, left = rate.copy(), np.arange(len(paths))
    while len(left):
        links = paths[left]
        weights = sums(links, weight[left], len(rate))
        share = np.divide(spare, weights, out=np.full(len(rate), np.inf), where=weights > 0)
        tightest = share[links].min(axis=1)
        least = np.full(len(rate), np.inf)
        np.minimum.at(least, links, tightest[:, None])
        saturated = share <= least * (1 + SAME_SHARE)
        frozen = saturated[links].any(axis=1)
        rates[left[frozen]] = tightest[frozen] * weight[left[frozen]]
        spare -= sums(links[frozen], rates[left[frozen]], len(rate))
        left = left[~frozen]
    return rates


def sums(paths: Ints, amounts: Floats, links: int) -> Floats:
    """Return for each link the sum of the amounts of the flows on it."""
    weights = np.repeat(amounts, paths.shape[1])
    return np.bincount(paths.ravel(), weights, minlength=links).astype(np.float64, copy=False)


def take_tokens(paths: Ints, sizes: Floats, tokens: Floats, unlimited: int) -> Floats:
    """Return the bytes of each flow that pass at once, and take their tokens, in this order.

    A flow passes as much as the emptiest bucket on its path has. Flows on links of their own, or
    with an empty bucket, need not wait for earlier flows. The first `unlimited` links are
    placeholders for no link.
    """
    passed = np.zeros(len(paths))
    left = np.arange(len(paths))
    while len(left):
        links = paths[left]
        first = np.full(len(tokens), len(paths))
        np.minimum.at(first, links, left[:, None])
        ready = ((first[links] == left[:, None]) | (links < unlimited)).all(axis=1)
        available = np.maximum(0.0, tokens[links].min(axis=1))
        ready |= available == 0
        passed[left[ready]] = np.minimum(sizes[left[ready]], available[ready])
        tokens -= sums(links[ready], passed[left[ready]], len(tokens))
        left = left[~ready]
    return passed
