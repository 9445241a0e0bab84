"""The command `paper`: the rail-only paper's claims, figures and tables, beside ours."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from commands.options import AsJson, Proxies, Record, SomeStore, ready, refuse_idle, written_to
from commands.output import err, print_result, writing
from execution.cases.progress import Lines
from execution.sweep.runner import human_remaining
from model.errors import InputError, Problem
from results.sections.modeled import paper_sections, plain_sections, twins_sections
from results.sections.section import Section
from results.store.runs import DEFAULT_STORE
from studies.benchmarks.render import recording
from studies.benchmarks.rows import Row
from studies.paper.claims import TABLES, paper_object
from studies.twins.comparison import measured_object, shown_rows
from studies.twins.points import TWINS, Planned, measure, planned, to_run

FIGURES = Path("figures")
MEASURE = "./railbed paper --measure"
# fmt: off
Part = Literal[
    "fig2a", "fig2b", "fig3", "fig4", "fig5", "fig7", "fig8", "fig9", "fig10", "table1", "table2"
]
# fmt: on


def paper(
    part: Annotated[
        Part | None, typer.Argument(metavar="PART", help=f"one of {', '.join(get_args(Part))}")
    ] = None,
    to: Annotated[Path | None, written_to("FOLDER", str(FIGURES))] = None,
    measured: Annotated[
        bool, typer.Option("--measure", help="measure emulated twins of the figures on one page")
    ] = False,
    proxies: Proxies = None,
    store: SomeStore = None,
    as_json: AsJson = False,
    record: Record = False,
) -> bool:
    """Print the claims, a table or the files of a figure; or measure twins, which may fail."""
    drawn = to or FIGURES
    if measured:
        rows: list[Row] = []
        command = f"{MEASURE} --proxies {proxies}" if proxies else MEASURE
        with recording("paper-measured", rows, record=record, command=command):
            result = _measure(part, drawn, proxies, store or DEFAULT_STORE)
            rows += shown_rows(result)
        print_result(result, as_json, twins_sections)
        return bool(result["verdict"] == "fail")
    refuse_idle("needs --measure", proxies=proxies, store=store, record=record)
    if part is not None and not part.startswith("table"):
        _draw_part(part, drawn, as_json)
        return False
    refuse_idle("needs a figure, or --measure", to=to)
    if part is None:
        print_result(paper_object(), as_json, paper_sections)
    else:
        table = {"schema": "railbed.paper-table/1", "table": part, "rows": TABLES[part]()}
        print_result(table, as_json, plain_sections)
    return False


def _measure(part: str | None, to: Path, proxies: str | None, store: Path) -> dict[str, Any]:
    """Measure the twins that are not stored, write the page, and return the object."""
    from execution.run import run
    from studies.twins.page import draw_heat_maps, write_page

    if part is not None:
        raise InputError(Problem("--measure", f"cannot be combined with a figure, got {part!r}"))
    plan = planned(TWINS, store)
    _print_plan(plan)
    kind, lines = ready(proxies), Lines(err)
    results = measure(plan, lambda one: run(one, kind, store, lines), lines)
    result = measured_object(plan, results)
    with writing(to):
        draw_heat_maps(result["points"], store, to)
        return {**result, "page": str(write_page(result, to))}


def _print_plan(plan: Sequence[Planned]) -> None:
    points = to_run(plan).values()
    for point in points:
        err.print(f"{point.estimated_s:5.0f} s  {point.twin.name}", soft_wrap=True)
    total_s = sum(point.estimated_s for point in points)
    stored = len({point.digest for point in plan}) - len(points)
    err.print(f"{len(points)} points to run, {stored} stored; {human_remaining(total_s)}")


def _draw_part(part: str, to: Path, as_json: bool) -> None:
    from results.figures.kit import printed_files
    from studies.paper.figures import draw_figure

    with writing(to):
        draw_figure(part, to / part)
    drawn = [str(file) for file in printed_files(to / part)]
    result = {"schema": "railbed.paper-figure/1", "figure": part, "files": drawn}
    print_result(result, as_json, lambda _: [Section("", remarks=drawn)])
