"""The controller's process without a fabric: how it listens, and how it ends."""

import json
import os
import pickle
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyroute2 import IPRoute

from linux.network.namespaces import private_namespace
from linux.processes.lifetime import last_words, running
from model.fabric.spec import FabricKind, FabricSpec
from testbed.nodes.controller_process import read_journal
from tests.integration.control_plane import output
from tests.machine import wait_until
from tests.unit.fabrics import spec

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "127.0.0.1", 6653
SOFTWARE_ERROR = 70  # EX_SOFTWARE of sysexits.h
SMALL = spec(FabricKind.RAIL_ONLY, 2, 2)
# OpenFlow 1.3.5, section 7.1: version, type, length, transaction.
HEADER = struct.Struct("!BBHI")
VERSION = 4
HELLO, ERROR, FEATURES_REQUEST, FEATURES_REPLY = 0, 1, 5, 6


class Controller:
    """A controller's process and its journal."""

    def __init__(self, process: "subprocess.Popen[bytes]", journal: Path, log: Path) -> None:
        self.process = process
        self.journal = journal
        self.log = log

    def events(self, event: str) -> list[dict[str, Any]]:
        return [line for line in read_journal(self.journal) if line["event"] == event]

    def wait_for(self, event: str) -> None:
        """Wait for a line in the journal; the controller must live on until then."""

        def seen() -> bool:
            assert self.process.poll() is None, last_words(self.log)
            return bool(self.events(event))

        wait_until(seen, f"the journal says {event}")

    def last_traceback(self) -> str:
        """Wait until it fails; return its traceback, which must be in journal and log."""
        wait_until(lambda: self.process.poll() is not None, "the controller ends")
        assert self.process.returncode == SOFTWARE_ERROR
        (error,) = self.events("error")
        assert error["traceback"].strip() in self.log.read_text()
        return str(error["traceback"])


class Bench:
    """Starts controllers in a namespace of their own, with proxies that have no links."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.stack = stack

    def proxy(self, name: str) -> int:
        """Start a sleeping process in a new network namespace; return its process id."""
        command = ["unshare", "--net", "sleep", "infinity"]
        process = self.stack.enter_context(running(command, self.folder / f"{name}.log", {}))
        own = os.readlink("/proc/self/ns/net")
        namespace = f"/proc/{process.pid}/ns/net"
        wait_until(lambda: os.readlink(namespace) != own, f"{name} has a namespace of its own")
        return process.pid

    def controller(
        self, name: str, fabric: FabricSpec = SMALL, proxies: int = 0, limits: str = ""
    ) -> Controller:
        """Start a controller; `name` tells it from others of the same test."""
        files = {what: self.folder / f"{name}-{what}" for what in ("fabric", "proxies", "journal")}
        process_ids = {f"d{number}g0": self.proxy(f"d{number}g0") for number in range(proxies)}
        files["fabric"].write_bytes(pickle.dumps(fabric))
        files["proxies"].write_text(json.dumps(process_ids))
        names = map(str, files.values())
        command = ["prlimit", *limits.split(), sys.executable, "-P", "-m", "controller", *names]
        log = self.folder / f"{name}.log"
        process = self.stack.enter_context(running(command, log, {"PYTHONPATH": str(ROOT)}))
        return Controller(process, files["journal"], log)


class FakeSwitch:
    """A minimal OpenFlow switch: it connects, and can refuse messages."""

    def __init__(self, datapath_id: int, stack: ExitStack) -> None:
        self.sock = stack.enter_context(socket.create_connection(ADDRESS, timeout=10))
        self._send(HELLO, b"")
        while self._receive() != FEATURES_REQUEST:
            pass
        self._send(FEATURES_REPLY, struct.pack("!QIBB2xII", datapath_id, 0, 1, 0, 0, 0))

    def _send(self, kind: int, body: bytes) -> None:
        self.sock.sendall(HEADER.pack(VERSION, kind, HEADER.size + len(body), 1) + body)

    def _receive(self) -> int:
        """The type of the next message."""
        head = self.sock.recv(HEADER.size, socket.MSG_WAITALL)
        _version, kind, length, _transaction = HEADER.unpack(head)
        self.sock.recv(length - HEADER.size, socket.MSG_WAITALL)
        return int(kind)

    def refuse(self, kind: int, code: int) -> None:
        """Send an error message (section 7.4.1)."""
        self._send(ERROR, struct.pack("!HH", kind, code) + HEADER.pack(VERSION, 14, 8, 1))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """A stack of contexts, ended in reverse order, in a namespace with only a loopback."""
    with ExitStack() as started, private_namespace(), IPRoute() as netlink:
        netlink.link("set", index=1, state="up")
        with started:
            yield started


@pytest.fixture
def bench(tmp_path: Path, stack: ExitStack) -> Bench:
    return Bench(tmp_path, stack)


def test_an_error_of_a_handler_ends_the_controller_with_its_traceback(
    bench: Bench, stack: ExitStack
) -> None:
    """Ryu itself would log it and go on. Here a switch unknown to the fabric causes it."""
    controller = bench.controller("first")
    controller.wait_for("listening")
    FakeSwitch(99, stack)
    assert "IndexError" in controller.last_traceback()


def test_a_message_that_a_switch_refuses_ends_the_controller(
    bench: Bench, stack: ExitStack
) -> None:
    """Otherwise the installed rules would differ from the desired ones."""
    controller = bench.controller("first")
    controller.wait_for("listening")
    switch = FakeSwitch(1, stack)
    controller.wait_for("connected")
    switch.refuse(kind=5, code=1)  # OFPET_FLOW_MOD_FAILED, OFPFMFC_TABLE_FULL
    message = "rail0 refuses a message: OpenFlow error type 5, code 1"
    assert message in controller.last_traceback()


def test_a_port_that_is_taken_ends_the_controller(bench: Bench) -> None:
    bench.controller("first").wait_for("listening")
    second = bench.controller("second")
    assert "Address already in use" in second.last_traceback()
    assert not second.events("listening")


def test_it_listens_on_the_loopback_alone(bench: Bench) -> None:
    bench.controller("first").wait_for("listening")
    sockets = output("ss", "--no-header", "--listening", "--tcp", "--numeric").splitlines()
    assert [line.split()[3] for line in sockets] == ["127.0.0.1:6653"]


def test_many_proxies_fit_whatever_the_soft_limit_of_open_files(bench: Bench) -> None:
    """Each takes 2 descriptors without links: 12 and 32 stand for 400 and the usual 1024."""
    fabric = spec(FabricKind.RAIL_ONLY, 12, 2)
    bench.controller("first", fabric, 12, "--nofile=32:4096").wait_for("listening")


def test_too_many_proxies_for_the_hard_limit_end_the_controller(bench: Bench) -> None:
    controller = bench.controller("first", spec(FabricKind.RAIL_ONLY, 12, 2), 12, "--nofile=32:32")
    assert "Too many open files" in controller.last_traceback()
