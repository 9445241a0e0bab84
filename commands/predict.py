"""The command `predict`: the platform's time of a scenario's cases or of a trace, on paper."""

import os
from dataclasses import asdict, replace
from math import log2
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from commands.export_nccl_tests import groups, rows_as_printed
from commands.options import AsJson, Overrides, scenario_names
from commands.output import print_result
from commands.train import DomainSize, Gpus, PlatformName, checked_changes
from model.errors import InputError, Problem
from model.fabric.spec import COMPARED, PLATFORMS
from model.prediction.platform_time import FRAMINGS, USUAL_FRAMING, USUAL_MTU
from model.workload.generator import Generator
from results.sections.modeled import prediction_sections
from scenarios.format.units import SIZE_BOUNDS, SIZES, bounded_quantity
from scenarios.library_files import scenario_file
from scenarios.load import load, load_trace
from scenarios.planning.on_paper import left_out, on_paper
from scenarios.scenario import Scenario
from traffic_gen.workloads.sized_collective import SizedCollective

SCHEMA = "railbed.predict/1"
# A custom fabric has links, which no option gives.
Fabric = Literal["rail-only", "rail-optimized"]
TIMES, TIME_BOUNDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}, ("0.001 ns", "1000 ms")
LEAST_MTU, MOST_MTU = 256, 9216
# Of a trace, unless options say otherwise.
PLATFORM = "dgx-h100"
# An execution on paper has no repeats to check, and is not thinned out.
UNMEASURED = {"size_scale": 1.0, "data_is_right": None, "generator": Generator.AGENT}


def predict(
    work: Annotated[
        Path,
        typer.Argument(
            metavar="SCENARIO|TRACE",
            help="a scenario file, *.yaml, or a name from `list`; or a trace of another tool",
            autocompletion=scenario_names,
        ),
    ],
    overrides: Overrides = [],  # noqa: B006
    gpus: Gpus = None,
    domain_size: DomainSize = None,
    platform: PlatformName = None,
    fabric: Annotated[
        Fabric | None, typer.Option(help="of a trace: one of both, instead of both")
    ] = None,
    latency: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="latency of every link; the platform's by default"),
    ] = None,
    framing: Annotated[
        Literal["roce", "infiniband", "tcp", "none"],
        typer.Option(help="whose headers take their part of a NIC link's rate"),
    ] = USUAL_FRAMING,
    mtu: Annotated[
        int | None,
        typer.Option(
            min=LEAST_MTU,
            max=MOST_MTU,
            help="bytes of a full packet's payload; by default 4096, of `roce` the scenario's",
        ),
    ] = None,
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
    changes = checked_changes(gpus, None, domain_size, platform)
    loaded = _loaded(scenario_file(work), overrides, changes, fabric)
    if mtu is None:
        mtu = loaded.fabrics[0].roce.mtu if framing == USUAL_FRAMING else USUAL_MTU
    packets = FRAMINGS[framing](mtu)
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


def _loaded(
    path: Path, overrides: list[str], changes: dict[str, Any], fabric: Fabric | None
) -> Scenario:
    """Load a scenario, or put a trace, which is any other file or a folder, on a fabric."""
    if os.path.exists(path) and path.suffix not in (".yaml", ".yml"):
        kinds = COMPARED if fabric is None else (fabric,)
        grid = _grid(path, changes, _size_bytes(overrides))
        return load_trace(path, {"kinds": kinds, **grid}, overrides)
    if changes or fabric:
        option = "--fabric" if fabric else f"--{next(iter(changes)).replace('_', '-')}"
        raise InputError(Problem(option, "needs a trace", "change a scenario by --set"))
    return load(path, overrides, on_paper=True)


def _size_bytes(overrides: list[str]) -> int | None:
    """Return the size that overrides give the trace, if any."""
    key = "workloads.0.size="
    given = [text.removeprefix(key) for text in overrides if text.startswith(key)]
    return round(_quantity("--set", given[-1], SIZES, SIZE_BOUNDS)) if given else None


def _grid(path: Path, changes: dict[str, Any], size_bytes: int | None) -> dict[str, Any]:
    """Return the platform and the HB domains of a trace: by default, as many as its ranks fill."""
    # Formats of traces are imported only where there is one.
    from traffic_gen.traces.formats.nodes import Defaults
    from traffic_gen.traces.reading import files_of, read_trace

    platform = PLATFORMS[changes.get("platform", PLATFORM)]
    gpus = changes.get("gpus", len(files_of(path)))
    if "gpus" not in changes and gpus == 1:
        gpus = read_trace(path, Defaults(platform.domain_size, size_bytes)).ranks
    size = changes.get("domain_size", min(gpus, platform.domain_size))
    return {"platform": platform.name, "domains": -(-gpus // size), "domain_size": size}


def _ranged(scenario: Scenario, least: float, most: float) -> Scenario:
    """Return a scenario with each collective at sizes of which each is twice the last, in bytes."""
    if most < least:
        raise InputError(Problem("--end", "must be at least --begin"))
    sizes = [least * 2**step for step in range(1 + int(log2(most / least)))]
    cases = tuple(
        replace(case, task=case.task.of_size(size, scenario.spec_of(case.kind)))
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
