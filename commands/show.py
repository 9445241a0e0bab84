"""The command `show`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from commands.options import AsJson, RunName, Store
from commands.output import out, print_result
from results.sections.run import run_sections
from results.store.records import reading
from results.store.runs import DEFAULT_STORE, find_run, read_result


def show(
    run_name: RunName,
    as_json: AsJson = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """Show a stored run, or nothing of a damaged one."""
    run = find_run(store, run_name)
    with printed_whole(out, run):
        show_run(read_result(run), as_json)


def show_run(result: dict[str, Any], as_json: bool) -> None:
    """Print a run, and where its records are."""
    print_result(result, as_json, run_sections)
    if not as_json:
        kept = f"\nEverything that was measured: {result['folder']}"
        out.print(kept, soft_wrap=True)


@contextmanager
def printed_whole(console: Console, place: Path) -> Iterator[None]:
    """Print the output of the context, or nothing and raise `InputError` if `place` is damaged."""
    with reading(place), console.capture() as printed:
        yield
    console.file.write(printed.get())
