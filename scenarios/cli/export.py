"""The command `export`: a stored run in the formats of other programs."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from model.errors import InputError, Problem
from results.store.export import OPTIONS, export_tables
from results.store.runs import DEFAULT_STORE, find_run
from scenarios.cli.options import RunName, Store
from scenarios.cli.terminal import out
from scenarios.cli.written import writing
from scenarios.exports.nccl_tests import export_nccl_tests
from scenarios.exports.simulators import export_chakra, export_htsim

# What writes a run's folder into a folder in each format, and returns the files.
FORMATS: dict[str, Callable[[Path, Path], list[Path]]] = {
    **{form: partial(export_tables, form=form) for form in OPTIONS},
    "chakra": export_chakra,
    "htsim": export_htsim,
    "nccl-tests": export_nccl_tests,
}


def export(
    run_name: RunName,
    form: Annotated[str, typer.Option("--format", help=" or ".join(FORMATS))] = "csv",
    to: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="for the files; default: export/RUN")
    ] = None,
    store: Store = DEFAULT_STORE,
) -> None:
    """Write a stored run as files: its tables, or what ran for a simulator or as nccl-tests do."""
    if form not in FORMATS:
        raise InputError(Problem("--format", f"must be {' or '.join(FORMATS)}, got {form!r}"))
    run = find_run(store, run_name)
    folder = to or Path("export", run.name)
    with writing(folder):
        files = FORMATS[form](run, folder)
    for file in files:
        out.print(file, soft_wrap=True)
