"""Makes a machine noisy on purpose: takes away a share of all cores in short bursts.

For benchmarks and tests of Railbed on a noisy machine. Interrupts are still served, so this noise
is a little milder than that of a hypervisor that takes the core.
"""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from linux.machine.processor import processes_s
from linux.processes.lifetime import END_DEADLINE_S, dies_with_us, end
from model.errors import NotReady

MAKER = Path(__file__).with_name("noise_maker.py")
# The kernel lets real-time processes have at most 95 % of a core (sched(7)).
MOST = 0.9
# Noise ends by itself after this long, whatever happens to its caller.
AT_MOST_S = 1800.0
READY_DEADLINE_S = 20


@dataclass(frozen=True)
class Noise:
    """Processes that take cores away: one per core, none if the share is zero."""

    process_ids: tuple[int, ...]

    def taken_s(self) -> float:
        """CPU seconds taken so far, summed over all cores."""
        return processes_s(self.process_ids)


@contextmanager
def noise(share: float, at_most_s: float = AT_MOST_S) -> Iterator[Noise]:
    """Take this share of every core while the context lasts, for at most `at_most_s` seconds.

    Raises `NotReady` where real-time processes are not allowed, `ValueError` for a share not in
    0 to `MOST`.
    """
    if not 0 <= share <= MOST:
        raise ValueError(f"noise must take 0 to {MOST:.0%} of the cores, got {share:.0%}")
    makers: list[subprocess.Popen[str]] = []
    with ExitStack() as ending:
        for core in sorted(os.sched_getaffinity(0)) if share else ():
            makers.append(_maker(core, share, at_most_s))
            ending.callback(end, makers[-1])
        for maker in makers:
            _wait_until_ready(maker)
        yield Noise(tuple(maker.pid for maker in makers))


def _maker(core: int, share: float, at_most_s: float) -> subprocess.Popen[str]:
    program = [sys.executable, "-I", "-S", str(MAKER)]
    command = dies_with_us([*program, str(core), str(share), str(at_most_s)])
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    )


def _has_spoken(maker: subprocess.Popen[str]) -> bool:
    """Wait until a maker prints a line or ends; return whether it did so in time."""
    poll = select.poll()
    if maker.stdout is not None:
        poll.register(maker.stdout, select.POLLIN)
    return bool(poll.poll(READY_DEADLINE_S * 1000))


def _wait_until_ready(maker: subprocess.Popen[str]) -> None:
    if maker.stdout is not None and _has_spoken(maker) and maker.stdout.readline() == "ready\n":
        return
    maker.kill()
    _, said = maker.communicate(timeout=END_DEADLINE_S)
    words = said.strip().splitlines()
    raise NotReady(
        "noise: this machine allows no real-time processes "
        f"({words[-1] if words else 'no output'}); run this as root, outside of a container"
    )
