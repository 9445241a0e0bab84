"""Settings of all tests, and fixtures for those that bring fabrics up."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from testbed.host.cleanup import clean
from tests.guest_checks import GuestChecks
from tests.machine import untouched

# How long one example takes says more about the machine, and what else it does, than about us.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

GUEST_CHECKS = pytest.StashKey[GuestChecks]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the checks in the virtual machine run beside all others: ask for them last."""
    items.sort(key=asks_the_guest)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the virtual machine, if a test asks for it."""
    if not session.config.option.collectonly and any(map(asks_the_guest, session.items)):
        session.config.stash[GUEST_CHECKS] = GuestChecks()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the virtual machine, also if nobody has waited for it."""
    if checks := session.config.stash.get(GUEST_CHECKS, None):
        checks.end()


def asks_the_guest(item: pytest.Item) -> bool:
    """Whether a test is about what was checked in the virtual machine."""
    return "guest_checks" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def guest_checks(pytestconfig: pytest.Config) -> Path:
    """The folder with what each check in the virtual machine has said."""
    return pytestconfig.stash[GUEST_CHECKS].wait()


@pytest.fixture(scope="session")
def without_dead_runs() -> None:
    """What runs that were killed earlier have left goes now, and not in the middle of a test."""
    clean()


@pytest.fixture
def untouched_machine(without_dead_runs: None) -> Iterator[None]:
    """After the test, the machine is as it was before."""
    with untouched():
        yield
