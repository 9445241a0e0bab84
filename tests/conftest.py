"""Settings of all tests, and fixtures for those that bring fabrics up."""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from linux.machine.processor import speed_up_large_arrays
from scenarios.planning.machine_profile import VARIABLE
from testbed.host.cleanup import clean
from tests.machine import untouched

# As the program does at its start, before a test module imports NumPy.
speed_up_large_arrays()

# A shell has its background jobs ignore it, and what the tests start would do the same.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: the time for one example depends on the machine's load more than on Railbed.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="session", autouse=True)
def never_measured_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide what `doctor` found on this machine: scales and buckets must not depend on that day."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(tmp_path_factory.mktemp("machine") / "machine.json"))
        yield


@pytest.fixture(scope="session")
def without_dead_runs() -> None:
    """Clean up after runs that were killed earlier: now, not in the middle of a test."""
    clean()


@pytest.fixture
def untouched_machine(without_dead_runs: None) -> Iterator[None]:
    """Require that the test leaves the machine as it was before."""
    with untouched():
        yield
