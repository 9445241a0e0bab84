"""The run's side of the live view: starts the page's server, and tells it of runs and sessions."""

import json
import os
import re
import secrets
import select
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import isfinite
from typing import Any

from execution.cases.emulation import Experiment
from execution.cases.progress import Listener
from execution.session.command_line import Audience, Commands, modes, targets
from execution.session.session import FaultSeen, Session
from linux.files.program_files import MODULES_HERE, module_command
from linux.processes.lifetime import dies_with_us, end
from model.errors import InputError, Problem, RailbedError
from model.fabric.topology import LinkKind, NodeKind, Topology, lane_of
from model.faults import FaultMode
from results.verdicts.verdict import Verdict
from testbed.nodes.openvswitch import DATABASE
from traffic_gen.probes.blackout import Blackout

LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = frozenset({LOOPBACK, "localhost", "::1"})
LOWEST_PRIORITY = 19
END_S, SHOW_S = 3, 5
# Python refuses to parse thousands of digits.
PORT = re.compile("[0-9]{1,5}")


Address = tuple[str, int]
"""The host and the port of the page; port 0 is any free one."""


def parse_address(text: str) -> Address:
    """An address as users write it: `127.0.0.1`, `:8080`, `192.0.2.7:8080`."""
    host, _, port = text.partition(":")
    if port and not (PORT.fullmatch(port) and int(port) < 2**16):
        what = f"port must be 0 to {2**16 - 1}, got {port!r}"
        raise InputError(Problem("--live-at", what, "use ADDRESS, or ADDRESS:PORT"))
    return host or LOOPBACK, int(port or 0)


class LiveFeed:
    """Sends messages to the page's server; never waits for it during a measurement."""

    def __init__(self, url: str, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None  # a pipe, as asked for
        self.url, self._process = url, process
        self._pipe = process.stdin.fileno()
        self._listens = True
        os.set_blocking(self._pipe, False)

    @property
    def process_id(self) -> int:
        """The process id of the server, for measurements of its cost."""
        return self._process.pid

    def tell(self, message: dict[str, Any]) -> None:
        """Write a line at once; drop it if the server is far behind or the line is long."""
        line = json.dumps(message).encode() + b"\n"
        if self._listens and len(line) <= select.PIPE_BUF:
            with suppress(BlockingIOError, BrokenPipeError):
                os.write(self._pipe, line)

    def show(self, fabric: Experiment | None) -> None:
        """Show a fabric that is up, or none any more; waits until the server has read most of it.

        A server that does not read for `SHOW_S` gets no further messages.
        """
        self.tell_long({"fabric": None if fabric is None else fabric_message(fabric)})

    def tell_long(self, message: dict[str, Any]) -> None:
        """Write a line of any length, as `show` does; no other thread may tell meanwhile."""
        left = json.dumps(message).encode() + b"\n"
        while left and self._listens:
            self._listens = bool(select.select([], [self._pipe], [], SHOW_S)[1])
            try:
                left = left[os.write(self._pipe, left) if self._listens else 0 :]
            except BrokenPipeError:
                self._listens = False

    def answer(self, execute: Callable[[Sequence[str]], None]) -> None:
        """Call `execute` with the words of each command that a page sends, in a thread."""

        def listen() -> None:
            assert self._process.stdout is not None  # a pipe, as asked for
            with self._process.stdout as asked:
                for line in asked:
                    execute(json.loads(line))

        threading.Thread(target=listen, daemon=True).start()


def fabric_message(fabric: Experiment) -> dict[str, Any]:
    """The message from which the server reads and draws a fabric, in the order of its links.

    `interfaces` are the upper ends' names, `ends` the namespace (a GPU's name, "" for switches) and
    the kernel's index of each link's lower end and upper end. `process_ids` has a process in each
    namespace.
    """
    bed, topology = fabric.bed, fabric.topology
    switches = bed.watch.process_id(DATABASE)
    return {
        "picture": picture(topology),
        "interfaces": [link.upper.interface for link in topology.links],
        "ends": [
            bed.links.key_of(port) for link in topology.links for port in (link.lower, link.upper)
        ],
        "process_ids": {"": switches, **bed.process_ids},
        "journal": str(bed.controller.journal),
    }


@contextmanager
def live_feed(address: Address = (LOOPBACK, 0)) -> Iterator[LiveFeed]:
    """Serve the page for as long as the context lasts; raises `InputError` if that is impossible.

    Everybody with the page's address, which has a secret token, can look; and give commands if a
    session takes them: the server refuses those to a run.
    """
    token = secrets.token_urlsafe(16)
    with _listening(address) as listening:
        host, port = listening.getsockname()[:2]
        process = _start(listening)
        feed = LiveFeed(f"http://{host}:{port}/{token}/", process)
        feed.tell({"token": token, "hosts": sorted({*LOOPBACK_NAMES, host})})
    try:
        yield feed
    finally:
        _end(process)


def _listening(address: Address) -> socket.socket:
    """A listening socket in the machine's own namespace, at one address."""
    host, port = address
    try:
        listening = socket.create_server(address)
    except OSError as error:
        what = f"{host}:{port}: live view cannot be served: {error.strerror}"
        raise InputError(Problem("--live-at", what, "name an address of this machine")) from error
    if listening.getsockname()[0] == "0.0.0.0":  # of many spellings: 0, 0x0, names
        listening.close()
        what = f"{host} is every address; the page needs one"
        raise InputError(Problem("--live-at", what, "name one address of this machine"))
    return listening


def _start(listening: socket.socket) -> "subprocess.Popen[bytes]":
    descriptor = listening.fileno()
    program = module_command("execution.live.server", descriptor)
    return subprocess.Popen(
        dies_with_us(["nice", "-n", str(LOWEST_PRIORITY), *program]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **MODULES_HERE},
        pass_fds=[descriptor],
        start_new_session=True,
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the server by the end of its input, or else by force."""
    assert process.stdin is not None  # a pipe, as asked for
    with suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        end(process)


class LiveRun(Listener):
    """Follows a run for the page, and passes its progress on to another listener."""

    def __init__(self, feed: LiveFeed, listener: Listener, executions: int) -> None:
        self._feed, self._listener = feed, listener
        self._done, self._executions = 0, executions
        feed.tell({"executions": executions})

    def step(self, what: str) -> None:
        """Send the step."""
        self._listener.step(what)
        self._feed.tell({"step": what})

    def done(self, what: str) -> None:
        """Count an execution."""
        self._listener.done(what)
        self._done += 1
        self._executions = max(self._executions, self._done)
        self._feed.tell({"done": self._done, "executions": self._executions})

    def show(self, fabric: Experiment | None) -> None:
        """Show a fabric, or none."""
        self._feed.show(fabric)

    def judged(self, case: str, verdict: Verdict, ratio: float | None) -> None:
        """Show the verdict of a case."""
        self._feed.tell({"verdict": {"case": case, "verdict": verdict.value, "ratio": ratio}})


class PageAudience(Audience):
    """The page as the audience of a session: it sees faults and answers, and gives commands."""

    def __init__(self, feed: LiveFeed) -> None:
        self._feed = feed
        # Held while a command of the page is executed.
        self._executing = threading.Lock()
        self._has_ended = False

    def follow(self, session: Session, commands: Commands) -> None:
        """Show the fabric and its workloads, and begin to execute the page's commands."""
        self._feed.show(session.fabric)
        workloads = list(commands.workloads)
        step = "The fabric is up, and takes commands from here and from its command line."
        self._feed.tell_long({"interactive": True, "workloads": workloads, "step": step})
        known: dict[str, Callable[[Sequence[str]], None]] = {
            "fault": commands.fault,
            "heal": commands.heal,
            "stop": commands.stop,
            "run": lambda words: commands.run([*words, "&"]),
        }

        def execute(words: Sequence[str]) -> None:
            name, *rest = words
            try:
                with self._executing:
                    if self._has_ended:
                        raise InputError(Problem(name, "the fabric is being taken down"))
                    known[name](rest)
            except RailbedError as error:
                self.said(str(error))
            except Exception as error:
                self.said(f"{name}: {type(error).__name__}: {error}")

        self._feed.answer(execute)

    def changed(self, session: Session) -> None:
        """Show the faults that last, and the rates in bit/s of degraded links."""
        broken = {fault.target: fault.mode.value for fault in session.faults}
        self._feed.tell({"broken": broken, "degraded": dict(session.health.rates_bps)})

    def saw(self, seen: FaultSeen) -> None:
        """Show a fault's blackouts."""
        self._feed.tell({"blackout": blackout_message(seen)})

    def said(self, text: str) -> None:
        """Show the answer of a command: as much of its beginning as one write can carry."""
        while len(json.dumps({"said": text})) >= select.PIPE_BUF:
            text = text[: len(text) * 3 // 4] + "…"
        self._feed.tell({"said": text})

    def ended(self) -> None:
        """Show the end, and refuse the page's commands after the one that is executed."""
        self._feed.tell({"interactive": False, "step": "The fabric is being taken down."})
        with self._executing:
            self._has_ended = True


def blackout_message(seen: FaultSeen) -> dict[str, Any]:
    """Return the message of a fault: milliseconds since its begin, `None` for events not seen.

    Each pair has the begin and the end of its longest blackout; both are `None` without one.
    """
    longest_ms = seen.blackout_ms
    return {
        "fault": seen.fault.name,
        "detected_ms": seen.times.detected_ms,
        "confirmed_ms": seen.times.confirmed_ms,
        "probed": bool(seen.blackouts),
        "blackout_ms": longest_ms if longest_ms is not None and isfinite(longest_ms) else None,
        "pairs": [
            _span(name, blackout, seen.begun_ns) for name, blackout in seen.blackouts.items()
        ],
    }


def _span(name: str, blackout: Blackout | None, begun_ns: int) -> list[str | float | None]:
    moments_ns = (blackout.begin_ns, blackout.end_ns) if blackout else (None, None)
    return [name, *(None if ns is None else round((ns - begun_ns) / 1e6, 1) for ns in moments_ns)]


def picture(topology: Topology) -> dict[str, Any]:
    """The JSON object of a fabric's nodes and links, links in the topology's order.

    Columns are local ranks, rows are domains; rail switches stand above their column.
    """
    spec = topology.spec
    return {
        "kind": spec.kind.value,
        "domains": spec.domains,
        "domain_size": spec.domain_size,
        "lanes": spec.lanes,
        "scale": spec.bandwidth_scale,
        "nodes": list(_nodes(topology)),
        "links": [
            {
                "name": link.name,
                "kind": link.kind.value,
                "lower": link.lower.node,
                "upper": link.upper.node,
                "rate_bps": link.rate_bps,
                "lane": lane_of(link) if link.kind is LinkKind.NIC else 0,
            }
            for link in topology.links
        ],
        # The modes that a click can choose: degrading a link needs a rate.
        "modes": {
            name: [mode.value for mode in modes(kind) if mode is not FaultMode.DEGRADE]
            for name, kind in targets(topology).items()
        },
    }


def _hb_switch(topology: Topology, name: str, level: int) -> dict[str, Any]:
    """An HB switch below the GPUs that it serves, of the second level below its leaves."""
    gpus = [gpu for link in topology.links_below(name) for gpu in topology.gpus_below(link)]
    return {
        "name": name,
        "kind": NodeKind.HB_SWITCH.value,
        "row": gpus[0].domain,
        "column": None,
        "first": gpus[0].rail,
        "columns": len(gpus),
        "level": level if topology.hb_leaves else 0,
    }


def _nodes(topology: Topology) -> Iterator[dict[str, Any]]:
    for gpu in topology.gpus:
        yield {"name": gpu.name, "kind": NodeKind.GPU.value, "row": gpu.domain, "column": gpu.rail}
    for level, names in enumerate((topology.hb_leaves, topology.hb_switches)):
        yield from (_hb_switch(topology, name, level) for name in names)
    for switch in topology.switches:
        yield {
            "name": switch.name,
            "kind": switch.kind.value,
            "row": None,
            "column": switch.rail,
            "tier": topology.tier_of[switch.name],
            "index": switch.index,
        }
