"""Where commands print: results to standard output, everything else to standard error."""

import json
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console

out = Console()
err = Console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object")]


def print_result(result: Any, as_json: bool, as_table: Callable[[Any, Console], None]) -> None:
    """Print a command's result: one JSON object, or its table."""
    if as_json:
        print(json.dumps(result, default=str))
    else:
        as_table(result, out)
