"""Settings of all tests, and fixtures for those that bring fabrics up."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.machine import machine_state, wait_until

# How long one example takes says more about the machine, and what else it does, than about us.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture
def untouched_machine() -> Iterator[None]:
    """After the test, the machine is as it was before."""
    before = machine_state()
    yield
    wait_until(lambda: machine_state() == before, f"the machine is again as before: {before}")
