"""The agent of a GPU proxy: a peer that is lost ends the execution, and nothing else does."""

import errno
import os
import sys
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from traffic_gen.agents.agent import Agent


def polled(error: OSError, control: str = "control") -> tuple[bool, list[str]]:
    """Serve one socket that raises an error; return whether that aborts, and what is let go."""
    gone: list[str] = []

    def raises(_events: int) -> None:
        raise error

    key = SimpleNamespace(data=raises, fileobj="socket")
    selector = SimpleNamespace(select=lambda _timeout_s: [(key, 1)], unregister=gone.append)
    agent = SimpleNamespace(selector=selector, aborted=False, control=control)
    Agent.poll(cast(Any, agent), 0)
    return agent.aborted, gone


@pytest.mark.parametrize("number", [errno.ECONNRESET, errno.EHOSTUNREACH, errno.ETIMEDOUT])
def test_a_lost_peer_ends_the_execution_and_not_the_agent(number: int) -> None:
    """When the controller withdraws the routes to a dead GPU, its peers see EHOSTUNREACH."""
    assert polled(OSError(number, os.strerror(number))) == (True, ["socket"])


def test_a_run_that_died_with_an_answer_unread_ends_the_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its socket is reset then, not closed (unix(7))."""
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        polled(ConnectionResetError(errno.ECONNRESET, "reset"), control="socket")
    assert ended.value.code == 0


def test_another_error_is_no_lost_peer() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        polled(OSError(errno.EBADF, os.strerror(errno.EBADF)))


def test_a_step_that_a_peer_has_released_is_not_started_again() -> None:
    """The request to run may come late: peers that had theirs have sent already."""
    sends = [SimpleNamespace(missing=missing, released_ns=ns) for missing, ns in SENDS]
    started: list[Any] = []
    agent = Mock(sends=dict(enumerate(sends)), receives={}, open=0, aborted=False)
    agent.program, agent.incoming = {"receives": []}, {}
    agent.start, agent.tcp_counts = started.append, lambda: [0, 0, 0]
    for send in sends:
        send.offset = send.id = send.started_ns = send.sent_ns = send.confirmed_ns = 0
    Agent.run(agent, {"start_ns": 1, "end_ns": 1})
    assert started == [sends[0]]


SENDS = [(0, 0), (0, 5), (1, 0)]
