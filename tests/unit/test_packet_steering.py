"""Masks of cores have the kernel's form, for any set of cores."""

from hypothesis import given
from hypothesis import strategies as st

from linux.network.packet_steering import core_mask


@given(st.sets(st.integers(0, 500), min_size=1))
def test_a_mask_has_the_bit_of_each_core(cores: set[int]) -> None:
    mask = core_mask(cores)
    assert int(mask.replace(",", ""), 16) == sum(1 << core for core in cores)
    assert all(len(word) == 8 for word in mask.split(","))
