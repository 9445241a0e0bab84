"""Interruptions by signals wait until a library that they would break has done its work."""

import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from linux.network.route_socket import RouteSocket
from linux.processes.interruptions import interrupt, uninterrupted
from testbed.nodes.gpu_proxies import until_it_has_ended
from tests.unit.programs import executed

INTERRUPTIONS = 50


@pytest.fixture
def timer() -> Iterator[None]:
    """Let the timer's signal interrupt."""
    before = signal.signal(signal.SIGALRM, lambda *_: interrupt(KeyboardInterrupt()))
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_an_interruption_comes_at_once() -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupt(KeyboardInterrupt())


def test_an_error_beside_a_process_that_has_ended_has_no_other_context() -> None:
    """By its context, the command line tells an output that nobody reads."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    with pytest.raises(BrokenPipeError) as raised, until_it_has_ended(ended.pid):
        raise BrokenPipeError
    assert raised.value.__context__ is None


def interrupted_twice(done: list[str]) -> None:
    """Interrupt within two contexts."""
    with uninterrupted():
        with uninterrupted():
            interrupt(KeyboardInterrupt())
            done.append("inner")
        done.append("outer")


def test_a_postponed_interruption_comes_once_when_the_outermost_context_ends() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted_twice(done)
    assert done == ["inner", "outer"]
    with uninterrupted():
        done.append("later")


def ask_on(netlink: RouteSocket, timer_s: float) -> None:
    """Send request after request, until the timer interrupts, or a deadline."""
    signal.setitimer(signal.ITIMER_REAL, timer_s)
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s:
        assert netlink.get_links()


@pytest.mark.usefixtures("timer")
def test_interrupted_requests_of_netlink_leave_the_socket_usable() -> None:
    with RouteSocket() as netlink:
        for number in range(INTERRUPTIONS):
            with pytest.raises(KeyboardInterrupt):
                ask_on(netlink, 1e-4 * (1 + number))
            assert netlink.link_lookup(ifname="lo") == [1]


SWALLOWED = """
import os, signal, threading, weakref
from linux.processes.interruptions import end_program, repeat_swallowed

class Thing: pass

repeat_swallowed()
signal.signal(signal.SIGTERM, lambda *_: end_program())
thing = Thing()
reference = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGTERM))
try:
    del thing
    threading.Event().wait(30)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interruption_that_python_swallows_comes_again() -> None:
    done = executed(SWALLOWED)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
