"""Workloads that ask more than their generator can do."""

from collections.abc import Iterator, Mapping, Sequence

from model.fabric.spec import FabricKind, FabricSpec
from model.workload.generator import Generator, packets_of
from model.workload.transfers.columns import Transfers
from scenarios.format.issues import Issue
from scenarios.format.keys import ScenarioFile
from scenarios.scenario import Case
from scenarios.workloads.schedules import case_transfers

# On a larger fabric, executions would take too long: an agent serves all its peers, iperf3 one.
MOST_GPUS = 64
# iperf3 runs two processes of 3 MB for each pair; scapy needs a millisecond for each packet.
MOST_PAIRS, MOST_PACKETS = 500, 50_000
ONLY_AGENTS = f"use generator: {Generator.AGENT}"


def generator_issues(file: ScenarioFile) -> Iterator[Issue]:
    """Refuse faults and data checks with generators other than the agents."""
    for number, workload in enumerate(file.workloads):
        where = ("workloads", number, "generator")
        if workload.generator is Generator.AGENT:
            continue
        if file.faults:
            yield Issue(where, f"{workload.generator} executes no faults", ONLY_AGENTS)
        if file.check_data:
            what = f"{workload.generator} does not go with check_data"
            yield Issue(where, what, ONLY_AGENTS)


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
        return f"{generator} executes no steps of compute"
    if generator is Generator.IPERF3:
        pairs = len({*zip(transfers.source.tolist(), transfers.destination.tolist(), strict=True)})
        return f"iperf3 serves at most {MOST_PAIRS} pairs, got {pairs}" * (pairs > MOST_PAIRS)
    packets = int(packets_of(transfers.size_bytes).sum())
    too_many = packets > MOST_PACKETS
    return f"scapy crafts at most {MOST_PACKETS} packets, got {packets}" * too_many
