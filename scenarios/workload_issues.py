"""Workloads that do not fit their scenario, the grid of GPUs, or their generator."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from model.fabric.spec import FabricKind, FabricSpec
from model.job.communicators import Shape
from model.workload.generator import Generator, packets_of
from model.workload.transfers.columns import Transfers
from scenarios.cases import case_transfers
from scenarios.format.issues import Issue, Place
from scenarios.format.keys import ScenarioFile
from scenarios.format.workloads.kinds import AnyWorkload
from scenarios.scenario import Case

# On a larger fabric, executions would take too long: an agent serves all its peers, iperf3 one.
MOST_GPUS = 64
# iperf3 runs two processes of 3 MB for each pair; scapy needs a millisecond for each packet.
MOST_PAIRS, MOST_PACKETS = 500, 50_000
ONLY_AGENTS = f"use generator: {Generator.AGENT}"
# The agents' header has 32 bits for the length of a transfer.
MAX_TRANSFER_BYTES = 2**32 - 1


def workload_issues(file: ScenarioFile) -> Iterator[Issue]:
    """Yield issues of workloads that no fabric and no schedule has to be built for."""
    for number, workload in enumerate(file.workloads):
        place = "workloads", number
        yield from _key_issues(file, place, workload)
        yield from workload.early_issues(place, _grid(file))
    excluded = {key: why for workload in file.workloads for key, why in workload.excludes.items()}
    yield from (Issue((key,), *why) for key, why in excluded.items() if getattr(file, key))


def _grid(file: ScenarioFile) -> Shape:
    return file.fabric.domains, file.fabric.domain_size


def _key_issues(file: ScenarioFile, place: Place, workload: AnyWorkload) -> Iterator[Issue]:
    """Yield issues of a workload on no fabric, with two scales, or of what only agents can do."""
    if not set(workload.kinds) & set(file.fabric.kinds):
        hint = f"fabric.kinds: {', '.join(file.fabric.kinds)}"
        yield Issue((*place, "kinds"), "matches none of the scenario's fabrics", hint)
    if workload.time_dilation is not None and "size_scale" in workload.model_fields_set:
        yield Issue((*place, "time_dilation"), "cannot be combined with size_scale")
    where, generator = (*place, "generator"), workload.generator
    if generator is not Generator.AGENT and file.faults:
        yield Issue(where, f"{generator} cannot be combined with faults", ONLY_AGENTS)
    if generator is not Generator.AGENT and file.check_data:
        yield Issue(where, f"{generator} cannot be combined with check_data", ONLY_AGENTS)


def given_size_issues(file: ScenarioFile) -> Iterator[Issue]:
    """Yield issues of sizes and scales that are both in the file."""
    for number, workload in enumerate(file.workloads):
        scale = _given_scale(file, workload)
        for place, task in workload.given_sizes(("workloads", number), _grid(file)):
            yield from _size_issues(place, task.name, scale, task.largest_bytes / scale)


def schedule_issues(file: ScenarioFile) -> Iterator[Issue]:
    """Yield issues of all work on its grid of GPUs."""
    for number, workload in enumerate(file.workloads):
        yield from workload.issues(("workloads", number), _grid(file))


def _given_scale(file: ScenarioFile, workload: AnyWorkload) -> float:
    """Return the size scale that a workload gives; infinity if it is `auto`."""
    if workload.time_dilation is None:
        return inf if workload.size_scale == "auto" else workload.size_scale
    given = file.fabric.bandwidth_scale, workload.time_dilation
    return inf if "auto" in given else float(given[0]) / float(given[1])


def size_issues(cases: Sequence[Case]) -> Iterator[Issue]:
    """Yield issues of cases that would send more than the real size, or too large transfers."""
    for case in cases:
        place = "workloads", case.workload
        most_bytes = case.task.largest_bytes / case.size_scale
        yield from _size_issues(place, case.name, case.size_scale, most_bytes)


def _size_issues(place: Place, name: str, size_scale: float, most_bytes: float) -> Iterator[Issue]:
    if size_scale < 1:
        what = f"{name}: sends {1 / size_scale:.3g} times the real size"
        yield Issue(place, what, "use a time_dilation of at most bandwidth_scale")
    elif most_bytes > MAX_TRANSFER_BYTES:
        what = f"{name}: {most_bytes:.0f} bytes exceed the limit of a transfer"
        yield Issue(place, what, "use a larger size_scale, or a smaller time_dilation")


def generator_load_issues(fabrics: Sequence[FabricSpec], cases: Sequence[Case]) -> Iterator[Issue]:
    """Issues of cases with more pairs or packets than their generator can serve."""
    specs: Mapping[FabricKind, FabricSpec] = {spec.kind: spec for spec in fabrics}
    for case in cases:
        where = ("workloads", case.workload, "generator")
        if case.generator is Generator.AGENT:
            continue
        if specs[case.kind].gpus > MOST_GPUS:
            what = f"{case.generator} serves at most {MOST_GPUS} GPUs"
            yield Issue(where, f"{what}, got {specs[case.kind].gpus}", ONLY_AGENTS)
            continue
        what = _limit_problem(case.generator, case_transfers(case, specs[case.kind]))
        if what:
            yield Issue(where, f"{case.name}: {what}", ONLY_AGENTS)


def _limit_problem(generator: Generator, transfers: Transfers) -> str:
    """Say which limit of a generator the transfers exceed; empty if none."""
    if transfers.is_compute.any():
        return f"{generator} cannot execute compute steps"
    if generator is Generator.IPERF3:
        pairs = len({*zip(transfers.source.tolist(), transfers.destination.tolist(), strict=True)})
        return f"iperf3 serves at most {MOST_PAIRS} pairs, got {pairs}" * (pairs > MOST_PAIRS)
    packets = int(packets_of(transfers.size_bytes).sum())
    too_many = packets > MOST_PACKETS
    return f"scapy crafts at most {MOST_PACKETS} packets, got {packets}" * too_many
