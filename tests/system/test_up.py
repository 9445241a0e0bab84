"""The command line of a fabric that is up: Mininet's commands, and Railbed's own."""

import json
import re
import signal
import subprocess
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from tests.machine import wait_until

RAILBED = str(Path(__file__).parents[2] / "railbed")
SMALL = (
    *("--set", "fabric.kinds=rail-only", "--set", "fabric.domains=2"),
    *("--set", "fabric.domain_size=2", "--set", "workloads.0.size_scale=4000"),
)
# Each with what it must print; `.` does not match ends of lines.
COMMANDS = (
    ("d0g0 ping -c 1 d1g1", r"from 10\.0\.128\.2: icmp_seq=1"),
    ("d0g0 ping -c 1 d0g1", r"from 172\.16\.0\.2: icmp_seq=1"),
    ("d0g0 ip -brief link show dev hb0", r"hb0@\S+ +UP"),
    ("d0g0 ip link set nic0 down", ""),
    ("d0g0 ip link set nic0 up", ""),
    # Its routes are back once the controller has seen the link again.
    ("d0g0 until ping -c 1 -W 1 d1g0 ; do sleep 0.1; done", r"1 received"),
    ("pingpair", r"0/2 lost"),
    ("links", r"d1g1--rail1 \(up\)"),
    ("net", r"rail0 to-d0g0:d0g0 to-d1g0:d1g0"),
    ("py d0g0.cmd('ping -c 1 ' + d1g1.IP())", r"1 packets transmitted, 1 received"),
    ("dpctl dump-flows", r"actions=.*"),
    ("iperfudp", r"agents send TCP"),
    ("iperf d0g0 d1g1", r"d0g0 to d1g1: 1\d\.\d+ Mbit/s"),
    ("source /nowhere", r"source: /nowhere: cannot be read"),
    ("pingpair too many", r"0/2 lost"),
    ("wibble", r"Unknown command: wibble"),
    ("run nothing", r"unknown workload 'nothing'"),
    ("fault d0g0--rail0 down", r"detected after \d+ ms, new paths confirmed after \d+ ms"),
    ("faults", r"nic-link d0g0--rail0: down"),
    ("links", r"d0g0--rail0 \(down at "),
    ("paths d0g0 d1g0", r"taken by 16 of 16 probes: d0g0 > hb0 > d0g1 > rail1 > d1g1 > hb1 > d1g0"),
    ("run all-reduce/hierarchical", r"all-reduce/hierarchical: measured .* s, modeled .* s"),
    ("heal", r"d0g0--rail0 works again"),
    ("paths d0g0 d1g0", r"taken by 16 of 16 probes: d0g0 > rail0 > d1g0"),
    ("fault d0g0--rail0 degrade 50 Gbit/s", r"nic-link d0g0--rail0: degrade to .*: detected"),
    ("heal", r"d0g0--rail0 works again"),
    ("fault d0g0--rail0 blackhole", r"nic-link d0g0--rail0: blackhole: detected"),
    ("heal", r"d0g0--rail0 works again"),
    ("switch rail0 stop", r"rail-switch rail0: kill: detected after"),
    ("switch rail0 start", r"rail0 works again"),
    ("fault d0g1", r"gpu d0g1: down: detected after"),
    ("pingpair", r"d0g0 -> X "),
    ("heal", r"d0g1 works again"),
    ("run all-to-all/direct &", r"executed again and again"),
    ("load", r"d\dg\d > rail\d .*%"),
    ("stop", r"Ended early"),
)

pytestmark = [
    pytest.mark.system,
    pytest.mark.integration,
    pytest.mark.usefixtures("untouched_machine"),
]


def test_every_command_works_and_only_signals_end_the_session(tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    command = [RAILBED, "up", "quickstart", "--live", "--proxies", "process", *SMALL]
    with (
        printed.open("w") as file,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file, stderr=file, text=True) as up,
    ):
        try:
            type_lines(up, tmp_path / "all", *(line for line, _ in COMMANDS))
            look_and_break(printed.read_text())
            up.send_signal(signal.SIGINT)
            # Python drops what it reads while a signal arrives.
            wait_until(lambda: "Interrupt" in printed.read_text(), "Ctrl-C is answered")
            type_lines(up, tmp_path / "after-ctrl-c", "nodes")
            up.send_signal(signal.SIGTERM)
            up.wait(30)
        finally:
            up.kill()
            print(printed.read_text())
    # iproute2 of Debian 13 colours what it prints to a terminal, which the hosts of Mininet have.
    said = re.sub(r"\x1b\[[\d;]*m", "", printed.read_text())
    assert up.returncode == 130
    assert "Traceback" not in said
    assert "The rail-only fabric of quickstart is up" in said
    assert "available nodes are" in said
    begin = 0
    for line, expected in COMMANDS:
        found = re.compile(expected).search(said, begin)
        assert found is not None, f"{line}: {expected} is not in\n{said[begin:]}"
        begin = found.end()


def look_and_break(said: str) -> None:
    """Follow the live view until it shows a fabric, and the fault that it was asked for."""
    found = re.search(r"http://(127\.0\.0\.1:\d+)(/\S+/)", said)
    assert found is not None
    host, path = found.groups()
    with closing(HTTPConnection(host, timeout=20)) as events:
        events.request("GET", f"{path}events")
        answer = events.getresponse()
        fabric = next_event(answer, b"fabric", lambda _: True)
        assert len(fabric["nodes"]) == 4 + 2 + 2
        frame = next_event(answer, b"frame", lambda _: True)
        assert len(frame["use"]) == 2 * len(fabric["links"])
        with closing(HTTPConnection(host, timeout=20)) as asking:
            asking.request("POST", f"{path}ask", json.dumps(["fault", "d1g1--rail1", "down"]))
            assert asking.getresponse().status == 202
        broken = next_event(answer, b"state", lambda state: bool(state["broken"]))
        assert broken["broken"] == {"d1g1--rail1": "down"}
        state = next_event(answer, b"state", lambda state: "Blackout: " in state["said"][-1])
        assert state["broken"] == {"d1g1--rail1": "down"}
        assert state["failed"] == ["d1g1--rail1"]
        blackout = state["blackouts"][-1]
        assert blackout["fault"] == "d1g1--rail1 down"
        assert 0 < blackout["detected_ms"] < blackout["confirmed_ms"]
        lasted_ms = [end - begin for _, begin, end in blackout["pairs"] if begin is not None]
        assert blackout["blackout_ms"] == pytest.approx(max(lasted_ms, default=0.0), abs=0.2)


def next_event(answer: HTTPResponse, kind: bytes, accepts: Callable[[Any], bool]) -> Any:
    """Read server-sent events up to one of a kind that is accepted; return its data."""
    while line := answer.readline():
        data = json.loads(answer.readline().removeprefix(b"data: "))
        answer.readline()
        if line == b"event: " + kind + b"\n" and accepts(data):
            return data
    raise AssertionError(f"the live view ended before {kind!r}")


def type_lines(session: subprocess.Popen[str], mark: Path, *lines: str) -> None:
    """Type these lines, and wait until they are done."""
    assert session.stdin is not None
    session.stdin.write("\n".join([*lines, f"sh touch {mark}", ""]))
    session.stdin.flush()
    wait_until(mark.exists, f"the session comes to {mark.name}", 60)
