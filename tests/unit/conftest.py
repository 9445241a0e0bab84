"""Settings of the tests that bring no fabric up."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest


@pytest.fixture(scope="session", autouse=True)
def without_waiting_for_the_disk() -> Iterator[None]:
    """Records are written by the thousand here, and need not outlive the machine."""
    with patch("os.fsync"):
        yield
