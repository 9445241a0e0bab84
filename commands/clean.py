"""The command `clean`."""

import os
from typing import Annotated

import typer

from commands.output import out
from model.errors import EmulationError
from results.sections.section import human_bytes
from testbed.host.cleanup import clean as remove
from testbed.virtual_machine.cache import clear


def clean(
    cache: Annotated[
        bool, typer.Option("--cache", help="also images and known results of the virtual clock")
    ] = False,
) -> None:
    """Remove what dead runs have left, and the user's cache if asked."""
    if cache:
        out.print(f"Removed from the cache: {human_bytes(clear())}.")
    if os.geteuid() == 0 or not cache:  # every user has a cache
        removed = remove()
        out.print(f"Removed: {removed or 'nothing'}.")
        if removed.left:
            raise EmulationError(removed.left)
