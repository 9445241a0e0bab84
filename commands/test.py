"""The command `test`, which the script `railbed` does: here, `--help` lists it."""

from typing import Annotated

import typer

from model.errors import InputError, Problem


def all_tests(
    _arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENTS", help="arguments of pytest")
    ] = None,
) -> None:
    """Raise `InputError`: the script does it without this program."""
    raise InputError(Problem("test", "must be run by the script", "run `sudo ./railbed test`"))
