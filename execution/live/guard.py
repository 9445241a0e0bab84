"""Access to the page's server: for holders of the token, from the page itself."""

import hmac
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# The browser loads nothing from elsewhere, shows the page in no frame, and sends no referrer.
HEADERS = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; "
    b"connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
    b"cache-control": b"no-store",
}
LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})


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
        elif not is_own_origin(headers.get("origin"), headers["host"]):
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


def is_own_origin(origin: str | None, host: str) -> bool:
    """Whether a request comes from this server's page; browsers send no Origin for plain GETs."""
    return origin is None or origin == f"http://{host}"


def _refusal(code: int) -> PlainTextResponse:
    return PlainTextResponse("refused\n", code)


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *HEADERS.items()]
        await send(message)

    return sending
