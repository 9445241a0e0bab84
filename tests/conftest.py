"""Settings of all tests, and fixtures for those that bring fabrics up."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from testbed.cleaning import clean
from tests.machine import untouched

# How long one example takes says more about the machine, and what else it does, than about us.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def without_dead_runs() -> None:
    """What runs that were killed earlier have left goes now, and not in the middle of a test."""
    clean()


@pytest.fixture
def untouched_machine(without_dead_runs: None) -> Iterator[None]:
    """After the test, the machine is as it was before."""
    with untouched():
        yield
