"""The command `timeline`: a stored run as a trace for Perfetto or Chrome."""

import json
from pathlib import Path
from typing import Annotated

from commands.options import RunName, Store, written_to
from commands.output import out, writing
from linux.files.user_files import make_folder
from results.report.run_data import read_run
from results.report.timeline import timeline as traced
from results.store.records import reading, write_record
from results.store.runs import DEFAULT_STORE, find_run


def timeline(
    run_name: RunName,
    to: Annotated[Path | None, written_to("FILE", "RUN.trace.json")] = None,
    store: Store = DEFAULT_STORE,
) -> None:
    """Write the events of a run in Chrome's trace format."""
    run = find_run(store, run_name)
    target = to or Path(f"{run.name}.trace.json")
    with reading(run):
        text = json.dumps(traced(read_run(run)), separators=(",", ":"))
    with writing(target):
        make_folder(target.absolute().parent)
        write_record(target, text)
    out.print(target, soft_wrap=True)
