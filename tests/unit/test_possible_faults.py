"""Faults that this kernel cannot make are refused before anything is brought up."""

import pytest

from model.errors import InputError
from model.faults import FaultMode
from scenarios.library import LIBRARY
from scenarios.loader import load
from scenarios.planning.kernel_support import require_possible


def lacks_blackholes(how: FaultMode) -> str | None:
    return "this kernel has no sch_blackhole" if how is FaultMode.BLACKHOLE else None


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be root, who alone can probe the kernel; the kernel has no blackholes."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("testbed.faults.injector.missing_for", lacks_blackholes)


@pytest.mark.usefixtures("root")
def test_what_the_kernel_lacks_is_bad_input() -> None:
    with pytest.raises(InputError, match="nic-link-blackhole: faults: this kernel has no sch"):
        require_possible(load(LIBRARY / "nic-link-blackhole.yaml"))


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("name", ["nic-link-down", "quickstart"])
def test_all_else_is_possible(name: str) -> None:
    require_possible(load(LIBRARY / f"{name}.yaml"))


def test_nobody_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    require_possible(load(LIBRARY / "nic-link-blackhole.yaml"))
