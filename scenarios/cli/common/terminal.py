"""The output of commands: results on standard output, everything else on standard error."""

import json
from collections.abc import Callable
from typing import Any, NoReturn

import typer
from rich.console import Console

from results.tables.measured.run import print_run
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


def show_run(result: dict[str, Any], as_json: bool) -> None:
    """Print a run, and where its records are."""
    print_result(result, as_json, print_run)
    if not as_json:
        kept = f"\nEverything that was measured: {result['folder']}"
        out.print(kept, soft_wrap=True)


def leave(*, failed: bool) -> NoReturn:
    """End the command with the exit code of a result."""
    raise typer.Exit(EXIT_FAILED if failed else 0)
