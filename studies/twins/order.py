"""Whether a trend agrees: pairs of points whose measured values are ordered as at full scale."""

from collections.abc import Sequence

# At the paper's scale, values that differ by less are equal: their order means nothing.
SAME = 0.01


def same_order(values: Sequence[tuple[float, float]]) -> dict[str, int]:
    """Count the pairs of points that have an order at scale, and those measured in the same one.

    `values` has for each point the measured value, and the value at the paper's scale.
    """
    pairs = [
        (one[0] < other[0]) == (one[1] < other[1])
        for number, one in enumerate(values)
        for other in values[:number]
        if abs(one[1] / other[1] - 1) > SAME
    ]
    return {"same_order": sum(pairs), "pairs": len(pairs)}
