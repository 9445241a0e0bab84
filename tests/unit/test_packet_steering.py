"""Masks of cores have the kernel's form, for any core."""

from hypothesis import given
from hypothesis import strategies as st

from testbed.fabric.packet_order import core_mask


@given(st.integers(0, 500))
def test_a_mask_has_the_bit_of_its_core_alone(core: int) -> None:
    mask = core_mask(core)
    assert int(mask.replace(",", ""), 16) == 1 << core
    assert all(len(word) == 8 for word in mask.split(","))
