"""The command `predict`: the platform's time of a scenario's cases or of a trace, on paper."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from math import log2
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from commands.export_nccl_tests import groups, rows_as_printed
from commands.options import AsJson, Overrides, refuse_idle, scenario_names
from commands.output import err, print_result
from commands.train import Fabric, checked_changes
from model.errors import InputError, Problem, visible
from model.fabric.spec import COMPARED, PLATFORMS
from model.prediction.platform_time import FRAMINGS, USUAL_FRAMING
from model.workload.generator import Generator
from results.sections.modeled import prediction_sections
from scenarios.format.document import overlap, place_of, telling_other_kinds, value_of
from scenarios.format.units import SIZE_BOUNDS, SIZES, bounded_quantity, size_in_bytes
from scenarios.library_files import scenario_file
from scenarios.load import load, load_trace
from scenarios.planning.on_paper import CaseOnPaper, left_out, on_paper, only_modeled
from scenarios.planning.plan import told_on_paper
from scenarios.scenario import Scenario
from traffic_gen.workloads.sized_collective import SizedCollective

Value = TypeVar("Value")
TIMES, TIME_BOUNDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}, ("0 ns", "1000 ms")
NO_TIME = re.compile(r"\s*0(?:\.0+)?\s*")
# Keys of a trace's fabric that options determine.
KEYS_OF = {
    "gpus": ("domains", "domain_size"),
    "domain_size": ("domain_size",),
    "platform": ("platform",),
    "fabric": ("kinds",),
}
# Of the sizes of nccl-tests, unless options say otherwise.
BEGIN, END = "8 MiB", "8 GiB"
LEAST_MTU, MOST_MTU = 256, 9216
# Framings of RDMA, and the MTUs of its paths (IBTA specification, volume 1).
RDMA, MTUS = ("roce", "infiniband"), (256, 512, 1024, 2048, 4096)
# Shown on a terminal meanwhile: contended transfers without a closed form may take minutes.
COMPUTING = "Computing the times on paper"


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
    gpus: Annotated[
        int | None, typer.Option(metavar="N", help="of a trace: number of GPUs; default: its ranks")
    ] = None,
    domain_size: Annotated[
        int | None, typer.Option(metavar="K", help="of a trace: GPUs of an HB domain")
    ] = None,
    platform: Annotated[
        str | None, typer.Option(metavar="P", help="of a trace: the platform; default: dgx-h100")
    ] = None,
    fabric: Annotated[
        Fabric | None, typer.Option(help="of a trace: the fabric; default: both")
    ] = None,
    latency: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="latency of every link; default: the platform's"),
    ] = None,
    framing: Annotated[
        Literal["roce", "infiniband", "tcp", "none"],
        typer.Option(help="protocol whose headers packets have on NIC links"),
    ] = USUAL_FRAMING,
    mtu: Annotated[
        int | None,
        typer.Option(min=LEAST_MTU, max=MOST_MTU, help="of full packets; default: the scenario's"),
    ] = None,
    like: Annotated[
        Literal["nccl-tests"] | None,
        typer.Option(help="print the table of nccl-tests, from --begin to --end"),
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help=f"smallest size, doubled up to --end; default: {BEGIN}"),
    ] = None,
    end: Annotated[
        str | None, typer.Option(metavar="SIZE", help=f"largest size; default: {END}")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the time of every case at the platform's own rates, without terms of the emulation."""
    link_s = None if latency is None else _latency_s(latency)
    if like is None:
        refuse_idle("needs --like nccl-tests", begin=begin, end=end)
    elif as_json:
        raise InputError(Problem("--like", "cannot be combined with --json"))
    changes = checked_changes(gpus, None, domain_size, platform)
    loaded = _loaded(scenario_file(work), overrides, changes, fabric)
    if framing == "none":
        refuse_idle("has no effect with --framing none, which has no headers", mtu=mtu)
    payload_bytes = mtu or loaded.fabrics[0].roce.mtu
    if framing in RDMA and payload_bytes not in MTUS:
        what = f"of {framing} must be one of {', '.join(map(str, MTUS))}, got {payload_bytes}"
        raise InputError(Problem("--mtu", what, "--framing tcp has Ethernet's MTU"))
    packets = FRAMINGS[framing](payload_bytes)
    computed = loaded
    if like is not None:
        sizes = _sizes(BEGIN if begin is None else begin, END if end is None else end)
        computed = _ranged(loaded, sizes)
    with err.status(COMPUTING):
        told = [*told_on_paper(loaded)]
        cases, problems = on_paper(computed, packets, link_s)
    if like is None:
        shown = {"name": framing, "mtu": payload_bytes, "efficiency": packets.efficiency}
        named = {"schema": "railbed.predict/1", "framing": shown, "left_out": left_out(loaded)}
        named["notes"] = [*told, *only_modeled(loaded, cases)]
        found = {"cases": list(map(asdict, cases)), "problems": list(map(str, problems))}
        print_result({**named, **found}, as_json, prediction_sections)
    else:
        # What NCCL chooses differs from size to size, and is told for each.
        named_by_user = (case for case in cases if case.reason is None)
        _print_like_nccl_tests(loaded, cases, [*told, *only_modeled(computed, named_by_user)])
    if problems:
        raise InputError(*problems)


def _print_like_nccl_tests(
    scenario: Scenario, cases: Iterable[CaseOnPaper], notes: Iterable[str]
) -> None:
    """Print the columns of nccl-tests, what NCCL chose for each size, notes, and what has none."""
    for name, together in groups([_as_run(asdict(case)) for case in cases]).items():
        by_nccl = (case for case in together if case["reason"])
        chosen = (f"# {case['bytes']:.0f} B: {case['reason']}" for case in by_nccl)
        print(*map(visible, (*rows_as_printed(name, together), *chosen)), sep="\n")
    # Of collectives of equally many ranks each, nccl-tests have columns.
    bare = (
        case.name
        for case in scenario.cases
        if not isinstance(case.task, SizedCollective) or case.task.members is None
    )
    missing = (f"not predicted: {name}" for name in bare)
    for told in (*notes, *missing, *(f"left out: {what}" for what in left_out(scenario))):
        print(visible(f"# {told}"))


def _sizes(begin: str, end: str) -> list[float]:
    """Parse the bounds of sizes; return those sizes in bytes, each twice the last."""
    least = _parsed("--begin", begin, bounded_quantity, SIZES, *SIZE_BOUNDS)
    most = _parsed("--end", end, bounded_quantity, SIZES, *SIZE_BOUNDS)
    if most < least:
        raise InputError(Problem("--end", f"must be at least --begin, {begin}, got {end}"))
    return [least * 2**step for step in range(1 + int(log2(most / least)))]


def _loaded(
    path: Path, overrides: list[str], changes: dict[str, Any], fabric: Fabric | None
) -> Scenario:
    """Load a scenario, or put a trace, which is any other file or a folder, on a fabric."""
    if _is_trace(path):
        if replaced := list(_replaced({**changes, "fabric": fabric}, overrides)):
            raise InputError(*replaced)
        kinds = COMPARED if fabric is None else (fabric,)
        with telling_other_kinds(path, "scenario", "trace"):
            return load_trace(path, {"kinds": kinds, **_grid(path, changes, overrides)}, overrides)
    refuse_idle("needs a trace", "change a scenario by --set", fabric=fabric, **changes)
    return load(path, overrides, on_paper=True)


def _replaced(given: Mapping[str, Any], overrides: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for each change of a key that an option of a trace's fabric determines."""
    asked = [option for option, value in given.items() if value is not None]
    for text, option in product(overrides, asked):
        place = place_of(text.partition("=")[0])
        if any(overlap(place, ("fabric", key)) for key in KEYS_OF[option]):
            name = f"--{option.replace('_', '-')}"
            yield Problem(f"--set {text}", f"cannot be combined with {name}", "leave one out")


def _is_trace(path: Path) -> bool:
    """Whether a path is no scenario's, but a file, a folder, or what a trace's files begin with."""
    # Formats of traces are imported only where there may be one.
    from traffic_gen.traces.reading import files_of

    if path.suffix in (".yaml", ".yml"):
        return False
    return os.path.exists(path) or files_of(path) != [path]


def _grid(path: Path, changes: dict[str, Any], overrides: list[str]) -> dict[str, Any]:
    """Return the platform and the HB domains of a trace: by default, as many as its ranks fill."""
    from traffic_gen.traces.formats.nodes import Defaults
    from traffic_gen.traces.reading import files_of, read_trace

    platform = PLATFORMS[changes.get("platform", "dgx-h100")]
    gpus = changes.get("gpus", len(files_of(path)))
    key = "workloads.0.size="
    sizes = [text.removeprefix(key) for text in overrides if text.startswith(key)]
    size_bytes = _parsed("--set", sizes[-1], _size_bytes) if sizes else None
    if "gpus" not in changes and gpus == 1:
        gpus = read_trace(path, Defaults(platform.domain_size, size_bytes)).ranks
    size = changes.get("domain_size", min(gpus, platform.domain_size))
    if "gpus" in changes and gpus % size:
        what = f"must be a multiple of --domain-size, {size}, got {gpus}"
        raise InputError(Problem("--gpus", what))
    return {"platform": platform.name, "domains": -(-gpus // size), "domain_size": size}


def _size_bytes(text: str) -> int | None:
    """Parse a size in YAML, as a scenario has it; raise `ValueError` for one that is wrong."""
    size = value_of(text)
    return None if size is None else round(size_in_bytes(str(size)))


def _ranged(scenario: Scenario, sizes: Sequence[float]) -> Scenario:
    """Return a scenario with each collective at these sizes, in bytes."""
    # Cases that differ in size alone, or in what sends, have the same rows.
    cases = {
        (case.kind, sized): replace(case, task=sized)
        for case in scenario.cases
        if isinstance(case.task, SizedCollective)
        for size in sizes
        for sized in [case.task.of_size(size, scenario.spec_of(case.kind))]
    }
    if not cases:
        raise InputError(Problem("--like", "needs a scenario with a collective"))
    return replace(scenario, cases=tuple(cases.values()))


def _as_run(case: dict[str, Any]) -> dict[str, Any]:
    """Return a case with the keys that a run's case has for the same values."""
    # An execution on paper has no repeats to check, and is not thinned out.
    unmeasured = {"size_scale": 1.0, "data_is_right": None, "generator": Generator.AGENT}
    return {
        **case,
        **unmeasured,
        "real_s": case["completion_s"],
        "algbw_gbyte_per_s": case["algbw"],
        "busbw_gbyte_per_s": case["busbw"],
    }


def _latency_s(text: str) -> float:
    """Parse a latency in seconds; none at all needs no unit."""
    if NO_TIME.fullmatch(text):
        return 0.0
    return _parsed("--latency", text, bounded_quantity, TIMES, *TIME_BOUNDS)


def _parsed(option: str, text: str, parse: Callable[..., Value], *how: Any) -> Value:
    """Parse the value of an option; raise `InputError` for one that is wrong."""
    try:
        return parse(text, *how)
    except ValueError as error:
        raise InputError(Problem(option, str(error))) from error
