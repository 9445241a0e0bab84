"""The page's server, a process of its own: `python -m execution.live.server DESCRIPTOR`.

It reads messages of the run as JSON lines from standard input, whose end ends it, and writes the
page's commands to standard output. It has the lowest priority, and reads the fabric only while a
page is open. Access is for holders of the token, from the page itself.
"""

import asyncio
import hmac
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from execution.live.link_reader import LinkReader, Reading, link_reader
from execution.live.page_state import PageState, frame
from model.errors import EmulationError

# The browser loads nothing from elsewhere, shows the page in no frame, and sends no referrer.
HEADERS = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; "
    b"connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
    b"cache-control": b"no-store",
}
PAGE = Path(__file__).parent / "page"
# The page's files by their names in addresses, with their media types.
FILES = {
    "": ("index.html", "text/html"),
    "live.css": ("live.css", "text/css"),
    "live.js": ("live.js", "text/javascript"),
}
# A reading, and a frame for each page.
EVERY_S = 0.18
# Commands of a page; the longest request, in bytes.
ASKED = frozenset({"fault", "heal", "run", "stop"})
LONGEST = 500
# Seconds after the end of the run in which pages may read their last events.
FAREWELL_S = 1
# Longest line from the run: a fabric of 1024 GPUs.
LINE_BYTES = 1 << 24
BEGUN_S = time.monotonic()


class Guard:
    """Lets requests pass whose path begins with the token, as `/TOKEN/...`.

    `hosts` are the names of the page's host: a web site whose own name leads here (DNS rebinding)
    is refused. The port may be another, as SSH forwards any.
    """

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str]) -> None:
        self._app, self._token, self._hosts = app, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        token, slash, rest = scope["path"].removeprefix("/").partition("/")
        if not is_own_host(headers.get("host", ""), self._hosts):
            await _refusal(421)(scope, receive, send)
        # Browsers send no Origin for plain GETs.
        elif headers.get("origin") not in (None, f"http://{headers['host']}"):
            await _refusal(403)(scope, receive, send)
        elif not hmac.compare_digest(token.encode(), self._token.encode()):
            await _refusal(404)(scope, receive, send)
        elif not slash:  # the page's files lie below
            await RedirectResponse(f"/{self._token}/")(scope, receive, _with_headers(send))
        else:
            inner = {**scope, "path": f"/{rest}", "raw_path": b""}
            await self._app(inner, receive, _with_headers(send))


def is_own_host(host: str, hosts: frozenset[str]) -> bool:
    """Whether a Host header names this server, at any port."""
    try:
        return urlsplit(f"//{host}").hostname in hosts
    except ValueError:
        return False


def _refusal(code: int) -> PlainTextResponse:
    return PlainTextResponse("refused\n", code)


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *HEADERS.items()]
        await send(message)

    return sending


class LiveServer:
    """The page's state, the readings behind it, the open pages; `present` is the latest frame."""

    def __init__(self) -> None:
        self.page = PageState()
        self.present: dict[str, Any] | None = None
        self._open_pages = 0
        self._updated = asyncio.Condition()
        self._opened = ExitStack()
        self._reader: LinkReader | None = None
        self._last: Reading | None = None
        self._journal: Path | None = None
        self._journal_read = 0

    # Messages of the run

    def receive(self, message: dict[str, Any]) -> None:
        """Take over a message of the run: another fabric, or changes of the page's state."""
        if "fabric" not in message:
            self.page.note(message)
            return
        self._opened.close()
        self._reader, self._last, self.present = None, None, None
        fabric = message["fabric"]
        self.page.show(None if fabric is None else fabric["picture"])
        if fabric is None:
            return
        with suppress(OSError, EmulationError):  # the fabric has just gone
            self._reader = self._opened.enter_context(link_reader(fabric))
        self._journal, self._journal_read = Path(fabric["journal"]), 0

    # Readings

    async def watch(self) -> None:
        """Read the fabric while a page is open, and wake the pages."""
        while True:
            begun_s = time.monotonic()
            if self._open_pages:
                self._read()
                await self.wake()
            await asyncio.sleep(max(0.0, begun_s + EVERY_S - time.monotonic()))

    async def wake(self) -> None:
        """Wake the event streams of all pages."""
        async with self._updated:
            self._updated.notify_all()

    def _read(self) -> None:
        if self._reader is None:
            return
        try:
            now = self._reader.read()
            self._read_journal()
        except (OSError, EmulationError):  # the fabric has just gone
            return
        if self._last is not None:
            self.present = frame(self._last, now, self.page.rates_bps(), os.cpu_count() or 1)
            # The share of one core that this process has taken since its start.
            own = time.process_time() / max(1e-9, time.monotonic() - BEGUN_S)
            self.present["page_cpu"] = round(own, 3)
        self._last = now

    def _read_journal(self) -> None:
        if self._journal is None or not self._journal.exists():
            return
        with self._journal.open("rb") as file:
            file.seek(self._journal_read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._journal_read += len(whole)
        self.page.add_events([json.loads(line) for line in whole.splitlines()])

    # Requests of a page

    async def events(self) -> AsyncIterator[str]:
        """Yield the events of one page: the fabric and the state when they change, and frames.

        The last event is the state that the run has ended.
        """
        fabric_seen = state_seen = -1
        self._open_pages += 1
        try:
            while True:
                if fabric_seen != self.page.fabric_version:
                    fabric_seen = self.page.fabric_version
                    yield _event("fabric", self.page.fabric)
                if state_seen != self.page.version:
                    state_seen = self.page.version
                    yield _event("state", self.page.state())
                if self.page.ended and state_seen == self.page.version:
                    return
                if self.present is not None:
                    yield _event("frame", self.present)
                async with self._updated:
                    if not self.page.ended:  # it may have while the page was slow to read
                        await self._updated.wait()
        finally:
            self._open_pages -= 1
            if not self._open_pages:  # readings end: the next page would see an old one
                self._last, self.present = None, None

    async def stream(self, _request: Request) -> Response:
        """Answer with server-sent events."""
        return StreamingResponse(self.events(), media_type="text/event-stream")

    async def file(self, request: Request) -> Response:
        """Answer with a file of the page."""
        name, media_type = FILES[request.url.path.rpartition("/")[2]]
        return Response((PAGE / name).read_bytes(), media_type=media_type)

    async def ask(self, request: Request) -> Response:
        """Hand a command to the run, which answers in the page's state."""
        words = parse_asked(await _body(request)) if self.page.interactive else None
        if words is None:
            return _refusal(400)
        self.send_to_run(words)
        return PlainTextResponse("asked\n", 202)

    def send_to_run(self, words: list[str]) -> None:
        """Write a command for the run."""
        print(json.dumps(words), flush=True)

    def app(self, token: str, hosts: frozenset[str]) -> Guard:
        """The web application behind its guard."""
        routes = [
            *(Route(f"/{name}", self.file) for name in FILES),
            Route("/events", self.stream),
            Route("/ask", self.ask, methods=["POST"]),
        ]
        return Guard(Starlette(routes=routes), token, hosts)


async def _body(request: Request) -> bytes:
    """The beginning of a request's body, one byte more than the longest that is accepted."""
    sent = b""
    async for part in request.stream():
        sent += part
        if len(sent) > LONGEST:
            break
    return sent


def parse_asked(body: bytes) -> list[str] | None:
    """The words of a page's command; `None` if a page may not give it."""
    try:
        words = json.loads(body) if len(body) <= LONGEST else None
    except ValueError:
        return None
    are_words = isinstance(words, list) and all(isinstance(word, str) for word in words)
    return words if are_words and words and words[0] in ASKED else None


def _event(kind: str, content: object) -> str:
    """A server-sent event (HTML standard, section 9.2)."""
    return f"event: {kind}\ndata: {json.dumps(content, separators=(',', ':'))}\n\n"


async def serve(listening: socket.socket) -> None:
    """Serve until standard input ends; its first line has the token and the names of this host."""
    loop, stdin = asyncio.get_running_loop(), asyncio.StreamReader(LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    first = json.loads(await stdin.readline())
    live = LiveServer()
    app = live.app(first["token"], frozenset(first["hosts"]))
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="critical",
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=FAREWELL_S,
    )
    web = uvicorn.Server(config)
    serving = asyncio.create_task(web.serve(sockets=[listening]))
    watch = asyncio.create_task(live.watch())
    while line := await stdin.readline():
        live.receive(json.loads(line))
    watch.cancel()
    live.page.note({"ended": True})
    await live.wake()
    web.should_exit = True
    await serving


def main() -> None:
    """Serve on the socket that the run has opened."""
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        asyncio.run(serve(listening))


if __name__ == "__main__":
    main()
