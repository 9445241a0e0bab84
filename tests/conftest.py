"""Settings of all tests, and fixtures for those that bring fabrics up."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from testbed.host.cleanup import clean
from tests.guest_checks import GuestChecks
from tests.machine import untouched

# No deadline: the time for one example depends on the machine's load more than on Railbed.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

GUEST_CHECKS = pytest.StashKey[GuestChecks]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests that need the virtual machine's checks last: these run beside all other tests."""
    items.sort(key=asks_the_guest)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the virtual machine, if a test asks for it."""
    if not session.config.option.collectonly and any(map(asks_the_guest, session.items)):
        session.config.stash[GUEST_CHECKS] = GuestChecks()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the virtual machine, also if no test has waited for it."""
    if checks := session.config.stash.get(GUEST_CHECKS, None):
        checks.end()


def asks_the_guest(item: pytest.Item) -> bool:
    """Whether a test needs the checks in the virtual machine."""
    return "guest_checks" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def guest_checks(pytestconfig: pytest.Config) -> Path:
    """Folder with the output of each check in the virtual machine."""
    return pytestconfig.stash[GUEST_CHECKS].wait()


@pytest.fixture(scope="session")
def without_dead_runs() -> None:
    """Clean up after runs that were killed earlier: now, not in the middle of a test."""
    clean()


@pytest.fixture
def untouched_machine(without_dead_runs: None) -> Iterator[None]:
    """Require that the test leaves the machine as it was before."""
    with untouched():
        yield
