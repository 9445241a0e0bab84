"""Check that numpy orders numbers right on this processor, in the virtual machine, too.

QEMU up to 9.0 reads wrong addresses in AVX2 gathers (its issue 2474), which numpy's argsort uses.
"""

import numpy as np
import pytest


@pytest.mark.parametrize("count", [8, 64, 256, 257, 1000, 5000])
def test_numbers_are_ordered(count: int) -> None:
    numbers = np.random.default_rng(count).permutation(count).astype(np.int64)
    order = np.argsort(numbers)
    assert numbers[order].tolist() == list(range(count))
