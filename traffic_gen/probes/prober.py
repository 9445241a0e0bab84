"""Send sequenced probes between network namespaces, and record which arrive.

    python -m traffic_gen.probes.prober PLAN.json RECORDS.json

The plan: {"interval_ns", "groups", "pairs": [{"name", "source_pid", "destination_pid", "packet"}]}.
A packet is a whole one of `packet.py`, in hexadecimal; its PSN becomes the sequence number. No two
pairs may have the same addresses and ports.

When all sockets are open it writes the line "probing", and sends probes at each tick of
CLOCK_MONOTONIC until it gets SIGTERM: one of every pair of a group, and of the next group at the
next tick. It then waits `DRAIN_S` for probes in flight and writes the records, all times in
nanoseconds of CLOCK_MONOTONIC: {"ticks", "skipped": ticks without probes, "pairs": [{"name",
"first_ns": when probe 0 was sent, "gap_ns": from each send to the next, "delay_ns": from a probe's
send to its arrival, null if it is lost}]}. A probe that the kernel refuses to send counts as lost.

After a small delay, missed ticks are sent at once; after a large one they are skipped, as a long
burst would lose probes without any fault. The kernel timestamps arrivals, so they are read only now
and then, many with one call. The prober has real-time priority (SCHED_RR) if permitted: without it,
wake-ups were milliseconds late under load.
"""

import array
import ctypes
import gc
import itertools
import json
import os
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from ctypes import Structure, c_size_t, c_void_p
from pathlib import Path
from typing import Any

from linux.files.user_files import cleared
from linux.machine.clocks import Timestamps
from linux.network.namespaces import namespace_of
from linux.network.socket_options import SO_RCVBUFFORCE, SO_SNDBUFFORCE, SO_TIMESTAMPNS
from model.fabric.transport import IP_HEADER_BYTES, UDP_HEADER_BYTES
from traffic_gen.probes.packet import PSN_BYTES, PSN_OFFSET

PR_SET_TIMERSLACK = 29  # linux/prctl.h
TIMER_SLACK_NS = 1000
BUFFER_BYTES = 4 * 1024 * 1024
PSN = slice(PSN_OFFSET, PSN_OFFSET + PSN_BYTES)
# A receiver gets what is behind the UDP header.
PAYLOAD_AT = IP_HEADER_BYTES + UDP_HEADER_BYTES
PSN_IN_PAYLOAD = slice(PSN.start - PAYLOAD_AT, PSN.stop - PAYLOAD_AT)
PSN_MASK = (1 << 8 * PSN_BYTES) - 1
RECEIVE_EVERY_TICKS = 8
MOST_TICKS_BEHIND = 10
DRAIN_S = 0.3
_libc = ctypes.CDLL(None, use_errno=True)


class Pair:
    """A probed pair; `arrived_ns` is 0 if not arrived, and may be shorter than `sent_ns`."""

    def __init__(self, entry: dict[str, Any], sender: socket.socket) -> None:
        self.name: str = entry["name"]
        self.packet = bytearray.fromhex(entry["packet"])
        self.to = socket.inet_ntoa(self.packet[16:20]), 0
        # As in a sockaddr_in: the port, then the address.
        self.source = bytes(self.packet[20:22] + self.packet[12:16])
        self.sent_ns, self.arrived_ns = array.array("q"), array.array("q")
        self.socket = sender

    def arrive(self, number: bytes, moment_ns: int) -> None:
        """Record an arrival; sequence numbers of 24 bits wrap around if a run lasts hours."""
        last = len(self.sent_ns) - 1
        sequence = last - ((last - int.from_bytes(number, "big")) & PSN_MASK)
        if sequence >= 0 and not self.arrived_ns[sequence]:
            self.arrived_ns[sequence] = moment_ns

    def record(self) -> dict[str, Any]:
        """Return the pair's entry in the records."""
        both = zip(self.sent_ns, self.arrived_ns, strict=True)
        return {
            "name": self.name,
            "first_ns": self.sent_ns[0] if self.sent_ns else 0,
            "gap_ns": [after - before for before, after in itertools.pairwise(self.sent_ns)],
            "delay_ns": [arrived - sent if arrived else None for sent, arrived in both],
        }


class Receiver:
    """The receiving socket of a namespace, and its pairs by source port and address."""

    def __init__(self, process_id: int, port: int) -> None:
        self.socket = _socket_in(process_id, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.bind(("", port))
        self.pairs: dict[bytes, Pair] = {}


class _Vector(Structure):  # struct iovec
    _fields_ = (("base", c_void_p), ("length", c_size_t))


class _Message(Structure):  # struct mmsghdr: a struct msghdr, and the received length
    _fields_ = (
        *(("name", c_void_p), ("name_length", c_size_t)),
        *(("vectors", c_void_p), ("vector_count", c_size_t)),
        *(("control", c_void_p), ("control_length", c_size_t), ("flags", c_size_t)),
        ("length", c_size_t),
    )


class Mailbag:
    """Slots for recvmmsg(2): sender (16 bytes), timestamp (32), start of the payload (16)."""

    SLOT = struct.Struct("=2x6s8x16xqq16s")
    COUNT = 64

    def __init__(self) -> None:
        self._slots = (ctypes.c_char * (self.SLOT.size * self.COUNT))()
        self._vectors = (_Vector * self.COUNT)()
        self._messages = (_Message * self.COUNT)()
        for number, vector in enumerate(self._vectors):
            at = ctypes.addressof(self._slots) + number * self.SLOT.size
            vector.base, vector.length = at + 48, 16
            place = ctypes.addressof(vector)
            self._messages[number] = _Message(at, 16, place, 1, at + 16, 32, 0, 0)
        self._fresh = bytes(self._messages)

    def fetch(self, receiver: Receiver) -> Iterator[tuple[bytes, int, int, bytes]]:
        """Yield source, seconds, nanoseconds and payload of all packets that wait at a socket."""
        count, descriptor = self.COUNT, receiver.socket.fileno()
        while count == self.COUNT:
            ctypes.memmove(self._messages, self._fresh, len(self._fresh))
            arguments = self._messages, self.COUNT, socket.MSG_DONTWAIT, None
            count = max(0, _libc.recvmmsg(descriptor, *arguments))
            filled = memoryview(self._slots)[: count * self.SLOT.size]
            yield from self.SLOT.iter_unpack(filled)


class Prober:
    """All pairs of a plan, with their sockets open."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.interval_ns: int = plan["interval_ns"]
        entries, count = plan["pairs"], plan["groups"]
        self._senders: dict[tuple[int, str], socket.socket] = {}
        self.pairs = [Pair(entry, self._sender(entry, shared=count > 1)) for entry in entries]
        self._groups = [self.pairs[first::count] for first in range(count)]
        self.worst_late_ns = self.ticks = self.skipped = self.refused = 0
        self._stopping = False
        self._mailbag, self._timestamps = Mailbag(), Timestamps()
        self._receivers: dict[tuple[int, int], Receiver] = {}
        for entry, pair in zip(entries, self.pairs, strict=True):
            end = entry["destination_pid"], int.from_bytes(pair.packet[22:24], "big")
            if end not in self._receivers:
                self._receivers[end] = Receiver(*end)
            self._receivers[end].pairs[pair.source] = pair

    def _sender(self, entry: dict[str, Any], *, shared: bool) -> socket.socket:
        """Return a sending socket: of the pair alone, or shared by the pairs of its source.

        Packets that are queued at a dead link use up the buffer of their socket alone.
        """
        key = entry["source_pid"], "" if shared else entry["name"]
        if key not in self._senders:
            opened = _socket_in(key[0], socket.SOCK_RAW, socket.IPPROTO_RAW)
            opened.setblocking(False)
            opened.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
            self._senders[key] = opened
        return self._senders[key]

    def stop(self, *_: object) -> None:
        """Stop sending; also a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Probe until `stop`, then receive the probes in flight."""
        due_ns = time.monotonic_ns() + self.interval_ns
        for tick in itertools.count():
            early_ns = due_ns - time.monotonic_ns()
            if early_ns > 0:
                time.sleep(early_ns / 1e9)
            if self._stopping:
                break
            self.worst_late_ns = max(self.worst_late_ns, time.monotonic_ns() - due_ns)
            self._send(*divmod(tick, len(self._groups)))
            if tick % RECEIVE_EVERY_TICKS == 0:
                self._receive()
            due_ns = self._next(due_ns)
        time.sleep(DRAIN_S)
        self._receive()

    def _next(self, due_ns: int) -> int:
        """Return the next tick; skip the missed ones if they are over `MOST_TICKS_BEHIND`."""
        behind = (time.monotonic_ns() - due_ns) // self.interval_ns
        leave_out = behind if behind > MOST_TICKS_BEHIND else 0
        self.ticks += 1 + leave_out
        self.skipped += leave_out
        return due_ns + (leave_out + 1) * self.interval_ns

    def _send(self, sequence: int, group: int) -> None:
        number = (sequence & PSN_MASK).to_bytes(PSN_BYTES, "big")
        clock_ns = time.monotonic_ns
        for pair in self._groups[group]:
            packet = pair.packet
            packet[PSN] = number
            pair.sent_ns.append(clock_ns())
            try:
                pair.socket.sendto(packet, pair.to)
            except OSError:
                self.refused += 1

    def _receive(self) -> None:
        """Receive all waiting probes; of a duplicated probe, the first arrival counts."""
        self._timestamps.renew()
        for pair in self.pairs:
            pair.arrived_ns.extend([0] * (len(pair.sent_ns) - len(pair.arrived_ns)))
        for receiver in self._receivers.values():
            for source, seconds, nanoseconds, payload in self._mailbag.fetch(receiver):
                if (known := receiver.pairs.get(source)) is not None:
                    moment_ns = self._timestamps.moment_ns(seconds * 1_000_000_000 + nanoseconds)
                    known.arrive(payload[PSN_IN_PAYLOAD], moment_ns)


def _socket_in(process_id: int, kind: socket.SocketKind, protocol: int = 0) -> socket.socket:
    with namespace_of(process_id):
        return socket.socket(socket.AF_INET, kind, protocol)


def main(plan: Path, records: Path) -> None:
    """Probe as planned until SIGTERM, then write the records."""
    _libc.prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0)
    with suppress(OSError):  # it needs little processor time, but at once: before the controller
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))
    prober = Prober(json.loads(plan.read_text()))
    signal.signal(signal.SIGTERM, prober.stop)
    gc.disable()
    begun_s = time.monotonic()
    print("probing", flush=True)
    prober.run()
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(
        f"worst lateness {prober.worst_late_ns / 1e6:.3f} ms, ticks skipped {prober.skipped},"
        f" sends refused {prober.refused}, processor {used.ru_utime:.3f} s user and"
        f" {used.ru_stime:.3f} s system in {time.monotonic() - begun_s:.3f} s",
        flush=True,
    )
    pairs = [pair.record() for pair in prober.pairs]
    recorded = {"ticks": prober.ticks, "skipped": prober.skipped, "pairs": pairs}
    with cleared(records).open("x") as file:
        file.write(json.dumps(recorded, separators=(",", ":")))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
