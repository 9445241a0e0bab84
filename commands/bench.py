"""The command `bench`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from commands import options
from commands.output import err, out, print_result
from execution.virtual_clock.command import EndedInside, bench_virtually
from model.errors import EmulationError, InputError, Problem
from model.sentences import counted
from results.sections.machine import clock_section
from results.sections.section import Section
from results.store.runs import DEFAULT_STORE
from scenarios.planning.machine_profile import in_virtual_clock
from studies.benchmarks import BENCHMARKS, Benchmark, Needs
from studies.benchmarks.render import recording
from studies.benchmarks.rows import FAILED, Row

SOAK = BENCHMARKS["soak"].options
# A soak of a week.
MOST_MINUTES = 7 * 24 * 60


def bench(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help=", ".join(BENCHMARKS), autocompletion=lambda: list(BENCHMARKS)
        ),
    ],
    as_json: options.AsJson = False,
    store: options.SomeStore = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0.1, max=MOST_MINUTES, help=f"of soak; default: {SOAK['minutes']}"),
    ] = None,
    seed: Annotated[int | None, typer.Option(help=f"of soak; default: {SOAK['seed']}")] = None,
    record: options.Record = False,
    clock: options.Clock = "real",
    fresh: options.Fresh = False,
) -> bool:
    """Measure a benchmark by one of the clocks, and print each row; return whether it failed."""
    if name not in BENCHMARKS:
        what = f"must be one of {', '.join(BENCHMARKS)}, got {name!r}"
        raise InputError(Problem("bench NAME", what))
    benchmark = BENCHMARKS[name]
    asked = {"minutes": minutes, "seed": seed}
    idle = {key: value for key, value in asked.items() if key not in benchmark.options}
    kept = None if benchmark.stores else store
    options.refuse_idle(f"has no effect on bench {name}", **idle, store=kept)
    if options.is_virtual(clock, None, fresh=fresh):
        return _bench_virtually(name, benchmark, as_json, store, fresh=fresh, record=record)
    if Needs.FABRIC in benchmark.needs:
        containers = Needs.CONTAINERS in benchmark.needs and not in_virtual_clock()
        offer = "" if Needs.REAL_CLOCK in benchmark.needs else options.NEEDS_NO_ROOT
        options.ready(None if containers else "process", offer)
    given = {key: value for key, value in asked.items() if value is not None}
    rows: list[Row] = []
    with recording(name, rows, record=record):
        try:
            for row in benchmark.measure(store or DEFAULT_STORE, **given):
                rows.append(row)
                # On standard error if the result is a JSON object.
                (err if as_json else out).print(_line(row), soft_wrap=True)
        finally:
            if as_json:
                print(json.dumps({"rows": rows}))
        if lost := [row for row in rows if FAILED in row]:
            what = f"{counted(len(lost), 'part')} of the benchmark ended early; the rows say why"
            raise EmulationError(what)
    return not all(row.get("judged_right", True) for row in rows)


def _bench_virtually(
    name: str, benchmark: Benchmark, as_json: bool, store: Path | None, *, fresh: bool, record: bool
) -> bool:
    if Needs.REAL_CLOCK in benchmark.needs:
        what = f"must be real for bench {name}, got virtual"
        raise InputError(Problem("--clock", what, "it measures or disturbs this machine itself"))
    rows: list[dict[str, Any]] = []
    try:
        with recording(name, rows, record=record, clock="virtual"):
            exit_code, result = bench_virtually(name, store or DEFAULT_STORE, fresh=fresh)
            rows += result["rows"]
    except EndedInside as ended:
        if ended.printed is not None:
            print_result(ended.printed, as_json, _sections)
        raise
    print_result(result, as_json, _sections)
    return exit_code != 0


def _sections(result: Mapping[str, Any]) -> list[Section]:
    return [Section("", remarks=tuple(map(_line, result["rows"]))), clock_section(result)]


def _line(row: Mapping[str, Any]) -> str:
    return "  ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items())
