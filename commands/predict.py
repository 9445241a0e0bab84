"""The command `predict`: the platform's time of a scenario's cases, on paper."""

from dataclasses import asdict, replace
from math import log2
from typing import Annotated, Any, Literal

import typer

from commands.export_nccl_tests import groups, rows_as_printed
from commands.options import AsJson, Overrides, ScenarioPath
from commands.output import print_result
from model.errors import InputError, Problem
from model.prediction.platform_time import FRAMINGS
from model.workload.generator import Generator
from results.sections.modeled import prediction_sections
from scenarios.format.units import SIZE_BOUNDS, SIZES, bounded_quantity
from scenarios.library_files import scenario_file
from scenarios.load import load
from scenarios.planning.on_paper import left_out, on_paper
from scenarios.scenario import Scenario
from traffic_gen.workloads.sized_collective import SizedCollective

SCHEMA = "railbed.predict/1"
TIMES, TIME_BOUNDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}, ("0.001 ns", "1000 ms")
LEAST_MTU, MOST_MTU = 256, 9216
# An execution on paper has no repeats to check, and is not thinned out.
UNMEASURED = {"size_scale": 1.0, "data_is_right": None, "generator": Generator.AGENT}


def predict(
    scenario: ScenarioPath,
    overrides: Overrides = [],  # noqa: B006
    latency: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="latency of every link; the platform's by default"),
    ] = None,
    framing: Annotated[
        Literal["roce", "infiniband", "tcp", "none"],
        typer.Option(help="whose headers take their part of a NIC link's rate"),
    ] = "roce",
    mtu: Annotated[
        int, typer.Option(min=LEAST_MTU, max=MOST_MTU, help="bytes of a full packet's payload")
    ] = 4096,
    like: Annotated[
        Literal["nccl-tests"] | None,
        typer.Option(help="print the columns of nccl-tests, from --begin to --end"),
    ] = None,
    begin: Annotated[
        str, typer.Option(metavar="SIZE", help="the least size; each next one is twice the last")
    ] = "8 MiB",
    end: Annotated[str, typer.Option(metavar="SIZE", help="the largest size")] = "8 GiB",
    as_json: AsJson = False,
) -> None:
    """Print the time of every case at the platform's own rates, without terms of the emulation."""
    link_s = None if latency is None else _quantity("--latency", latency, TIMES, TIME_BOUNDS)
    packets = FRAMINGS[framing](mtu)
    loaded = load(scenario_file(scenario), overrides, on_paper=True)
    if like is None:
        cases = [asdict(case) for case in on_paper(loaded, packets, link_s)]
        shown = {"name": framing, "mtu": mtu, "efficiency": packets.efficiency}
        named = {"schema": SCHEMA, "framing": shown, "left_out": left_out(loaded)}
        print_result({**named, "cases": cases}, as_json, prediction_sections)
        return
    if as_json:
        raise InputError(Problem("--like", "cannot be combined with --json"))
    least, most = (
        _quantity(option, size, SIZES, SIZE_BOUNDS)
        for option, size in (("--begin", begin), ("--end", end))
    )
    rows = [
        _as_run(asdict(case)) for case in on_paper(_ranged(loaded, least, most), packets, link_s)
    ]
    for name, together in groups(rows).items():
        print(*rows_as_printed(name, together), sep="\n")


def _ranged(scenario: Scenario, least: float, most: float) -> Scenario:
    """Return a scenario with each collective at sizes of which each is twice the last, in bytes."""
    if most < least:
        raise InputError(Problem("--end", "must be at least --begin"))
    sizes = [least * 2**step for step in range(1 + int(log2(most / least)))]
    cases = tuple(
        replace(case, task=replace(case.task, size_bytes=size))
        for case in scenario.cases
        if isinstance(case.task, SizedCollective)
        for size in sizes
    )
    if not cases:
        raise InputError(Problem("--like", "needs a scenario with a collective"))
    return replace(scenario, cases=cases)


def _as_run(case: dict[str, Any]) -> dict[str, Any]:
    """Return a case with the keys that a run's case has for the same values."""
    return {
        **case,
        **UNMEASURED,
        "real_s": case["completion_s"],
        "algbw_gbyte_per_s": case["algbw"],
        "busbw_gbyte_per_s": case["busbw"],
    }


def _quantity(option: str, text: str, units: dict[str, float], bounds: tuple[str, str]) -> float:
    """Parse the value of an option, a number with a unit."""
    try:
        return bounded_quantity(text, units, *bounds)
    except ValueError as error:
        raise InputError(Problem(option, str(error))) from error
