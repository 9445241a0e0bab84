"""Settings and fixtures of the tests that bring no fabric up."""

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest


@pytest.fixture(scope="session", autouse=True)
def without_waiting_for_the_disk() -> Iterator[None]:
    """Records are written by the thousand here, and need not outlive the machine."""
    with patch("os.fsync"):
        yield


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path x.yaml in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return Path("x.yaml")
