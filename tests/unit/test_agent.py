"""The agent of a GPU proxy: a peer that is lost ends the execution, and nothing else does."""

import errno
import itertools
import json
import os
import socket
import sys
import time
import tracemalloc
from collections import defaultdict
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock, patch

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from model.workload.trace import MOST_STEPS, MOST_WAITS
from testbed.nodes.gpu_proxies import LIMITS
from traffic_gen.agents.agent import (
    HEADER,
    HELLO,
    RECEIVE_BATCH_BYTES,
    RECEIVE_WINDOW_BYTES,
    REPLY,
    TCP_COUNTS,
    Agent,
    set_batch,
)
from traffic_gen.agents.transfers import (
    PERIOD,
    CheckedPayloads,
    Incoming,
    Outgoing,
    Payloads,
    Send,
    contribution,
)

PEER, CONTROL = 7, 8  # file descriptors


def polled(error: OSError, descriptor: int = PEER) -> tuple[bool, list[int]]:
    """Serve one socket that raises an error; return whether that aborts, and what is let go."""
    gone: list[int] = []

    def raises(_events: int) -> None:
        raise error

    agent = SimpleNamespace(
        poller=SimpleNamespace(poll=lambda _timeout_s: [(descriptor, 1)]),
        handlers={descriptor: raises},
        unwatch=gone.append,
        aborted=False,
        roce=None,
        control=SimpleNamespace(fileno=lambda: CONTROL),
    )
    agent.lost = partial(Agent.lost, cast(Any, agent))
    Agent.poll(cast(Any, agent), 0)
    return agent.aborted, gone


@pytest.mark.parametrize("number", [errno.ECONNRESET, errno.EHOSTUNREACH, errno.ETIMEDOUT])
def test_a_lost_peer_ends_the_execution_and_not_the_agent(number: int) -> None:
    """When the controller withdraws the routes to a dead GPU, its peers see EHOSTUNREACH."""
    assert polled(OSError(number, os.strerror(number))) == (True, [PEER])


def test_a_run_that_died_with_an_answer_unread_ends_the_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its socket is reset then, not closed (unix(7))."""
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        polled(ConnectionResetError(errno.ECONNRESET, "reset"), CONTROL)
    assert ended.value.code == 0


def test_another_error_is_no_lost_peer() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        polled(OSError(errno.EBADF, os.strerror(errno.EBADF)))


def test_a_step_that_a_peer_has_released_is_not_started_again() -> None:
    """The request to run may come late: peers that had theirs have sent already."""
    sends = [SimpleNamespace(missing=missing, released_ns=ns) for missing, ns in SENDS]
    started: list[Any] = []
    agent = Mock(sends=dict(enumerate(sends)), receives={}, open=0, aborted=False, roce=None)
    agent.program, agent.incoming = {"receives": []}, {}
    agent.start, agent.transport_counts = started.append, lambda: [0, 0, 0]
    for send in sends:
        send.offset = send.id = send.started_ns = send.sent_ns = send.confirmed_ns = 0
    Agent.run(agent, {"start_ns": 1, "end_ns": 1})
    assert started == [sends[0]]


SENDS = [(0, 0), (0, 5), (1, 0)]


class FullSocket:
    """A socket whose buffer has room for a few bytes at a time, or for none."""

    def __init__(self, rooms: list[int]) -> None:
        self.rooms, self.written, self.reply = iter(rooms), b"", b""
        self.segments: list[int] = []

    def recv(self, _most: int) -> bytes:
        return self.reply

    def sendmsg(self, parts: list[bytes | memoryview], _ancillary: tuple[()], flags: int) -> int:
        if not (room := next(self.rooms, 1000)):
            raise BlockingIOError
        accepted = b"".join(parts)[:room]
        self.written += accepted
        # As in tcp_sendmsg_locked of net/ipv4/tcp.c: the flag counts if all bytes are taken.
        if flags & socket.MSG_EOR and len(accepted) == sum(map(len, parts)):
            self.segments.append(len(self.written))
        return len(accepted)


@given(st.integers(1, 50), st.lists(st.integers(0, 12)))
def test_a_transfer_is_written_whole_through_a_full_buffer(size: int, rooms: list[int]) -> None:
    sock = FullSocket(rooms)
    connection, send = Outgoing(cast(Any, sock)), Send(3, 1, size, [], False, [], 0, -1, 0)
    agent = cast(Any, SimpleNamespace(payloads=Payloads()))
    while not Agent.write_one(agent, connection, send):
        assert bool(send.started_ns) == bool(sock.written)
    assert sock.written == HEADER.pack(3, size) + bytes(size)
    assert send.offset == size
    assert sock.segments == [len(sock.written)]


@pytest.mark.parametrize("number", [errno.ECONNRESET, errno.EPIPE, errno.EHOSTUNREACH])
def test_a_peer_that_is_lost_before_the_first_byte_ends_the_execution(number: int) -> None:
    sock = Mock(sendmsg=Mock(side_effect=OSError(number, os.strerror(number))))
    sock.getsockopt = Mock(return_value=bytes(TCP_COUNTS.size))
    ours, theirs = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listener, ours, theirs:
        agent = Agent(ours, listener)
        with agent.poller:
            sends = [[0, 1, 8, [], 0, [], 0, -1, 0]]
            agent.program = {"rank": 0, "sends": sends, "receives": [], "window": 8}
            agent.prepare()
            agent.outgoing[1] = Outgoing(sock)
            now_ns = time.monotonic_ns()
            answer = agent.run({"start_ns": now_ns, "end_ns": now_ns + 10**10})
            assert answer == {"complete": False, "broken": False}


@given(st.lists(st.integers(1, 10**6), min_size=1))
def test_a_receiver_is_woken_by_the_shortest_transfer_and_not_by_a_header(sizes: list[int]) -> None:
    receives: list[tuple[Any, ...]] = [
        (number, 1, size, None, [], False) for number, size in enumerate(sizes)
    ]
    connection = Incoming(Mock())
    agent = Mock(program={"rank": 0, "sends": [], "receives": receives}, incoming={1: connection})
    agent.expect = partial(Agent.expect, agent)
    Agent.prepare(agent)
    assert connection.batch == min(HEADER.size + min(sizes), RECEIVE_BATCH_BYTES)


def test_a_sender_is_offered_a_window_for_all_that_its_buffer_holds() -> None:
    ours, theirs = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listener, ours, theirs:
        agent = Agent(ours, listener)
        with agent.poller, socket.create_connection(listener.getsockname()) as peer:
            peer.sendall(HELLO.pack(3))
            agent.on_connection(0)
            with agent.incoming[3].sock as sock:
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= RECEIVE_WINDOW_BYTES
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == HEADER.size


def test_a_receiver_that_replies_acknowledges_what_follows_at_once() -> None:
    """The kernel would delay acknowledgements, as those of a dialogue (TCP_QUICKACK of tcp(7))."""
    quick = socket.IPPROTO_TCP, socket.TCP_QUICKACK
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as peer,
        listener.accept()[0] as sock,
    ):
        for _ in range(5):
            peer.sendall(b"data")
            sock.recv(4)
            sock.sendall(b"reply")
            peer.recv(5)
        assert not sock.getsockopt(*quick)
        set_batch(Incoming(sock))
        assert sock.getsockopt(*quick)


@given(st.lists(st.text(), min_size=1), st.data())
def test_requests_arrive_in_any_pieces(texts: list[str], data: st.DataObject) -> None:
    requests = [{"do": "any", "text": text} for text in texts]
    stream = b"".join(json.dumps(request).encode() + b"\n" for request in requests)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    pieces = [stream[a:b] for a, b in itertools.pairwise([0, *cuts, len(stream)]) if a < b]
    ours, theirs = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listener, ours, theirs:
        agent = Agent(theirs, listener)
        with agent.poller:
            for piece in pieces:
                ours.sendall(piece)
                agent.poll(None)
            assert [agent.next_request() for _ in requests] == requests


def test_the_largest_traces_fit_into_a_container() -> None:
    """All steps and all dependencies of one may be of one rank."""
    steps, waits, deep = 3000, 3000 * 8, 8
    numbers = range(10**6, 10**6 + steps)
    more: tuple[Any, ...] = (0, [], 0, -1, 0)
    alone = [[n, 1, 4096, [], *more] for n in numbers]
    behind = [[n, 1, 4096, [*range(n - deep, n)], *more] for n in numbers]
    receives: list[Any] = [[n, 1, 4096, None, [], 0] for n in range(2 * 10**6, 2 * 10**6 + steps)]
    send_bytes, receive_bytes = peak_bytes(alone, []) / steps, peak_bytes([], receives) / steps
    wait_bytes = (peak_bytes(behind, []) - peak_bytes(alone, [])) / waits
    needed = MOST_STEPS * max(send_bytes, receive_bytes) + MOST_WAITS * wait_bytes
    assert needed < int(str(LIMITS["mem_limit"]).removesuffix("g")) * 2**30


def peak_bytes(sends: list[Any], receives: list[Any]) -> int:
    """The most memory of an agent that loads a program, and reports two executions."""
    program = {"rank": 0, "lanes": 1, "peers": {}, "sends": sends, "receives": receives}
    line = bytearray(json.dumps({"do": "load", **program}).encode())
    ours, theirs = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listener, ours, theirs:
        agent = Agent(theirs, listener)
        with agent.poller:
            tracemalloc.start()
            agent.requests.append(line)
            agent.load(agent.next_request())
            for _ in range(2):
                agent.complete, agent.begun_ns, agent.cpu_s, agent.waited_s = True, 1, 0.0, 0.0
                agent.counts_before = agent.transport_counts()
                for number, step in enumerate((*agent.sends.values(), *agent.receives.values())):
                    for moment in ("released_ns", "started_ns", "sent_ns", "arrived_ns"):
                        if hasattr(step, moment):
                            setattr(step, moment, 10**12 + number)
                json.dumps(agent.report({})).encode()
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    return peak


def test_an_unknown_transfer_ends_the_execution_and_is_reported() -> None:
    ours, theirs = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listener, ours, theirs:
        agent = Agent(ours, listener)
        with agent.poller, socket.create_connection(listener.getsockname()) as peer:
            receives: list[Any] = [[0, 3, 8, None, [], False]]
            agent.program = {"rank": 0, "sends": [], "receives": receives, "window": 8}
            agent.prepare()
            peer.sendall(HELLO.pack(3) + HEADER.pack(7, 8) + bytes(8))
            now_ns = time.monotonic_ns()
            answer = agent.run({"start_ns": now_ns, "end_ns": now_ns + 10**10})
            assert answer == {"complete": False, "broken": True}
            agent.counts_before, agent.transport_counts = [0, 1, 5], lambda: [0, 3, 9]  # type: ignore[method-assign]
            told = agent.report({})
            assert told["errors"] == ["a peer named transfer 7, which is not in the program"]
            assert (told["retransmitted"], told["out_of_order"]) == (2, 4)
            agent.incoming[3].sock.close()


RANKS = st.lists(st.integers(0, 4095), min_size=1, max_size=20, unique=True)


@given(RANKS, st.integers(0, 5000), st.integers(1, 70_000))
def test_real_data_is_the_sum_of_what_ranks_contribute(
    ranks: list[int], chunk: int, count: int
) -> None:
    alone = [contribution([rank], chunk, count) for rank in ranks]
    summed = contribution(ranks, chunk, count)
    for element in {0, count // 2, min(count, PERIOD) - 1, count - 1}:
        assert summed[element] == sum(one[element] for one in alone)
    assert len(summed) == count


@given(RANKS, st.integers(0, 4095), st.integers(0, 5000), st.integers(1, 5000))
def test_wrong_ranks_and_wrong_chunks_have_other_data(
    ranks: list[int], other: int, chunk: int, later: int
) -> None:
    right = contribution(ranks, chunk, 1)
    assert contribution(ranks, chunk + later, 1) != right
    assume(other not in ranks)
    assert contribution([*ranks[1:], other], chunk, 1) != right
    assert contribution([*ranks, other], chunk, 1) != right


def test_no_two_ranks_contribute_the_same() -> None:
    assert len({contribution([rank], 0, 1)[0] for rank in range(4096)}) == 4096


def test_wrong_elements_are_told() -> None:
    payloads = CheckedPayloads(
        0, {"elements": [3, 2], "initial": [0], "expected": [(0, [0]), (1, [0, 1])]}
    )
    assert payloads.errors() == ["chunk 1 did not arrive"]
    payloads.chunks[1] = contribution([0, 1], 1, 2)
    assert payloads.errors() == []
    payloads.chunks[0][2] = 7
    assert payloads.errors() == ["chunk 0, element 2: must be 19.0, got 7.0"]


@pytest.mark.parametrize("begun", [b"", b"\0\0"])
@pytest.mark.parametrize("closes", [True, False])
def test_a_peer_that_stops_before_its_rank_ends_the_execution_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, begun: bytes, closes: bool
) -> None:
    monkeypatch.setattr("traffic_gen.agents.agent.CONNECTED_WITHIN_S", 0.1)
    ours, theirs = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listener, ours, theirs:
        agent = Agent(ours, listener)
        with agent.poller, socket.create_connection(listener.getsockname()) as peer:
            peer.sendall(begun)
            if closes:
                peer.close()
            agent.poll(None)
            assert (agent.aborted, agent.incoming) == (True, {})
            assert agent.failures == ["a peer stopped before it sent its rank"]
            assert listener.fileno() in agent.handlers


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1), st.booleans())
def test_compute_and_sends_that_could_overtake_wait_until_a_transfer_is_confirmed(
    steps: list[tuple[int, bool]], may_be_overtaken: bool
) -> None:
    sent = Send(0, 1, 8, [], False, [], 0, -1, 0)
    behind = [
        Send(number, peer, 8, [0], False, [], 5 * computes, -1, 0)
        for number, (peer, computes) in enumerate(steps, 1)
    ]
    agent = Mock(waiting=defaultdict(list, {0: list(behind)}), open=1)
    agent.release = lambda send, _ns: released.append(send)
    released: list[Send] = []
    Agent.send_on(agent, sent, 7, may_be_overtaken=may_be_overtaken)
    assert released == [
        send
        for send in behind
        if not send.compute_ns and (send.peer == sent.peer or not may_be_overtaken)
    ]
    Agent.done(agent, sent.id, 9)
    assert sorted(send.id for send in released) == [send.id for send in behind]


def test_a_chain_of_small_transfers_is_no_deep_recursion() -> None:
    chain = [[number, 1, 8, [number - 1][:number], 0, [], 0, -1, 0] for number in range(2000)]
    ours, theirs = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listener, ours, theirs:
        agent = Agent(ours, listener)
        with agent.poller:
            agent.program = {"rank": 0, "sends": chain, "receives": [], "window": len(chain)}
            agent.prepare()
            agent.outgoing[1] = Outgoing(cast(Any, FullSocket([])))
            agent.start(agent.sends[0])
            assert [send.sent_ns > 0 for send in agent.sends.values()] == [True] * len(chain)


@given(st.integers(1, 4), st.integers(1, 8))
def test_no_more_than_a_window_of_transfers_is_unconfirmed(window: int, count: int) -> None:
    ours, theirs = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listener, ours, theirs:
        agent = Agent(ours, listener)
        with agent.poller:
            sends = [[number, 1, 8, [], 0, [], 0, -1, 0] for number in range(count)]
            agent.program = {"rank": 0, "sends": sends, "receives": [], "window": window}
            agent.prepare()
            sock = FullSocket([])
            connection = agent.outgoing[1] = Outgoing(cast(Any, sock))
            for send in agent.sends.values():
                agent.start(send)
            for confirmed in range(count):
                written = [send.id for send in agent.sends.values() if send.sent_ns]
                assert written == list(range(min(count, confirmed + window)))
                sock.reply = REPLY.pack(confirmed)
                agent.on_reply(connection)
            assert agent.open == 0


@pytest.mark.parametrize(("now_ns", "most_s", "waits_s"), [
    (4_250_000_000, 9.0, 0.75), (4_250_000_000, 0.5, 0.5), (6_000_000_000, 9.0, 0),
])  # fmt: skip
def test_an_agent_that_computes_waits_until_the_end_of_its_step(
    now_ns: int, most_s: float, waits_s: float
) -> None:
    agent = Mock(computing=[(5_000_000_000, 0)])
    with (
        patch("traffic_gen.agents.agent.time.monotonic_ns", side_effect=[4_000_000_000, now_ns]),
        patch("traffic_gen.agents.agent.select.select") as waited,
    ):
        assert Agent.compute(agent, most_s) == 0
    waited.assert_called_once_with([agent.poller], [], [], waits_s)


def test_a_queue_pair_that_breaks_ends_the_execution_with_its_reason() -> None:
    agent = Mock(program={"lanes": 2}, failures=[], aborted=False)
    Agent.broken(agent, 7, 1, "no progress")
    assert agent.aborted
    assert agent.failures == ["queue pair 1 with rank 3 broke: no progress"]


@pytest.mark.parametrize("window", [1, 8])
def test_what_has_left_a_queue_pair_releases_all_sends_if_a_window_has_room(window: int) -> None:
    sent, *behind = [Send(number, number, 8, [0], False, [], 0, -1, 0) for number in range(4)]
    agent = Mock(program={"window": window}, waiting=defaultdict(list, {0: list(behind)}))
    agent.send_on = partial(Agent.send_on, agent)
    Agent.left(agent, sent, 7)
    released = [called.args for called in agent.release.call_args_list]
    assert released == [(send, 7) for send in behind] * (window > 1)
