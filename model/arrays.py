"""Types of arrays, where many numbers are handled at once."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def distinct(values: Ints) -> Ints:
    """Return the values without duplicates, sorted.

    NumPy's `unique` hashes them, which takes ten times as long for codes of pairs.
    """
    ordered = np.sort(values)
    is_first = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered if is_first.all() else ordered[is_first]
