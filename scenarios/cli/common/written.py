"""Files that options name for a command's output: refused in a sentence if impossible."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from model.errors import InputError, Problem
from scenarios.cli.common.terminal import err


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
