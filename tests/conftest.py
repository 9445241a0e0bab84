"""Fixtures for tests that bring fabrics up."""

from collections.abc import Iterator

import pytest

from tests.machine import machine_state, wait_until


@pytest.fixture
def untouched_machine() -> Iterator[None]:
    """After the test, the machine is as it was before."""
    before = machine_state()
    yield
    wait_until(lambda: machine_state() == before, f"the machine is again as before: {before}")
