"""Types of arrays, where many numbers are handled at once."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def raw(column: NDArray[np.generic]) -> memoryview:
    """Return a view of an array's bytes; an array that is not contiguous is copied."""
    return np.ascontiguousarray(column).data
