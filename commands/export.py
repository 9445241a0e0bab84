"""The command `export`: a stored run in the formats of other programs."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from commands.options import RunName, Store, written_to
from commands.output import out, writing
from results.store.runs import DEFAULT_STORE, find_run
from results.store.tables import OPTIONS, export_tables

Format = Literal["csv", "parquet", "json", "chakra", "htsim", "nccl-tests"]


def export(
    run_name: RunName,
    form: Annotated[Format, typer.Option("--format", help="format of the files")] = "csv",
    to: Annotated[Path | None, written_to("FOLDER", "export/RUN")] = None,
    store: Store = DEFAULT_STORE,
) -> None:
    """Write a run's files in a format; print their paths."""
    run = find_run(store, run_name)
    folder = to or Path("export", run.name)
    with writing(folder):
        files = _writer(form)(run, folder)
    for file in files:
        out.print(file, soft_wrap=True)


def _writer(form: str) -> Callable[[Path, Path], list[Path]]:
    """Return the function that writes a run in this format into a folder, and returns the files."""
    if form in OPTIONS:
        return partial(export_tables, form=form)
    # These import schedules, which takes half a second.
    from commands.export_nccl_tests import export_nccl_tests
    from commands.export_simulators import export_chakra, export_htsim

    others = {"chakra": export_chakra, "htsim": export_htsim, "nccl-tests": export_nccl_tests}
    return others[form]
