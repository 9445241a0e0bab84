"""The output of commands: results on standard output or in files, all else on standard error."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from model.errors import InputError, Problem, refusing, visible

if TYPE_CHECKING:
    from results.sections.section import Section

# Tables are made for this many columns. In fewer, Rich leaves columns out without a message.
TABLE_WIDTH = 80


class Terminal(Console):
    """A console that prints texts as they are: names and paths of users may look like markup.

    Names in files of others may have characters that control a terminal, which are made visible.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Yield the parts of what is printed; Rich itself moves the cursor by those of control."""
        for part in super().render(renderable, options):
            yield part if part.control else Segment(visible(part.text), part.style)


out = Terminal()
out.width = max(out.width, TABLE_WIDTH)
err = Terminal(stderr=True)


def print_result(
    result: Any, as_json: bool, sections: "Callable[[Any], Iterable[Section]]"
) -> None:
    """Print a result as one JSON object, or as sections."""
    if as_json:
        print(json.dumps(result, default=str))
    else:
        from results.render.terminal import print_sections

        print_sections(sections(result), out)


def show_run(result: dict[str, Any], as_json: bool) -> None:
    """Print a run, and where its records are."""
    from results.sections.run import run_sections

    print_result(result, as_json, run_sections)
    if not as_json:
        out.print(f"\nEverything that was measured: {result['folder']}", soft_wrap=True)


@contextmanager
def printed_whole(console: Console, place: Path) -> Iterator[None]:
    """Print the output of the context, or nothing and raise `InputError` if `place` is damaged."""
    from results.store.records import reading

    with reading(place), console.capture() as printed:
        yield
    console.file.write(printed.get())


def writing(place: Path, option: str = "--to") -> AbstractContextManager[None]:
    """Turn an `OSError` of files written to a place into an `InputError` that names the option.

    Raises `InputError` for a place in the folder of a run or a sweep, whose records it may replace.
    """
    from results.store.sweeps import is_recorded

    hint = f"name another {option}"
    if is_recorded(place):
        raise InputError(Problem(str(place), "is in the folder of a run or a sweep", hint))
    return refusing(place, "cannot be written", hint)


def draw_figure(path: Path, draw: Callable[[Path], None]) -> None:
    """Draw a figure as PATH.svg and PATH.png, and say so; PATH may have one of these endings."""
    from results.figures.kit import PRINTED, printed_files

    stem = path.with_suffix("") if path.suffix.removeprefix(".") in PRINTED else path
    if stem.name in ("", ".."):
        raise InputError(Problem("--figure", f"must name a file, got {str(path)!r}"))
    with writing(path, "--figure"):
        draw(stem)
    err.print(f"Drawn: {', '.join(map(str, printed_files(stem)))}", soft_wrap=True)
