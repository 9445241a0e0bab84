"""The command `report`: one HTML file about stored runs, with its pictures inside."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from linux.files import Unreadable, make_folder, read_text
from model.errors import InputError, Problem
from results.store.records import write_record
from results.store.runs import DEFAULT_STORE, case_folders, find_run
from scenarios.cli.options import Store
from scenarios.cli.terminal import out

# Of a prober, at a thousand probes a second and pair.
MOST_BYTES = 2**28
NS_PER_S = 1e9


def report(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="ids or their beginnings")],
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="default: the first run's id, .html")
    ] = None,
    figures: Annotated[
        str, typer.Option(metavar="FORMATS", help="also write the figures: svg,png,pdf")
    ] = "",
    store: Store = DEFAULT_STORE,
) -> None:
    """Write an HTML page about stored runs that opens anywhere, and on request its figures."""
    from results.report.page import pictures, render, report_page
    from results.report.run_data import read_run

    formats = _formats(figures)
    folders = [find_run(store, name) for name in runs]
    pages = [report_page(read_run(folder), _lost_probes(folder)) for folder in folders]
    target = to or Path(f"{folders[0].name}.html")
    try:
        make_folder(target.absolute().parent)
        write_record(target, render(pages))
        out.print(target, soft_wrap=True)
        for page in pages:
            for picture in pictures(page):
                for file in picture.save(_figures_folder(target, page.run.run_id), formats):
                    out.print(file, soft_wrap=True)
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise InputError(Problem(str(target), what, "name another --to")) from None


def _formats(figures: str) -> list[str]:
    from results.report.pictures import FORMATS

    named = [form for form in figures.split(",") if form]
    if unknown := [form for form in named if form not in FORMATS]:
        what = f"must be of {', '.join(FORMATS)}, got {', '.join(unknown)}"
        raise InputError(Problem("--figures", what))
    return named


def _figures_folder(page: Path, run_id: str) -> Path:
    return page.with_name(f"{page.stem}-figures") / run_id


def _lost_probes(run: Path) -> Mapping[str, Mapping[str, list[float]]]:
    """Seconds since the execution's start at which each affected pair lost a probe, by case."""
    from results.store.raw_tables import CASE, EXECUTIONS, read_table
    from traffic_gen.probes.blackout import read_records

    executions = read_table(run, EXECUTIONS)
    found = {}
    for case, folder in case_folders(run).items():
        place = folder / "records.json"
        if not place.exists():
            continue
        try:
            records, _ = read_records(read_text(place, MOST_BYTES))
        except (Unreadable, ValueError, LookupError) as error:
            raise InputError(Problem(str(place), f"cannot be understood: {error}")) from None
        start_ns = int(executions["start_ns"][executions[CASE] == case].min())
        found[case] = {
            record.name: [
                (sent_ns - start_ns) / NS_PER_S
                for number, sent_ns in enumerate(record.sent_ns)
                if number not in record.arrived_ns
            ]
            for record in records
        }
    return found
