"""The agent of a GPU proxy: executes one rank's part of a schedule over warm TCP connections.

It runs inside the proxy and needs only Python's standard library. The agent client talks to it
over a Unix socket: one JSON object a line, one answer for each request:

    {"do": "load", ...program...}      connect to the peers       -> {"loaded": true}
    {"do": "run", "start_ns", "end_ns"}  execute the program once  -> {"complete", "broken"}
    {"do": "abort"}                    stop the execution; the answer to its request follows
    {"do": "report"}                   return the records          -> {"complete", "sends", ...}
    {"do": "reset"}                    close all connections       -> {"reset": true}

Reports are work for the processor. They are asked for once all agents have ended, as they would
delay the last arrivals.

The agent exits when the client's end of the socket closes, so nothing outlives a killed run.

On the wire, a transfer is a header (number and length, 8 bytes) and the payload. The receiver
confirms it by sending its number (4 bytes) on the same connection. In a rendezvous, the receiver
first reports ready-to-receive: the number with its highest bit set. One thread serves all sockets
with `epoll`, so transfers on a GPU's HB link and on its NIC proceed concurrently.
"""

import collections
import errno
import gc
import heapq
import json
import os
import resource
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from traffic_gen.agents.roce.endpoint import Endpoint
from traffic_gen.agents.transfers import (
    SLICE_BYTES,
    CheckedPayloads,
    Incoming,
    Outgoing,
    Payloads,
    Receive,
    Send,
)

PORT = 5100
HEADER = struct.Struct("!II")
HELLO = REPLY = struct.Struct("!I")
READY_TO_RECEIVE = 1 << 31
Message = dict[str, Any]
Step = TypeVar("Step", Send, Receive)

# TCP's packets fit into 1500 bytes, also where those of RoCE are longer (tcp(7), TCP_MAXSEG).
SEGMENT_BYTES = 1460
# Wake a receiver once this much has arrived (SO_RCVLOWAT), not for each packet, nor for a header.
RECEIVE_BATCH_BYTES = 128 * 1024
# Offer a sender this window: what waits to be read, and all that its send buffer holds. Where TCP's
# window ends, it cuts a segment in two, and the last one, which leaves on credit, is shorter.
RECEIVE_WINDOW_BYTES = 512 * 1024
# Without Nagle's algorithm.
AT_ONCE = socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
# After a reply, the kernel takes a connection for a dialogue (tcp_event_data_sent), and delays
# acknowledgements by up to 40 ms; a peer with a small send buffer waits for them. Set each time.
ACKNOWLEDGED_AT_ONCE = socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1
# Errors of a socket when the network gives the peer up (ip(7), tcp(7)): routes to it are gone.
UNREACHABLE = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT}
# tcpi_unacked, tcpi_total_retrans, tcpi_rcv_ooopack of struct tcp_info (linux/tcp.h, Linux 5.4).
TCP_COUNTS = struct.Struct("=24xI72xI120xI")
TCP_INFO = socket.IPPROTO_TCP, socket.TCP_INFO, TCP_COUNTS.size
ACKNOWLEDGED_WITHIN_NS = 1_000_000_000
CONNECTED_WITHIN_S = 120  # a hundred thousand connections may open on one processor


class Agent:
    """One rank: its connections, its program, and the loop that executes it."""

    def __init__(self, control: socket.socket, listener: socket.socket) -> None:
        self.control, self.listener = control, listener
        self.poller = select.epoll()
        self.handlers: dict[int, Callable[[int], None]] = {}
        self.outgoing: dict[int, Outgoing] = {}
        self.incoming: dict[int, Incoming] = {}
        self.roce: Endpoint | None = None
        # Why an execution ended early: queue pairs that broke, peers that stopped at once.
        self.failures: list[str] = []
        # The shortest transfer from each peer. Peers may connect before our program is loaded.
        self.shortest_bytes: dict[int, int] = {}
        self.unread, self.requests = bytearray(), collections.deque[bytearray]()
        self.aborted = False
        self.watch(control, self.on_control)
        self.watch(listener, self.on_connection)

    # Requests

    def serve(self) -> None:
        """Answer requests until the client closes the control socket."""
        answers = {"load": self.load, "run": self.run, "report": self.report, "reset": self.reset}
        while request := self.next_request():
            if request["do"] in answers:
                answer = answers[request["do"]](request)
                self.control.sendall(json.dumps(answer).encode() + b"\n")

    def next_request(self) -> Message:
        """Return the next request; serve the sockets until it arrives."""
        while not self.requests:
            self.poll(None)
        return dict(json.loads(self.requests.popleft()))

    def on_control(self, _events: int) -> None:
        """Collect requests; an abort takes effect at once, a closed socket ends the agent."""
        if not (data := self.control.recv(SLICE_BYTES)):
            os._exit(0)
        rest, *others = data.split(b"\n")
        self.unread += rest
        for rest in others:
            self.requests.append(self.unread)
            self.unread = bytearray(rest)
        self.aborted = self.aborted or b'"abort"' in data

    # Connections

    def load(self, program: Message) -> Message:
        """Load a program, and connect to its destinations."""
        self.program, lanes = program, program["lanes"]
        self.prepare()
        for peer, (address, send_buffer) in program["peers"].items():
            if int(peer) not in self.outgoing:
                rank = program["rank"] * lanes + int(peer) % lanes
                self.connect(int(peer), address, send_buffer, rank)
        if settings := program.get("roce"):  # queue pairs with the peers in other HB domains
            settings["keep"] = isinstance(self.payloads, CheckedPayloads)
            if self.roce is None:
                self.roce = Endpoint(settings, self.poller, self)
                self.watch(self.roce.sock, self.roce.on_packets)
            self.roce.settings = settings
            self.roce.connect(self.handlers)
        return {"loaded": True}

    def connect(self, peer: int, address: str, send_buffer: int, rank: int) -> None:
        """Open the connection for this rank's transfers to `peer`, to which it is peer `rank`."""
        sock = socket.create_connection((address, PORT), CONNECTED_WITHIN_S)
        sock.setsockopt(*AT_ONCE)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        sock.sendall(HELLO.pack(rank))
        sock.setblocking(False)
        connection = self.outgoing[peer] = Outgoing(sock)
        self.watch(sock, lambda events: self.on_ready(connection, events))

    def on_connection(self, _events: int) -> None:
        """Accept a connection from a peer, which sends its rank first."""
        sock, _address = self.listener.accept()
        sock.setsockopt(*AT_ONCE)
        sock.settimeout(CONNECTED_WITHIN_S)  # a peer may stop before its rank
        try:
            (rank,) = HELLO.unpack(sock.recv(HELLO.size, socket.MSG_WAITALL))
        except (ConnectionError, TimeoutError, struct.error):
            sock.close()
            self.failures.append("a peer stopped before it sent its rank")
            self.aborted = True
            return
        sock.setblocking(False)
        # The kernel enlarges the receive buffer for it, and keeps it (tcp_set_rcvlowat).
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, RECEIVE_WINDOW_BYTES)
        connection = self.incoming[rank] = Incoming(sock)
        self.expect(rank, connection)
        self.watch(sock, lambda _: self.on_data(connection))

    def watch(self, sock: socket.socket, handler: Callable[[int], None]) -> None:
        """Poll a socket for reading from now on; `handler` gets its events (epoll_ctl(2))."""
        self.poller.register(sock, select.EPOLLIN)
        self.handlers[sock.fileno()] = handler

    def unwatch(self, descriptor: int) -> None:
        """Poll a socket no more."""
        self.poller.unregister(descriptor)
        del self.handlers[descriptor]

    def reset(self, _request: Message) -> Message:
        """Close all connections: ranks move to other GPUs, or a transfer was left unfinished."""
        for sock in [*self.tcp_sockets(), *(self.roce.sockets() if self.roce else ())]:
            if sock.fileno() in self.handlers:
                self.unwatch(sock.fileno())
            sock.close()
        self.outgoing, self.incoming, self.roce = {}, {}, None
        return {"reset": True}

    # One execution of the program

    def run(self, request: Message) -> Message:
        """Execute the program from `start_ns` on, at most until `end_ns`, of CLOCK_MONOTONIC."""
        sources = {entry[1] for entry in self.program["receives"]}
        if self.roce:
            sources -= self.roce.incoming.keys()
        while not sources <= self.incoming.keys() and not self.aborted:
            self.poll(None)  # all have connected: accept the last ones
        cpu_before_s, self.counts_before = time.process_time(), self.transport_counts()
        while (left_ns := request["start_ns"] - time.monotonic_ns()) > 0:
            time.sleep(left_ns / 1e9)
        self.begun_ns = time.monotonic_ns()
        if self.roce:
            self.roce.begin()
        # A peer that began earlier may have released and started some already.
        for send in [s for s in self.sends.values() if not s.missing and not s.released_ns]:
            send.released_ns = request["start_ns"]
            self.start(send)
        waited_before_s = waited_s()  # not sooner, as it would delay the first step
        end_ns = request["end_ns"]
        while self.open and not self.aborted and (left_ns := end_ns - time.monotonic_ns()) > 0:
            most_s = min(3600.0, left_ns / 1e9)  # epoll takes 24 days at most
            if self.roce:
                most_s = self.roce.within_s(most_s)
            self.poll(self.compute(most_s))
        self.complete, self.cpu_s = not self.open, time.process_time() - cpu_before_s
        self.waited_s = waited_s() - waited_before_s
        return {"complete": self.complete, "broken": bool(self.failures)}

    def report(self, _request: Message) -> Message:
        """Return the records of the execution, and reset the state for the next one."""
        self.wait_until_acknowledged()
        before, now = self.counts_before, self.transport_counts()
        answer = {
            "complete": self.complete,
            "begun_ns": self.begun_ns,
            "cpu_s": self.cpu_s,
            "waited_s": self.waited_s,
            "retransmitted": now[1] - before[1],
            "out_of_order": now[2] - before[2],
            "sent_bytes": sum(send.offset for send in self.sends.values()),
            "received_bytes": sum(r.received_bytes for r in self.receives.values()),
            "sends": [[s.id, s.started_ns, s.sent_ns, s.confirmed_ns] for s in self.sends.values()],
            "receives": [[r.id, r.arrived_ns] for r in self.receives.values()],
            "errors": self.payloads.errors() if self.complete else self.failures,
            "queue_pairs": list(self.roce.samples()) if self.roce else [],
        }
        self.prepare()
        return answer

    def prepare(self) -> None:
        """Reset the state for the next execution, before any peer can begin it."""
        program, self.aborted, self.failures = self.program, False, []
        # The old steps need not stay beside the new.
        self.sends, self.receives = {}, {}
        self.due: collections.deque[Send] = collections.deque()
        self.waiting: dict[int, list[Send]] = collections.defaultdict(list)
        self.unready: dict[int | None, list[Receive]] = collections.defaultdict(list)
        self.sends = {entry[0]: Send(*entry) for entry in program["sends"]}
        self.receives = {entry[0]: Receive(*entry) for entry in program["receives"]}
        for send in self.sends.values():
            for earlier in send.after:
                self.waiting[earlier].append(send)
        self.shortest_bytes = {}
        for receive in self.receives.values():
            self.unready[receive.ready].append(receive)
            shortest = self.shortest_bytes.get(receive.peer, receive.size_bytes)
            self.shortest_bytes[receive.peer] = min(receive.size_bytes, shortest)
        self.open = len(self.sends) + len(self.receives)
        self.computing: list[tuple[int, int]] = []  # when a step ends, its number
        # Steps that wait for each processor, in the order of their turns; when it is free again, or
        # 0 while it is not. Steps without a processor take no turns.
        self.turns: dict[int, list[tuple[int, int, int]]] = collections.defaultdict(list)
        self.free_ns: dict[int, int] = collections.defaultdict(lambda: 1)
        for rank, connection in self.incoming.items():
            self.expect(rank, connection)
        check = program.get("check")
        self.payloads = CheckedPayloads(program["rank"], check) if check else Payloads()

    def expect(self, rank: int, connection: Incoming) -> None:
        """Wake up once the shortest transfer of a peer may have arrived whole."""
        connection.least_bytes = HEADER.size + self.shortest_bytes.get(rank, 0)
        set_batch(connection)

    def start(self, send: Send) -> None:
        """Begin a step whose dependencies are done; those that it releases begin one by one.

        A chain of small transfers would else be as deep a recursion.
        """
        self.due.append(send)
        if len(self.due) > 1:
            return
        while self.due:
            self.begin(self.due[0])
            self.due.popleft()

    def begin(self, send: Send) -> None:
        """Queue a transfer on its connection, or its compute for its turn."""
        if send.compute_ns:
            turn = send.turn, send.released_ns, send.id
            heapq.heappush(self.turns[send.processor], turn)
            return
        if self.roce and send.peer in self.roce.outgoing:
            send.payload = self.payloads.whole(send)
            self.roce.start(send)
            return
        connection = self.outgoing[send.peer]
        connection.queue.append(send)
        if len(connection.queue) == 1:
            self.write(connection)

    def take_turns(self) -> None:
        """Begin the steps of compute whose turn it is."""
        for processor, waiting in self.turns.items():
            while waiting and (free_ns := self.free_ns[processor]):
                send = self.sends[heapq.heappop(waiting)[2]]
                send.started_ns = max(send.released_ns, free_ns)
                heapq.heappush(self.computing, (send.started_ns + send.compute_ns, send.id))
                self.free_ns[processor] = int(processor < 0)

    def compute(self, most_s: float) -> float:
        """End steps of compute at their times, even if now is later; return how long to poll."""
        self.take_turns()
        while self.computing and self.computing[0][0] <= time.monotonic_ns():
            end_ns, number = heapq.heappop(self.computing)
            send = self.sends[number]
            send.sent_ns = send.confirmed_ns = end_ns
            if send.processor >= 0:
                self.free_ns[send.processor] = end_ns
            self.done(number, end_ns)
            self.take_turns()
        if not self.computing:
            return most_s if self.open else 0
        left_s = max(0, self.computing[0][0] - time.monotonic_ns()) / 1e9
        # epoll_wait(2) rounds to milliseconds, select(2) does not.
        select.select([self.poller], [], [], min(most_s, left_s))
        return 0

    def done(self, transfer_id: int, moment_ns: int) -> None:
        """Note a confirmation or an arrival; release what still waits for the transfer."""
        self.open -= 1
        for send in self.waiting.pop(transfer_id, ()):
            self.release(send, moment_ns)

    def release(self, send: Send, moment_ns: int) -> None:
        """Note that one condition of a transfer is met; start the transfer if it was the last."""
        send.missing -= 1
        send.released_ns = max(send.released_ns, moment_ns)
        if not send.missing:
            self.start(send)

    def on_ready(self, connection: Outgoing, events: int) -> None:
        """Handle events of the connection to a peer."""
        if events & ~select.EPOLLOUT:  # also errors, which reading raises
            self.on_reply(connection)
        if events & select.EPOLLOUT:
            self.write(connection)

    def write(self, connection: Outgoing) -> None:
        """Write as much as the socket takes; poll it for writing while transfers are queued."""
        while connection.may_send(self.program["window"]):
            send = connection.queue[0]
            if not self.write_one(connection, send):
                break
            connection.queue.popleft()
            connection.unconfirmed += 1
            if self.program["window"] > 1:
                # It may be in the socket's buffer for long.
                self.send_on(send, send.sent_ns, may_be_overtaken=True)
        is_full = connection.may_send(self.program["window"])
        if is_full != connection.is_full and connection.sock.fileno() in self.handlers:
            events = select.EPOLLIN | (select.EPOLLOUT if is_full else 0)
            self.poller.modify(connection.sock, events)
            connection.is_full = is_full

    def send_on(self, send: Send, moment_ns: int, *, may_be_overtaken: bool) -> None:
        """Release the sends behind a transfer that has left for its socket, or for the wire.

        Sends to other peers wait for its confirmation while they could overtake it in the NIC;
        compute always does.
        """
        for later in self.waiting.pop(send.id, ()):
            if later.compute_ns or (may_be_overtaken and later.peer != send.peer):
                self.waiting[send.id].append(later)
            else:
                self.release(later, moment_ns)

    def write_one(self, connection: Outgoing, send: Send) -> bool:
        """Write a transfer; return whether all of it is in the socket's buffer.

        Nothing is written to a lost peer, which ends the execution.
        """
        try:
            if not send.started_ns:
                connection.header = HEADER.pack(send.id, send.size_bytes)
            while send.offset < send.size_bytes:
                payload, now_ns = self.payloads.outgoing(send), time.monotonic_ns()
                ends = send.offset + len(payload) == send.size_bytes
                count = connection.send(payload, ends=ends)
                send.started_ns = send.started_ns or now_ns
                send.offset += count
                if count < len(payload):  # the buffer is full
                    return False
        except BlockingIOError:
            return False
        except OSError as error:
            self.lost(error)
            return False
        send.payload = None
        send.sent_ns = time.monotonic_ns()
        return True

    def on_reply(self, connection: Outgoing) -> None:
        """Handle replies of a peer: a transfer is confirmed, or the peer is ready to receive it."""
        connection.unread += received(connection.sock.recv(4096))
        while len(connection.unread) >= REPLY.size:
            (reply,), now_ns = REPLY.unpack_from(connection.unread), time.monotonic_ns()
            connection.unread = connection.unread[REPLY.size :]
            if reply & READY_TO_RECEIVE:
                self.release(self.known(self.sends, reply ^ READY_TO_RECEIVE), now_ns)
            else:
                connection.unconfirmed -= 1
                self.confirmed(self.known(self.sends, reply), now_ns)
                self.write(connection)

    def on_data(self, connection: Incoming) -> None:
        """Read from a peer: a header, and payload of the transfer that the header announced."""
        transfer = connection.transfer or self.on_header(connection)
        if transfer is None:
            return
        try:
            count = self.payloads.receive(connection)
        except BlockingIOError:  # the header came alone
            set_batch(connection)
            return
        if count == 0:
            raise ConnectionError("a peer closed its connection")
        connection.remaining -= count
        transfer.received_bytes += count
        if not connection.remaining:
            connection.transfer = None
            self.on_arrival(transfer, connection.payload)
            connection.sock.send(REPLY.pack(transfer.id))
        set_batch(connection)

    def on_header(self, connection: Incoming) -> Receive | None:
        """Read the header of a transfer, which may arrive in parts; return the transfer."""
        connection.header += received(connection.sock.recv(HEADER.size - len(connection.header)))
        if len(connection.header) < HEADER.size:
            return None
        transfer_id, connection.remaining = HEADER.unpack(connection.header)
        connection.transfer, connection.header = self.known(self.receives, transfer_id), b""
        if isinstance(self.payloads, CheckedPayloads):
            connection.payload = bytearray(connection.remaining)
        return connection.transfer

    def known(self, steps: dict[int, Step], number: int) -> Step:
        """Return the transfer that a peer names; raise `ConnectionError` if it is none of these."""
        if number not in steps:
            self.failures.append(f"a peer named transfer {number}, which is not in the program")
            raise ConnectionError(self.failures[-1])
        return steps[number]

    def on_arrival(self, receive: Receive, payload: bytearray) -> None:
        """Note a complete transfer, report ready-to-receive, and release dependent sends."""
        receive.arrived_ns = time.monotonic_ns()
        for ready in self.unready.pop(receive.id, ()):
            if self.roce and ready.peer in self.roce.incoming:
                self.roce.tell_ready(ready.peer, ready.id)
            else:
                self.incoming[ready.peer].sock.send(REPLY.pack(ready.id | READY_TO_RECEIVE))
        self.payloads.arrived(receive, payload)
        self.done(receive.id, receive.arrived_ns)

    # What happens on queue pairs

    def left(self, send: Send, now_ns: int) -> None:
        """Release the sends that follow a transfer of which all packets have left."""
        if self.program["window"] > 1:
            self.send_on(send, now_ns, may_be_overtaken=False)

    def confirmed(self, send: Send, now_ns: int) -> None:
        """Note a confirmation."""
        send.confirmed_ns = now_ns
        self.done(send.id, now_ns)

    def ready(self, number: int, now_ns: int) -> None:
        """Note that the receiver of a transfer is ready."""
        self.release(self.sends[number], now_ns)

    def written(self, number: int, offset: int, size: int, content: bytes) -> None:
        """Put a part of a transfer to the others, and note its arrival with the last one."""
        receive = self.receives[number]
        receive.received_bytes += size
        if content:
            receive.content = receive.content or bytearray(receive.size_bytes)
            receive.content[offset : offset + size] = content
        if receive.received_bytes == receive.size_bytes:
            self.on_arrival(receive, receive.content)

    def broken(self, peer: int, number: int, why: str) -> None:
        """End the execution, whose records stay: a queue pair is broken."""
        rank = peer // self.program["lanes"]
        self.failures.append(f"queue pair {number} with rank {rank} broke: {why}")
        self.aborted = True

    def poll(self, timeout_s: float | None) -> None:
        """Serve the sockets that are ready. A lost peer ends the execution, whose records stay."""
        if self.roce:
            self.roce.tick()
            timeout_s = self.roce.within_s(3600.0 if timeout_s is None else timeout_s)
        for descriptor, events in self.poller.poll(timeout_s):
            try:
                self.handlers[descriptor](events)
            except OSError as error:
                if descriptor == self.control.fileno():  # the run died, with an answer unread
                    os._exit(0)
                self.lost(error)
                self.unwatch(descriptor)

    def lost(self, error: OSError) -> None:
        """End the execution, as a peer is lost; raise the error if it says something else."""
        if not isinstance(error, ConnectionError) and error.errno not in UNREACHABLE:
            raise error
        self.aborted = True

    def tcp_sockets(self) -> list[socket.socket]:
        """Return the sockets of TCP connections."""
        return [o.sock for o in self.outgoing.values()] + [i.sock for i in self.incoming.values()]

    def transport_counts(self) -> list[int]:
        """Return this rank's segments in flight, retransmitted, and arrived out of order.

        Packets of queue pairs count among those.
        """
        counts = [TCP_COUNTS.unpack(sock.getsockopt(*TCP_INFO)) for sock in self.tcp_sockets()]
        by_queue_pairs = (0, *self.roce.counts()) if self.roce else (0, 0, 0)
        return [sum(column) for column in zip(by_queue_pairs, *counts, strict=True)]

    def wait_until_acknowledged(self) -> None:
        """If complete, wait until TCP has nothing to retransmit (RFC 8985): counts are final."""
        until_ns = time.monotonic_ns() + ACKNOWLEDGED_WITHIN_NS
        while not self.open and self.transport_counts()[0] and time.monotonic_ns() < until_ns:
            self.poll(0.001)


def waited_s() -> float:
    """Seconds for which this thread was runnable and waited for a core (sched-stats.rst).

    Linux 6.18 counts a sleep beside busy threads as a wait, now and then, when it ends: read it
    after a long sleep, not before.
    """
    with open("/proc/thread-self/schedstat") as file:
        return int(file.read().split()[1]) / 1e9


def set_batch(connection: Incoming) -> None:
    """Wake the receiver once a batch, or the rest of the transfer, has arrived.

    What arrives until then is acknowledged at once.
    """
    batch = min(connection.remaining or connection.least_bytes, RECEIVE_BATCH_BYTES)
    if batch != connection.batch:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, batch)
        connection.batch = batch
    connection.sock.setsockopt(*ACKNOWLEDGED_AT_ONCE)


def received(data: bytes) -> bytes:
    """Return `data`; raise `ConnectionError` if it is empty, as the peer has closed."""
    if not data:
        raise ConnectionError("a peer closed its connection")
    return data


def serve(path: str) -> None:
    """Wait for the client to connect to the Unix socket at `path`, then serve it."""
    listener = socket.create_server(("0.0.0.0", PORT), backlog=1024)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{path}.new")
    server.listen(1)
    os.rename(f"{path}.new", path)  # from here on, the client and peers can connect
    server.settimeout(600)  # hundreds of containers may start first
    control, _address = server.accept()
    server.close()
    # Each queue pair has a socket.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.disable()  # a full collection takes 0.6 ms; the agent makes no reference cycles
    Agent(control, listener).serve()


if __name__ == "__main__":
    serve(sys.argv[1])
