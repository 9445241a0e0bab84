"""The command `report`: one HTML file about stored runs or a sweep, with its pictures inside."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from commands.compare import compared
from commands.options import Store, run_names, written_to
from commands.output import err, out, writing
from linux.files.user_files import Unreadable, make_folder, read_text
from model.errors import InputError, Problem
from results.figures.kit import FORMATS
from results.render.page import Article, render
from results.report.run import run_article
from results.report.run_data import read_run
from results.report.several_runs import comparison_article, sweep_article
from results.store.records import reading, write_record
from results.store.runs import DEFAULT_STORE, find_run
from results.store.sweeps import find_sweep
from results.store.tables import CASE, EXECUTIONS, case_folders, read_table
from results.verdicts.several_runs import sweep_object
from traffic_gen.probes.blackout import read_records

# Largest records of a prober, with a thousand probes a second and pair.
MOST_BYTES = 2**28
NS_PER_S = 1e9
# Two runs on one page are compared.
COMPARED = 2


def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="stored runs, as of `show`", autocompletion=run_names),
    ] = None,
    to: Annotated[Path | None, written_to("FILE", "the first run's id or the sweep's name")] = None,
    figures: Annotated[
        str, typer.Option(metavar="FORMATS", help="also write the figures: svg,png,pdf")
    ] = "",
    sweep: Annotated[
        str | None, typer.Option(metavar="NAME", help="name of a sweep, or `latest`")
    ] = None,
    store: Store = DEFAULT_STORE,
) -> None:
    """Write the page, and its figures as files if formats are given."""
    formats = _formats(figures)
    articles = list(articles_about(store, runs or [], sweep))
    if not articles:
        raise InputError(Problem("report", "needs a run or a sweep", "name a RUN, or --sweep NAME"))
    # The articles of runs are the last ones.
    first = articles[-len(runs)] if runs else articles[0]
    target = to or Path(f"{first.name}.html")
    with writing(target):
        make_folder(target.absolute().parent)
        write_record(target, render(articles))
        files = [target]
        for article in articles if formats else ():
            folder = target.with_name(f"{target.stem}-figures") / article.name
            files += (file for one in article.pictures for file in one.save(folder, formats))
    for file in files:
        out.print(file, soft_wrap=True)


def articles_about(store: Path, names: Sequence[str], sweep: str | None) -> Iterator[Article]:
    """Yield the sweep's article, the comparison of two runs, and the articles of all runs."""
    if sweep is not None:
        folder = find_sweep(store, sweep)
        with reading(folder.path):
            article = sweep_article(sweep_object(folder))
        yield article
    places = [find_run(store, name) for name in names]
    if len(names) == COMPARED:
        try:
            yield comparison_article(compared(store, *names))
        except InputError as error:
            err.print(f"not compared: {error}", soft_wrap=True)
    for place in places:
        with reading(place):
            article = run_article(read_run(place), _lost_probes(place))
        yield article


def _formats(figures: str) -> list[str]:
    named = [form for form in figures.split(",") if form]
    if unknown := [form for form in named if form not in FORMATS]:
        what = f"must be among {', '.join(FORMATS)}, got {', '.join(unknown)}"
        raise InputError(Problem("--figures", what))
    return named


def _lost_probes(run: Path) -> Mapping[str, Mapping[str, list[float]]]:
    """Seconds since the execution's start at which each affected pair lost a probe, by case."""
    executions = read_table(run, EXECUTIONS)
    lost_s = {}
    for case, folder in case_folders(run).items():
        place = folder / "records.json"
        if not place.exists():
            continue
        try:
            records, _ = read_records(read_text(place, MOST_BYTES))
        except (Unreadable, ValueError, LookupError) as error:
            raise InputError(Problem(str(place), f"cannot be parsed: {error}")) from None
        start_ns = int(executions["start_ns"][executions[CASE] == case].min())
        lost_s[case] = {
            record.name: [
                (sent_ns - start_ns) / NS_PER_S
                for number, sent_ns in enumerate(record.sent_ns)
                if number not in record.arrived_ns
            ]
            for record in records
        }
    return lost_s
