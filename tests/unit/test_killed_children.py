"""Children that are killed are waited for with a deadline, and say why they were not ready."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

from linux.processes import lifetime
from linux.processes.lifetime import output_of
from model.errors import EmulationError, NotReady
from studies.benchmarks import noise as noise_module
from studies.benchmarks.noise import noise
from testbed.virtual_machine.guest import Guest
from traffic_gen import iperf3 as iperf3_module
from traffic_gen.iperf3 import Hosts, iperf3

SLEEP = ["sleep", "60"]


@pytest.fixture
def survivors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let children survive their kill for as long as the test, as those that hang in a driver."""
    found: list[subprocess.Popen[Any]] = []
    monkeypatch.setattr(subprocess.Popen, "kill", lambda process: found.append(process))
    monkeypatch.setattr(lifetime, "END_DEADLINE_S", 0.05)
    yield
    for process in found:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


def short_command(_patch: pytest.MonkeyPatch) -> None:
    output_of(*SLEEP, timeout_s=0.01)


def generator(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(iperf3_module, "namespace_of", lambda _: nullcontext())
    patch.setattr(iperf3_module, "dies_with_us", lambda _: SLEEP)
    with iperf3(Hosts([0], {}), 0):
        pass


def noise_maker(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(noise_module, "dies_with_us", lambda _: SLEEP)
    patch.setattr(noise_module, "_wait_until_ready", lambda _: None)
    patch.setattr(os, "sched_getaffinity", lambda _: {0})
    with noise(0.1):
        pass


def virtual_machine(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Guest, "_qemu", lambda *_: SLEEP)
    with Guest(Path("kernel"), Path("initrd"), Path("tree"))._machine(cast(Any, None)):
        pass


@pytest.mark.usefixtures("survivors")
@pytest.mark.parametrize("child", [short_command, generator, noise_maker, virtual_machine])
def test_a_child_that_survives_its_kill_is_not_waited_for(
    child: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EmulationError, match=r"did not end within 0\.05 s of SIGKILL"):
        child(monkeypatch)


def test_a_noise_maker_that_says_nothing_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(noise_module, "dies_with_us", lambda _: SLEEP)
    monkeypatch.setattr(noise_module, "READY_DEADLINE_S", 0.05)
    with pytest.raises(NotReady, match="no output"), noise(0.1):
        pass
