"""The live view without a fabric: the page's state, the guard, what a page may ask, addresses."""

import asyncio
import json
import select
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from http.client import HTTPConnection
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.run import refuse_outside
from execution.live.feed import (
    LOOPBACK_NAMES,
    Address,
    LiveFeed,
    PageAudience,
    blackout_message,
    live_feed,
    parse_address,
    picture,
)
from execution.live.link_reader import Reading
from execution.live.page_state import PageState, cpu_verdict, event_line, frame
from execution.live.server import FILES, HEADERS, LONGEST, PAGE, Guard, LiveServer, parse_asked
from execution.session.command_line import parse_fault
from execution.session.session import MOST_PROBED, FaultSeen
from linux.network.counters import parse_carried
from model.errors import InputError
from model.fabric.build import build_topology
from model.fabric.health import HEALTHY
from model.fabric.spec import COMPARED, FabricKind
from model.faults import Component, Fault, FaultMode, health_under
from tests.unit.fabrics import spec
from tests.unit.test_interactive import BEGUN_NS, TIMES, blackouts
from traffic_gen.probes.blackout import Blackout

TOKEN = "a-token"
OWN = {"host": "127.0.0.1:8000"}
NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
to-d0g0: 1500       2    0    0    0     0          0         0     3000       3    0    0
    lo:       0       0    0    0    0     0          0         0        0       0    0    0
"""


def reading(s: float, carried: tuple[int, ...], idle_s: float = 0.0) -> Reading:
    return Reading(s, carried, (0, 700), 3, idle_s, 0.0)


def test_a_frame_has_the_use_of_each_direction_and_of_the_machine() -> None:
    before, now = reading(10.0, (0, 1000), 5.0), reading(10.5, (62_500, 1000), 5.25)
    shown = frame(before, now, (2_000_000, 1_000_000), cores=2)
    assert shown["use"] == [500, 0]
    assert shown["queued"] == (0, 700)
    assert shown["bps"] == 1_000_000
    assert (shown["idle"], shown["light"], shown["dropped"]) == (0.25, "pass", 3)


def test_the_use_of_a_degraded_link_is_that_of_the_rate_which_is_left() -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 2))
    link = topology.link_by_name["d0g0--rail0"]
    fault = Fault(Component.NIC_LINK, FaultMode.DEGRADE, link.name, rate_bps=15_000_000)
    told: list[dict[str, Any]] = []
    session = SimpleNamespace(faults=[fault], health=health_under(topology, [fault]))
    PageAudience(cast(Any, SimpleNamespace(tell=told.append))).changed(cast(Any, session))
    page = PageState()
    page.show(picture(topology))
    page.note(json.loads(json.dumps(told[0])))
    whole = [one.rate_bps for one in topology.links for _ in range(2)]
    number = 2 * topology.links.index(link)
    left = [*whole[:number], 15_000_000, 15_000_000, *whole[number + 2 :]]
    assert page.rates_bps() == left != whole
    assert page.state()["broken"] == {link.name: "degrade"}
    assert page.state()["degraded"] == {link.name: 15_000_000}
    page.show(picture(topology))
    assert page.rates_bps() == whole


@pytest.mark.parametrize(("idle", "shown"), [(0.5, "pass"), (0.1, "warn"), (0.01, "fail")])
def test_the_light_of_the_cores_follows_their_idle_share(idle: float, shown: str) -> None:
    assert cpu_verdict(idle) == shown


def test_counters_are_read_from_the_kernels_table() -> None:
    assert parse_carried(NET_DEV) == {"to-d0g0": (1500, 3000), "lo": (0, 0)}


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ({"event": "detected", "link": "d0g0--rail0", "failed": "carrier"}, "failed (carrier)"),
        ({"event": "detected", "link": "d0g0--rail0", "usable": "probes"}, "usable (probes)"),
        ({"event": "detected", "link": "d0g0--rail0", "drained": "operator"}, "drained (operator)"),
        ({"event": "computed", "failed": ["a", "b"]}, "computed, failed links: 2"),
        ({"event": "confirmed", "generation": 3}, "confirmed"),
        ({"event": "connected", "switch": "rail0"}, "connected rail0"),
    ],
)
def test_an_event_is_a_line(event: Mapping[str, Any], line: str) -> None:
    assert event_line(event).endswith(line)


def test_a_run_shows_the_rate_that_the_controller_has_detected() -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 2))
    link, page = topology.links[0], PageState()
    page.show(picture(topology))
    detected = {"ns": 1, "event": "detected", "link": link.name}
    page.add_events([{**detected, "degraded": "rate", "rate_bps": 15_000_000}])
    assert page.rates_bps()[:2] == [15_000_000, 15_000_000]
    assert page.state()["degraded"] == {link.name: 15_000_000}
    page.add_events([{**detected, "usable": "carrier"}])
    assert page.state()["degraded"] == {link.name: 15_000_000}
    page.add_events([{**detected, "usable": "rate", "rate_bps": link.rate_bps}])
    assert page.state()["degraded"] == {}


def test_a_session_tells_the_rates_itself() -> None:
    page = PageState()
    page.note({"interactive": True, "degraded": {"d0g0--rail0": 15_000_000}})
    old = {"ns": 1, "event": "detected", "link": "d0g0--rail0", "usable": "rate", "rate_bps": 1}
    page.add_events([old])
    assert page.state()["degraded"] == {"d0g0--rail0": 15_000_000}


@given(st.lists(st.integers(1, 30), min_size=1))
def test_the_journals_times_stay_when_old_lines_are_dropped(counts: list[int]) -> None:
    page, moments = PageState(), iter(range(7, 10**6))
    page.show({"kind": "rail-only"})
    for count in counts:
        events = ("sent", *["confirmed"] * count)
        page.add_events([{"ns": next(moments), "event": event} for event in events])
        assert page.state()["journal_begun_ns"] == 8
    page.show({"kind": "rail-only"})
    assert page.state()["journal_begun_ns"] is None


def test_the_page_follows_the_journal_and_forgets_it_with_the_fabric() -> None:
    page = PageState()
    page.show({"kind": "rail-only"})
    page.add_events([{"ns": 1, "event": "computed", "failed": ["d0g0--rail0"]}])
    page.add_events([{"ns": 2, "event": "sent", "switch": "rail0"}])
    page.note({"said": "healed", "done": 3})
    state = page.state()
    assert (state["failed"], state["said"], state["done"]) == (["d0g0--rail0"], ["healed"], 3)
    assert [entry["ns"] for entry in state["journal"]] == [1]
    page.show(None)
    assert (page.state()["failed"], page.state()["journal"]) == ([], [])
    assert page.fabric_version == 2


@pytest.mark.parametrize(
    ("longest_ms", "probed", "shown_ms", "spans"),
    [
        (13.64, True, 13.64, [["a", None, None], ["b", 0.0, 0.0], ["c", 0.0, 13.6]]),
        (inf, True, None, [["a", None, None], ["b", 0.0, 0.0], ["c", 0.0, None]]),
        (None, False, None, []),
    ],
)
def test_the_page_gets_the_blackout_of_each_probed_pair(
    longest_ms: float | None, probed: bool, shown_ms: float | None, spans: list[Any]
) -> None:
    fault = Fault(Component.NIC_LINK, FaultMode.DOWN, "d0g0--rail0")
    message = blackout_message(FaultSeen(fault, HEALTHY, TIMES, BEGUN_NS, blackouts(longest_ms)))
    page = PageState()
    page.show({"kind": "rail-only"})
    page.note({"blackout": json.loads(json.dumps(message))})
    assert page.state()["blackouts"] == [
        {
            "fault": "d0g0--rail0 down",
            "detected_ms": TIMES.detected_ms,
            "confirmed_ms": TIMES.confirmed_ms,
            "probed": probed,
            "blackout_ms": shown_ms,
            "pairs": spans,
        }
    ]
    page.show(None)
    assert page.state()["blackouts"] == []


def test_what_the_page_gets_of_a_fault_is_told_in_one_write() -> None:
    pairs = {
        f"d{n}g100>d{n}g101": Blackout(BEGUN_NS, BEGUN_NS + 10**13, 1) for n in range(100, 108)
    }
    fault = Fault(Component.NIC_LINK, FaultMode.BLACKHOLE_ONE_WAY, "d100g100--rail100")
    message = blackout_message(FaultSeen(fault, HEALTHY, TIMES, BEGUN_NS, pairs))
    assert len(pairs) == MOST_PROBED
    assert len(json.dumps({"blackout": message})) < select.PIPE_BUF


@pytest.mark.parametrize("kind", COMPARED)
def test_the_picture_has_every_part_and_its_clicks_are_faults(kind: FabricKind) -> None:
    topology = build_topology(spec(kind, 3, 2))
    drawn = picture(topology)
    names = {node["name"] for node in drawn["nodes"]}
    assert names == {*topology.gpu_by_name, *topology.hb_switches, *topology.openflow_switches}
    assert [link["name"] for link in drawn["links"]] == [link.name for link in topology.links]
    assert all({link["lower"], link["upper"]} <= names for link in drawn["links"])
    for name, modes in drawn["modes"].items():
        for mode in modes:
            assert parse_fault(topology, [name, mode]).target == name
    json.dumps(drawn)


# The guard


def answered(path: str, headers: Mapping[str, str], method: str = "GET", body: bytes = b"") -> Any:
    """The status and headers with which a server answers, and what it asked the run for."""
    return asyncio.run(_answered(path, headers, method, body))


async def _answered(path: str, headers: Mapping[str, str], method: str, body: bytes) -> Any:
    live = LiveServer()
    live.page.note({"interactive": True})
    sent: list[Any] = []
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        return parts.pop() if parts else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [(k.encode(), v.encode()) for k, v in headers.items()],
    }
    app: Guard = live.app(TOKEN, LOOPBACK_NAMES)
    await app(scope, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"])


def test_the_holder_of_the_token_gets_the_page() -> None:
    for name in FILES:
        status, headers = answered(f"/{TOKEN}/{name}", OWN)
        assert status == 200, name
        assert headers.items() >= HEADERS.items(), name


def test_the_address_without_its_last_slash_leads_to_the_page() -> None:
    status, headers = answered(f"/{TOKEN}", OWN)
    assert (status, headers[b"location"]) == (307, f"/{TOKEN}/".encode())
    assert answered("/another", OWN)[0] == 404


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", OWN, 404),
        ("/another/", OWN, 404),
        (f"/{TOKEN}x/", OWN, 404),
        (f"/{TOKEN}/../server.py", OWN, 404),
        (f"/{TOKEN}/", {"host": "evil.example:8000"}, 421),
        (f"/{TOKEN}/", {"host": "127.0.0.1.evil.example"}, 421),
        (f"/{TOKEN}/", {"host": "[::1"}, 421),
        (f"/{TOKEN}/", {}, 421),
        (f"/{TOKEN}/", {"host": "localhost:9000"}, 200),
        (f"/{TOKEN}/", {**OWN, "origin": "http://evil.example"}, 403),
        (f"/{TOKEN}/", {**OWN, "origin": "null"}, 403),
    ],
)
def test_everybody_else_is_refused(path: str, headers: Mapping[str, str], status: int) -> None:
    assert answered(path, headers)[0] == status


def test_a_command_is_handed_on_and_other_words_are_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["fault", "d0g0--rail0", "down"]
    own = {**OWN, "origin": "http://127.0.0.1:8000"}
    assert answered(f"/{TOKEN}/ask", own, "POST", json.dumps(words).encode())[0] == 202
    assert json.loads(capsys.readouterr().out) == words
    assert answered(f"/{TOKEN}/ask", own, "POST", b'["sh", "reboot"]')[0] == 400
    assert answered(f"/{TOKEN}/ask", own, "GET")[0] == 405
    assert capsys.readouterr().out == ""


@given(st.binary(max_size=2 * LONGEST) | st.from_regex(rb'\[("fault"|1|\[\])(, "d0")*\]'))
def test_what_a_page_may_ask_is_a_known_command_or_nothing(body: bytes) -> None:
    words = parse_asked(body)
    assert words is None or (words[0] == "fault" and all(isinstance(word, str) for word in words))
    assert words is None or len(body) <= LONGEST


def test_the_page_asks_for_nothing_from_elsewhere() -> None:
    for name, _ in FILES.values():
        text = (PAGE / name).read_text()
        assert "//" not in text.replace("http://www.w3.org/2000/svg", "").replace("// ", "")


# The address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1", ("127.0.0.1", 0)),
        (":8080", ("127.0.0.1", 8080)),
        ("192.0.2.7:80", ("192.0.2.7", 80)),
    ],
)
def test_an_address_is_read(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("127.0.0.1:http", "port must be 0 to 65535, got 'http'"),
        (":70000", "port must be 0 to 65535, got '70000'"),
        (":" + "9" * 5000, "port must be 0 to 65535, got '999"),
        ("1.2.3.4:-1", "port must be 0 to 65535, got '-1'"),
        ("1.2.3.4:\u0668", "port must be 0 to 65535, got '\u0668'"),
    ],
)
def test_a_wrong_address_gets_a_sentence(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_address(text)


@pytest.mark.parametrize("text", ["0.0.0.0", "0", "0x0", "0.0:0", "00.0.0.0"])
def test_the_page_is_served_at_one_address(text: str) -> None:
    with (
        pytest.raises(InputError, match="name one address of this machine"),
        live_feed(parse_address(text)),
    ):
        pass


# The run's side


@pytest.fixture
def silent() -> Iterator[subprocess.Popen[bytes]]:
    """A server that reads nothing."""
    with subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_a_run_never_waits_for_a_server_that_does_not_read(
    silent: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("execution.live.feed.SHOW_S", 0.05)
    feed = LiveFeed("http://127.0.0.1/", silent)
    for number in range(10_000):
        feed.tell({"step": f"case {number}", "done": number})
    feed.show(None)
    feed.tell({"step": "the end"})


def test_a_run_goes_on_without_its_server(silent: subprocess.Popen[bytes]) -> None:
    feed = LiveFeed("http://127.0.0.1/", silent)
    silent.kill()
    silent.wait()
    feed.tell({"step": "nobody listens"})
    feed.show(None)


def test_what_is_long_reaches_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("execution.live.feed.fabric_message", lambda _: {})
    told, workloads = tmp_path / "told", [f"all-to-all/direct-{n}" for n in range(500)]
    command = ["sh", "-c", f"exec cat > {told}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        audience = PageAudience(LiveFeed("http://127.0.0.1/", server))
        commands = SimpleNamespace(
            workloads=dict.fromkeys(workloads), fault=None, heal=None, stop=None
        )
        audience.follow(cast(Any, SimpleNamespace(fabric=True)), cast(Any, commands))
        audience.said("d0g0 → d1g1\n" * 1000)
        audience.said("short")
    fabric, begin, long, short = (json.loads(line) for line in told.read_text().splitlines())
    assert fabric == {"fabric": {}}
    assert begin["interactive"]
    assert begin["workloads"] == workloads
    assert long["said"].startswith("d0g0 → d1g1\n" * 100)
    assert long["said"].endswith("…")
    assert short == {"said": "short"}


def test_a_fabric_that_has_just_gone_does_not_end_the_page(tmp_path: Path) -> None:
    """Its processes have ended before the server has read of it."""
    gone, live = subprocess.Popen(["true"]), LiveServer()
    gone.wait()
    fabric = {"picture": {"links": []}, "interfaces": [], "ends": [], "journal": str(tmp_path)}
    live.receive({"fabric": {**fabric, "process_ids": {"": gone.pid}}})
    assert live.page.fabric == {"links": []}


def test_a_page_that_looks_learns_that_the_run_has_ended() -> None:
    with live_feed() as feed:
        feed.answer(lambda _: None)
        parts = urlsplit(feed.url)
        page = HTTPConnection(parts.netloc, timeout=20)
        page.request("GET", f"{parts.path}events")
        answer = page.getresponse()
        assert b"event: fabric" in answer.readline()
    with closing(page):
        states = [line for line in answer if line.startswith(b"data: {")]
    assert json.loads(states[-1].removeprefix(b"data: "))["ended"]


def test_a_page_that_reads_slowly_learns_it_too() -> None:
    async def last() -> list[str]:
        live = LiveServer()
        events = live.events()
        first = [await anext(events), await anext(events)]  # the page has not read them yet
        live.page.note({"ended": True})
        await live.wake()
        return first + [event async for event in events]

    found = asyncio.run(asyncio.wait_for(last(), 10))
    assert '"ended":true' in found[-1]


def test_a_page_that_is_opened_later_gets_no_old_frame() -> None:
    carried = iter([0, 450_000, 450_000, 450_000])

    async def uses() -> list[Any]:
        live, seconds = LiveServer(), iter(range(4))
        live.page.show({"links": [{"name": "a", "rate_bps": 7_200_000}]})
        read = SimpleNamespace(read=lambda: reading(next(seconds), (next(carried), 0)))
        live._reader = cast(Any, read)
        found = []
        for _ in range(2):
            events: Any = live.events()
            await anext(events), await anext(events)
            live._read()
            assert live.present is None
            live._read()
            found.append(json.loads((await anext(events)).partition("data: ")[2])["use"])
            await events.aclose()
        return found

    assert asyncio.run(asyncio.wait_for(uses(), 10)) == [[500, 0], [0, 0]]


def test_after_the_end_of_its_session_a_page_gives_no_commands() -> None:
    feed, commands = Mock(), Mock(workloads={})
    audience = PageAudience(feed)
    audience.follow(Mock(), commands)
    (execute,) = feed.answer.call_args.args
    execute(["fault", "d0g0--rail0"])
    audience.ended()
    feed.tell.assert_called_with({"interactive": False, "step": "The fabric is being taken down."})
    execute(["run", "all-to-all/direct"])
    feed.tell.assert_called_with({"said": "run: the fabric is being taken down"})
    commands.fault.assert_called_once_with(["d0g0--rail0"])
    commands.run.assert_not_called()


def test_the_page_does_not_look_into_the_virtual_machine() -> None:
    with pytest.raises(InputError, match="--live: cannot be combined with --clock virtual"):
        refuse_outside(True, [])
    refuse_outside(False, [])
