"""Resolve a checked file to a scenario: defaults, `auto`, and checks across keys."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from math import inf

from model.fabric.spec import FabricKind, FabricSpec
from model.fabric.transport import Transport
from model.faults import Fault
from model.prediction.machine import Machine
from model.workload.generator import CRAFTED, Generator
from results.verdicts.verdict import Thresholds
from scenarios.format.document import Document
from scenarios.format.fabric import (
    buffer_issues,
    delay_issues,
    fabric_issues,
    fabric_spec,
    rate_issues,
    timeout_issues,
)
from scenarios.format.fabric import idle_keys as idle_fabric_keys
from scenarios.format.faults import OF_REPLAY, fault_issues, faults_on
from scenarios.format.faults import idle_keys as idle_fault_keys
from scenarios.format.irregular import job_grid, unconnected_issues
from scenarios.format.issues import Issue, Place
from scenarios.format.keys import DatapathChoice, Expect, ScenarioFile
from scenarios.format.workloads.kinds import AnyWorkload
from scenarios.planning.admission import admission_issues, late_faults
from scenarios.planning.auto import auto_bandwidth_scale_of, bucket_depth, grain, sized_cases
from scenarios.scenario import AUTO, Case, Chosen, Repeats, Scenario, Specs
from traffic_gen.workloads.task import Task

# Limits of the ratio of measured to modeled times.
OF_RATIO = ("ratio_within", "ratio_limit")
# On a larger fabric, executions would take too long: an agent serves all its peers, iperf3 one.
MOST_GPUS = 64
# iperf3 runs two processes of 3 MB for each pair; scapy needs a millisecond for each packet.
MOST_PAIRS, MOST_PACKETS = 500, 50_000
ONLY_AGENTS = f"use generator: {Generator.AGENT}"
# An agent holds real data up to four times: a gibibyte takes it ten seconds, and half of a
# container's memory.
MOST_CHECKED_BYTES = 2**30
# The agents' header has 32 bits for the length of a transfer.
MAX_TRANSFER_BYTES = 2**32 - 1


def resolve(
    document: Document,
    file: ScenarioFile,
    name: str,
    text: str,
    machine: Machine | None,
    on_paper: bool = False,
) -> Scenario:
    """Return the scenario; raises `InputError` with all issues of a step.

    `machine` has this machine's measured costs; they are ignored if the scenario asks for another
    datapath. A scenario `on_paper` may have more GPUs than any fabric.
    """
    _refuse_sections(document, file, on_paper)
    if machine and file.fabric.datapath not in (DatapathChoice.AUTO, machine.key.datapath):
        machine = None
    specs, chosen = _fabrics(document, file, machine, on_paper)
    faults, of_faults = _faults(file, specs)
    # Proofs of schedules take longest, so all other checks come first.
    proofs = () if file.fabric.bandwidth_scale == "auto" else _schedule_issues(file)
    document.refuse(chain(of_faults, proofs))
    if not on_paper:
        chosen["grain"] = grain(file, machine)
        packets = round(chosen["grain"].value)
        specs = {kind: replace(spec, grain_packets=packets) for kind, spec in specs.items()}
        for issues in (buffer_issues, delay_issues, timeout_issues):
            document.refuse([issue for spec in specs.values() for issue in issues(spec)][:1])
    cases = _cases(document, file, specs, machine)
    if on_paper:
        document.refuse(_repeated_cases(cases))
    else:
        document.refuse(_case_issues(file, specs, cases, machine))
        document.refuse(late_faults(file, specs, cases))
    chosen |= {f"{case.chosen[0]} of {case.name}": case.chosen[1] for case in cases if case.chosen}
    expect, count, network = file.expect, file.repeats, file.fabric.topology
    of_network = (f"all but the rates of links in {network}",) if network else ()
    return Scenario(
        name=name,
        text=text,
        keys=file,
        fabrics=tuple(specs.values()),
        cases=cases,
        repeats=AUTO if count == "auto" else Repeats(count, count),
        thresholds=Thresholds(expect.ratio_within, expect.ratio_limit),
        replay_thresholds=Thresholds(expect.replay_within, expect.replay_limit),
        faults=faults,
        chosen={key: value for key, value in chosen.items() if value.why},
        places=_places(document, file),
        left_out=(*of_network, *_idle_keys(file)),
    )


def _idle_keys(file: ScenarioFile) -> Iterator[str]:
    """Yield the keys that change nothing."""
    yield from idle_fabric_keys(file.fabric)
    yield from idle_fault_keys(file)
    for number, workload in enumerate(file.workloads):
        yield from (f"workloads.{number}.{what}" for what in workload.idle_keys())
    generators = {one.generator for one in file.workloads}
    if "window" in file.fabric.model_fields_set and Generator.AGENT not in generators:
        yield "fabric.window: agents alone use it"
    timed = not file.check_data and any(one.generator.is_timed for one in file.workloads)
    # Of a replay as well, which is told without faults, too.
    limits = OF_RATIO + (OF_REPLAY if file.faults else ())
    given = [f"expect.{key}" for key in limits if key in file.expect.model_fields_set]
    if given and not timed:
        by = "check_data" if file.check_data else f"generator {file.workloads[0].generator}"
        yield f"{', '.join(given)}: by {by}, no times are judged"


def _refuse_sections(document: Document, file: ScenarioFile, on_paper: bool) -> None:
    """Refuse the issues of sections that need no rates and no proofs.

    The GPUs of a fabric that is refused may be too many to number.
    """
    of_fabric = list(fabric_issues(file.fabric, on_paper))
    of_workloads = () if of_fabric else _workload_issues(file)
    document.refuse(chain(of_fabric, of_workloads, _expect_issues(file.expect), fault_issues(file)))
    real = [fabric_spec(file, kind, 1.0) for kind in file.fabric.kinds]
    if file.fabric.missing:
        document.refuse(chain(*map(unconnected_issues, real)))
    if not on_paper:
        document.refuse(_given_size_issues(file))
        placed = _placed_workloads(file)
        document.refuse(chain(*(work.modeled_issues(place, real[0]) for place, work in placed)))


def _fabrics(
    document: Document, file: ScenarioFile, machine: Machine | None, on_paper: bool
) -> tuple[Specs, dict[str, Chosen]]:
    """Return the fabrics at their rates, and the values chosen for `auto`, by key."""
    if file.fabric.bandwidth_scale != "auto":
        scale = Chosen(file.fabric.bandwidth_scale)
    else:
        # The choice needs schedules that are right; names of components need no rates.
        real = {kind: fabric_spec(file, kind, 1.0) for kind in file.fabric.kinds}
        document.refuse(chain(_faults(file, real)[1], _schedule_issues(file)))
        scale = Chosen(1.0) if on_paper else auto_bandwidth_scale_of(file, machine)
    depth = bucket_depth(file, machine)
    specs = {kind: fabric_spec(file, kind, scale.value, depth.value) for kind in file.fabric.kinds}
    if not on_paper:
        document.refuse([issue for spec in specs.values() for issue in rate_issues(spec)][:1])
    return specs, {"bandwidth_scale": scale, "bucket_depth": depth}


def _faults(
    file: ScenarioFile, specs: Specs
) -> tuple[dict[FabricKind, tuple[Fault, ...]], list[Issue]]:
    """Return the faults on each fabric, and issues; without any, all GPUs are connected."""
    broken = {kind: faults_on(file, spec) for kind, spec in specs.items() if file.faults}
    issues = [issue for _, wrong in broken.values() for issue in wrong]
    return {kind: faults for kind, (faults, _) in broken.items()}, issues


def _cases(
    document: Document, file: ScenarioFile, specs: Specs, machine: Machine | None
) -> tuple[Case, ...]:
    """Return the cases of all workloads on all fabrics, each with a name of its own."""
    return _named_apart(
        replace(case, workload=place[1], where=document.where(place))
        for spec in specs.values()
        for place, workload in _placed_workloads(file)
        if spec.kind in workload.kinds
        for case in sized_cases(workload, spec, machine)
    )


def _placed_workloads(file: ScenarioFile) -> Iterator[tuple[tuple[str, int], AnyWorkload]]:
    """Yield each workload with its place in the file."""
    yield from ((("workloads", number), one) for number, one in enumerate(file.workloads))


def _places(document: Document, file: ScenarioFile) -> dict[str, str]:
    """Return where the keys of the fabric are, and the first fault of each mode."""
    given = [key for key in file.fabric.model_fields_set if getattr(file.fabric, key)]
    modes = {entry.how: number for number, entry in reversed(list(enumerate(file.faults)))}
    return {
        **{key: document.where(("fabric", key)) for key in given},
        **{mode: document.where(("faults", number, "how")) for mode, number in modes.items()},
    }


def _case_issues(
    file: ScenarioFile, specs: Specs, cases: tuple[Case, ...], machine: Machine | None
) -> Iterator[Issue]:
    """Issues of cases that are repeated, too large, or too much for this machine."""
    yield from _repeated_cases(cases)
    too_large: list[Issue] = []
    for case in cases:
        place = "workloads", case.workload
        too_large += _size_issues(place, case.name, case.task.largest_bytes, case.size_scale)
    too_large = too_large or list(_checked_issues(file, cases))
    yield from too_large or _generator_load_issues(specs, cases)
    if not file.allow_overload:
        yield from admission_issues(file, specs, cases, machine)


def _expect_issues(expect: Expect) -> Iterator[Issue]:
    for name in ("ratio", "replay"):
        within, limit = (getattr(expect, f"{name}_{which}") for which in ("within", "limit"))
        if limit < within:
            what = f"must be at least {name}_within, {within:g}, got {limit:g}"
            yield Issue(("expect", f"{name}_limit"), what)


def _workload_issues(file: ScenarioFile) -> Iterator[Issue]:
    """Yield issues of workloads that no fabric and no schedule has to be built for."""
    fabric = file.fabric
    for place, workload in _placed_workloads(file):
        yield from _key_issues(file, place, workload)
        yield from workload.early_issues(place, job_grid(fabric), fabric.platform, fabric.nics)
    excluded = {key: why for workload in file.workloads for key, why in workload.excludes.items()}
    yield from (Issue((key,), *why) for key, why in excluded.items() if getattr(file, key))


def _key_issues(file: ScenarioFile, place: Place, workload: AnyWorkload) -> Iterator[Issue]:
    """Yield issues of a workload on no fabric, with two scales, or of what only agents can do."""
    if not set(workload.kinds) & set(file.fabric.kinds):
        hint = f"fabric.kinds: {', '.join(file.fabric.kinds)}"
        yield Issue((*place, "kinds"), "matches none of the scenario's fabrics", hint)
    if workload.time_dilation is not None and "size_scale" in workload.model_fields_set:
        yield Issue((*place, "time_dilation"), "cannot be combined with size_scale")
    only_by_agents = {
        "uses one NIC port of a GPU": file.fabric.lanes > 1,
        "cannot be combined with faults": file.faults,
        "cannot be combined with transport: roce": file.fabric.transport is Transport.ROCE,
        "cannot be combined with check_data": file.check_data,
    }
    for what, is_asked in only_by_agents.items():
        if is_asked and workload.generator is not Generator.AGENT:
            yield Issue((*place, "generator"), f"{workload.generator} {what}", ONLY_AGENTS)


def _given_size_issues(file: ScenarioFile) -> Iterator[Issue]:
    """Yield issues of sizes and scales that are both in the file."""
    grid = job_grid(file.fabric)
    for place, workload in _placed_workloads(file):
        scale = _given_scale(file, workload)
        for inside, task in workload.given_sizes(place, grid):
            yield from _size_issues(inside, task.name, task.largest_bytes, scale)


def _schedule_issues(file: ScenarioFile) -> Iterator[Issue]:
    grid, platform = job_grid(file.fabric), file.fabric.platform or "own"
    for place, workload in _placed_workloads(file):
        yield from workload.placed_issues(place, grid, platform)


def _given_scale(file: ScenarioFile, workload: AnyWorkload) -> float:
    """Return the size scale that a workload gives; infinity if it is `auto`."""
    if workload.time_dilation is None:
        return inf if workload.size_scale == "auto" else workload.size_scale
    given = file.fabric.bandwidth_scale, workload.time_dilation
    return inf if "auto" in given else float(given[0]) / float(given[1])


def _size_issues(place: Place, name: str, real_bytes: float, size_scale: float) -> Iterator[Issue]:
    """Yield an issue of work that would send more than the real size, or too large transfers."""
    most_bytes = real_bytes / size_scale
    if size_scale < 1:
        what = f"{name}: sends {1 / size_scale:.3g} times the real size"
        yield Issue(place, what, "use a time_dilation of at most bandwidth_scale")
    elif most_bytes > MAX_TRANSFER_BYTES:
        what = f"{name}: {most_bytes:.0f} bytes, counted as one transfer, exceed its limit"
        hint = "use a larger size_scale, or a smaller time_dilation"
        yield Issue(place, f"{what}, {MAX_TRANSFER_BYTES}", hint)


def _checked_issues(file: ScenarioFile, cases: Sequence[Case]) -> Iterator[Issue]:
    """Yield an issue of each case with more real data than an agent holds and compares."""
    for case in cases if file.check_data else ():
        if case.emulated_bytes > MOST_CHECKED_BYTES:
            what = f"{case.name}: must have at most {MOST_CHECKED_BYTES} bytes to check"
            hint = "use a larger size_scale, or leave out check_data"
            yield Issue(("check_data",), f"{what}, got {case.emulated_bytes}", hint)


def _generator_load_issues(specs: Specs, cases: Sequence[Case]) -> Iterator[Issue]:
    """Issues of cases with more GPUs, pairs or packets than their generator can serve."""
    for case in cases:
        if case.generator is not Generator.AGENT and (what := _excess(case, specs[case.kind])):
            yield Issue(("workloads", case.workload, "generator"), what, ONLY_AGENTS)


def _excess(case: Case, spec: FabricSpec) -> str:
    """Say which limit of its generator, which is no agent, a case exceeds; empty if none."""
    if spec.gpus > MOST_GPUS:
        return f"{case.generator} serves at most {MOST_GPUS} GPUs, got {spec.gpus}"
    transfers = case.transfers(spec)
    if transfers.is_compute.any():
        return f"{case.name}: {case.generator} cannot execute compute steps"
    if case.generator is Generator.IPERF3:
        pairs = {*zip(transfers.source.tolist(), transfers.destination.tolist(), strict=True)}
        count, most, can = len(pairs), MOST_PAIRS, f"serves at most {MOST_PAIRS} pairs"
    else:
        count = int(CRAFTED.packets(transfers.size_bytes).sum())
        most, can = MOST_PACKETS, f"crafts at most {MOST_PACKETS} packets"
    return f"{case.name}: {case.generator} {can}, got {count}" if count > most else ""


def _named_apart(cases: Iterable[Case]) -> tuple[Case, ...]:
    """Append its marks to the name of each case, one by one, if cases of its name differ in it.

    Different tasks whose marks are equal, as matrices of equal sums, have the numbers of the first
    workloads with them.
    """
    named = list(cases)
    for which in (0, 1):
        known = defaultdict[str, set[str]](set)
        for case in named:
            known[case.name].add(case.marks[which])
        for number, case in enumerate(named):
            if (mark := case.marks[which]) and len(known[case.name]) > 1:
                named[number] = replace(case, name=f"{case.name}/{mark}")
    first = defaultdict[str, dict[Task, int]](dict)
    for case in named:
        first[case.name].setdefault(case.task, case.workload)
    return tuple(
        replace(case, name=f"{case.name}/workload-{first[case.name][case.task]}")
        if len(first[case.name]) > 1
        else case
        for case in named
    )


def _repeated_cases(cases: tuple[Case, ...]) -> Iterator[Issue]:
    for name, count in Counter(case.name for case in cases).items():
        if count > 1:
            times = "twice" if count == 2 else f"{count} times"
            hint = "leave one out; `./railbed sweep` compares scales"
            yield Issue(("workloads",), f"case {name} is defined {times}", hint)
