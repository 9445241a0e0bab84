"""Types of arrays, where many numbers are handled at once."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def raw(column: NDArray[np.generic]) -> memoryview:
    """The bytes of an array, not copied if they are in one piece."""
    return np.ascontiguousarray(column).data
