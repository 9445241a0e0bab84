"""The output of commands: results on standard output or in files, all else on standard error."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console

from model.errors import InputError, Problem
from results.store.records import reading
from results.tables.style import plain_console, table_console

EXIT_FAILED = 1

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


@contextmanager
def printed_whole(out: Console, place: Path) -> Iterator[None]:
    """Print the output of the context, or nothing and raise `InputError` if `place` is damaged."""
    with reading(place), out.capture() as printed:
        yield
    out.file.write(printed.get())
