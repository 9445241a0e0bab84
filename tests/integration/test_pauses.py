"""Pauses of this machine are detected, including those that noise makes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from model.errors import NotReady
from model.measurement.pauses import PauseLog
from studies.benchmarks.noise import noise
from testbed.instruments.pauses import PauseWatch, watching_pauses
from tests.machine import wait_until

pytestmark = [pytest.mark.integration]

SPAN_NS = 1_000_000_000
CORES = len(os.sched_getaffinity(0))
HOLDER = """\
import sys
from studies.benchmarks.noise import noise
from testbed.instruments.pauses import watching_pauses
with noise(0.1) as made, watching_pauses() as watch:
    print(*made.process_ids, *watch.process_ids, flush=True)
    sys.stdin.read()
"""


def seen(watch: PauseWatch) -> PauseLog:
    """Watch the second that begins now; return its pauses."""
    begin_ns = time.monotonic_ns()
    wait_until(lambda: watch.log().covers(begin_ns, begin_ns + SPAN_NS), "a second was watched")
    return watch.log().during(begin_ns, begin_ns + SPAN_NS)


def is_running(process_id: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def test_what_noise_takes_is_seen() -> None:
    with watching_pauses() as watch:
        before = seen(watch)
        with noise(0.4, at_most_s=20) as made:
            noisy = seen(watch)
            taken_s = made.taken_s()
    assert before.cores == noisy.cores == CORES
    assert {pause.core for pause in noisy.pauses} >= os.sched_getaffinity(0)
    # A pause is noted up to 2 ms shorter than it was, and one below 1 ms not at all.
    assert 0.2 < noisy.lost < 0.9
    assert noisy.longest_s > 0.004
    assert noisy.lost > before.lost
    assert taken_s > 0.2 * CORES


def test_noise_of_nothing_is_nothing() -> None:
    with noise(0.0) as made:
        assert made.taken_s() == 0


def test_noise_ends_by_itself() -> None:
    with noise(0.2, at_most_s=0.2) as made:
        assert len(made.process_ids) == CORES
        wait_until(lambda: not any(map(is_running, made.process_ids)), "noise has ended")


def test_where_no_real_time_is_allowed_noise_says_so() -> None:
    program = (
        "import os\n"
        "from studies.benchmarks.noise import noise\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "with noise(0.2): pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30
    )
    assert done.returncode != 0
    assert f"{NotReady.__name__}: noise: this machine allows no real-time processes" in done.stderr


def test_a_watcher_that_dies_is_noticed() -> None:
    with watching_pauses() as watch:
        killed_ns = time.monotonic_ns()
        os.kill(watch.process_ids[0], signal.SIGKILL)
        log = watch.log_until(time.monotonic_ns())
        wait_until(lambda: time.monotonic_ns() > killed_ns + SPAN_NS, "a second has passed")
        assert not log.covers(killed_ns, killed_ns + SPAN_NS)
        assert not watch.log().covers(killed_ns, killed_ns + SPAN_NS)


def test_nothing_is_left_of_who_is_killed() -> None:
    command = [sys.executable, "-c", HOLDER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout is not None
        started = [int(word) for word in holder.stdout.readline().split()]
        assert len(started) == 2 * CORES
        assert all(map(is_running, started))
        holder.kill()
    wait_until(lambda: not any(map(is_running, started)), "all of it is gone")
