"""The output of commands: results on standard output or in files, all else on standard error."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console

from model.errors import InputError, Problem

EXIT_FAILED = 1
# Tables are made for this many columns. In fewer, Rich leaves columns out without a message.
TABLE_WIDTH = 80


def plain_console(*, stderr: bool = False) -> Console:
    """A console that prints text as it is: names and paths of users may look like markup."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


def table_console() -> Console:
    """A plain console on standard output; a narrow terminal wraps the lines of its tables."""
    console = plain_console()
    console.width = max(console.width, TABLE_WIDTH)
    return console


out = table_console()
err = plain_console(stderr=True)


def print_result(result: Any, as_json: bool, as_table: Callable[[Any, Console], None]) -> None:
    """Print a result as one JSON object, or as tables."""
    if as_json:
        print(json.dumps(result, default=str))
    else:
        as_table(result, out)


def exit_with(*, failed: bool) -> NoReturn:
    """End the command with the exit code of a result."""
    raise typer.Exit(EXIT_FAILED if failed else 0)


@contextmanager
def writing(place: Path, option: str = "--to") -> Iterator[None]:
    """Turn an `OSError` of files written to a place into an `InputError` that names the option."""
    try:
        yield
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise InputError(Problem(str(place), what, f"name another {option}")) from None


def draw_figure(path: Path, draw: Callable[[Path], None]) -> None:
    """Draw a figure as PATH.svg and PATH.png, and say so; PATH may have one of these endings."""
    from results.figures.canvas import FORMATS, files

    stem = path.with_suffix("") if path.suffix.removeprefix(".") in FORMATS else path
    if stem.name in ("", ".."):
        raise InputError(Problem("--figure", f"must name a file, got {str(path)!r}"))
    with writing(path, "--figure"):
        draw(stem)
    err.print(f"Drawn: {', '.join(map(str, files(stem)))}", soft_wrap=True)
