"""The option `--live`: a web page of the fabric beside a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from commands.output import err
from model.errors import InputError, Problem

if TYPE_CHECKING:
    from execution.live.feed import LiveFeed

Live = Annotated[bool, typer.Option("--live", help="serve a web page that shows the fabric")]
LiveAt = Annotated[
    str,
    typer.Option(
        "--live-at",
        metavar="ADDRESS[:PORT]",
        help="address of the page; anything but loopback is open to others",
    ),
]
DEFAULT_AT = "127.0.0.1"


def refuse_virtual(asked: bool) -> None:
    """Raise `InputError` if the page is asked for under the virtual clock."""
    if asked:
        what = "cannot be combined with --clock virtual: the page cannot read the virtual machine"
        raise InputError(Problem("--live", what))


@contextmanager
def page(asked: bool, at: str) -> Iterator["LiveFeed | None"]:
    """Serve the page within the context if requested, and print its address."""
    if not asked:
        if at != DEFAULT_AT:
            raise InputError(Problem("--live-at", "needs --live"))
        yield None
        return
    from execution.live.feed import live_feed, parse_address

    with live_feed(parse_address(at)) as feed:
        err.print(f"Live view: {feed.url}", soft_wrap=True)
        yield feed
