"""The command `bench`."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from commands.options import (
    CONTAINER,
    NEEDS_NO_ROOT,
    AsJson,
    Clock,
    Fresh,
    Store,
    is_virtual,
)
from commands.output import err, exit_with, out, print_result
from commands.ready import ready
from model.errors import EmulationError, InputError, Problem
from results.store.runs import DEFAULT_STORE
from results.tables.style import print_clock

# A soak of a week.
MOST_MINUTES = 7 * 24 * 60


def bench(
    name: Annotated[
        str,
        typer.Argument(
            help="fidelity, startup, growth, capacity, matrix, gate, noise, buckets, calibration, "
            "datapaths, shapers, live, mininet, agents, routing, schedules, terms, traces, "
            "training, blackout, sharing or soak"
        ),
    ],
    as_json: AsJson = False,
    store: Store = DEFAULT_STORE,
    minutes: Annotated[float, typer.Option(help="duration of soak")] = 20,
    seed: Annotated[int, typer.Option(help="seed of soak's random numbers")] = 1,
    clock: Clock = "real",
    fresh: Fresh = False,
) -> None:
    """Measure the figures that the documentation states; some need no root, such as `routing`."""
    from studies.benchmarks import REAL_ONLY, benchmarks

    if not 0 < minutes <= MOST_MINUTES:
        what = f"must be more than 0 and at most {MOST_MINUTES}, got {minutes:g}"
        raise InputError(Problem("--minutes", what))
    known = benchmarks(minutes, seed)
    if name not in known:
        what = f"must be one of {', '.join(known)}, got {name!r}"
        raise InputError(Problem("bench NAME", what))
    if not is_virtual(clock, None, fresh=fresh):
        _bench(name, known[name], as_json, store)
    elif name in REAL_ONLY:
        what = f"must be real for bench {name}, got virtual"
        hint = "it measures or disturbs this machine itself"
        raise InputError(Problem("--clock", what, hint))
    else:
        _bench_virtually(name, as_json, store, fresh=fresh)


def _bench(
    name: str, measure: Callable[[Path], Iterator[dict[str, Any]]], as_json: bool, store: Path
) -> None:
    """Measure, and print each row at once: on standard error if the result is a JSON object."""
    from studies.benchmarks.common.rows import FAILED, Row

    _require_ready(name)
    rows: list[Row] = []
    try:
        for row in measure(store):
            rows.append(row)
            _print_row(row, err if as_json else out)
    finally:
        if as_json:
            print(json.dumps({"rows": rows}))
    if lost := [row for row in rows if FAILED in row]:
        raise EmulationError(f"{len(lost)} parts of the benchmark ended early; their rows say why")
    exit_with(failed=not all(row.get("judged_right", True) for row in rows))


def _require_ready(name: str) -> None:
    from scenarios.planning.machine_profile import in_virtual_clock
    from studies.benchmarks import WITH_CONTAINERS, WITH_NOISE, WITHOUT_FABRIC

    containers = name in WITH_CONTAINERS and not in_virtual_clock()
    if name not in WITHOUT_FABRIC:
        offer = "" if name in WITH_NOISE else NEEDS_NO_ROOT
        ready(CONTAINER if containers else "process", offer)


def _bench_virtually(name: str, as_json: bool, store: Path, *, fresh: bool) -> None:
    from execution.virtual_clock.run import bench_virtually

    exit_code, result = bench_virtually(name, store, fresh=fresh)
    print_result(result, as_json, _print_rows)
    exit_with(failed=exit_code != 0)


def _print_rows(result: Mapping[str, Any], console: Console) -> None:
    for row in result["rows"]:
        _print_row(row, console)
    print_clock(result, console)


def _print_row(row: Mapping[str, Any], console: Console) -> None:
    facts = (f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items())
    console.print("  ".join(facts), soft_wrap=True)
