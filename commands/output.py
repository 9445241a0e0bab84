"""The output of commands: results on standard output or in files, all else on standard error."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.console import Console

from model.errors import InputError, Problem

if TYPE_CHECKING:
    from results.sections.section import Section

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


def print_result(
    result: Any, as_json: bool, sections: "Callable[[Any], Iterable[Section]]"
) -> None:
    """Print a result as one JSON object, or as sections."""
    if as_json:
        print(json.dumps(result, default=str))
    else:
        from results.render.terminal import print_sections

        print_sections(sections(result), out)


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
    from results.figures.kit import PRINTED, printed_files

    stem = path.with_suffix("") if path.suffix.removeprefix(".") in PRINTED else path
    if stem.name in ("", ".."):
        raise InputError(Problem("--figure", f"must name a file, got {str(path)!r}"))
    with writing(path, "--figure"):
        draw(stem)
    err.print(f"Drawn: {', '.join(map(str, printed_files(stem)))}", soft_wrap=True)
