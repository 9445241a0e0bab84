"""Run a program that knows nothing of Railbed, or its launcher, in the proxies of a fabric."""

import math
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from execution.cases.emulation import Experiment, experiment
from execution.cases.observer import carried
from linux.machine.processor import is_set_here
from model.fabric.addressing import nic_address
from model.fabric.link_probes import PROBE_BYTES, probe_interval_s
from model.fabric.spec import FabricKind, FabricSpec
from model.fabric.topology import Hop, LinkKind, Topology
from results.verdicts.verdict import Verdict
from testbed.nodes.gpu_proxies import ProxyKind
from testbed.programs.environment import (
    create_containers,
    open_mpi_environment,
    rank_environment,
    require_image,
)
from testbed.programs.ranks import Command, OnLine, RanksResult, running_ranks

SCHEMA = "railbed.exec/1"
# Margin in rounds of link probes over the program's length: a link of a busy machine had five more.
MORE_ROUNDS = 10


@dataclass(frozen=True)
class Program:
    """A command for each rank, in a container of any `image`; or a `launcher`, once at rank 0."""

    arguments: Sequence[str]
    timeout_s: float
    image: str = ""
    launcher: bool = False


@dataclass(frozen=True)
class RankEnd:
    """A rank, its GPU and address, and its exit code; `None` if it was ended."""

    rank: int
    gpu: str
    address: str
    exit_code: int | None


@dataclass(frozen=True)
class LinkBytes:
    """The bytes that a link carried: up, away from the GPU, and down."""

    link: str
    kind: LinkKind
    lower: str
    up_bytes: int
    down_bytes: int


@dataclass(frozen=True)
class ProgramResult:
    """A program that ran: how it ended, and the bytes on all links.

    `sentence` says why it failed; empty if it did not. `probes_bytes` of a direction are an upper
    bound for the controller's link probes.
    """

    schema: str
    scenario: str
    fabric: FabricKind
    command: Sequence[str]
    verdict: Verdict
    sentence: str
    seconds: float
    ranks: Sequence[RankEnd]
    probes_bytes: int
    links: Sequence[LinkBytes]


def execute(
    scenario: str, spec: FabricSpec, kind: ProxyKind, program: Program, on_line: OnLine
) -> ProgramResult:
    """Bring a fabric up, run the program, and count the bytes on all links."""
    if program.image:
        require_image(program.image)
    with experiment(spec, kind, f"exec-{os.getpid()}-{scenario}") as fabric:
        fabric.bed.links.impair()
        commands = _commands(fabric, program)
        before = fabric.bed.links.read_counters()
        with running_ranks(commands, list(fabric.bed.process_ids.values()), on_line) as ranks:
            ended = ranks.wait(program.timeout_s, fabric.bed.watch.check)
        counted = carried(fabric, before, fabric.bed.links.read_counters())
        probe_rounds = counted.seconds / probe_interval_s(fabric.topology) + MORE_ROUNDS
        why = sentence(ended, [command.rank for command in commands], program.timeout_s)
        return ProgramResult(
            schema=SCHEMA,
            scenario=scenario,
            fabric=fabric.topology.spec.kind,
            command=program.arguments,
            verdict=Verdict.FAIL if why else Verdict.PASS,
            sentence=why,
            seconds=ended.seconds,
            ranks=[_rank_end(fabric, command.rank, ended) for command in commands],
            probes_bytes=PROBE_BYTES * math.ceil(probe_rounds),
            links=list(link_bytes(fabric.topology, counted.bytes)),
        )


def link_bytes(topology: Topology, counted: Mapping[Hop, int]) -> Iterator[LinkBytes]:
    """Yield the bytes of each link."""
    for link in topology.links:
        up, down = (counted[Hop(link, end.node)] for end in (link.lower, link.upper))
        yield LinkBytes(link.name, link.kind, link.lower.node, up, down)


def _commands(fabric: Experiment, program: Program) -> list[Command]:
    gpus, process_ids = fabric.placement.gpus, fabric.bed.process_ids
    if program.launcher:
        variables = open_mpi_environment(fabric.lock.folder, gpus, process_ids)
        return [_command(fabric, 0, program.arguments, variables)]
    environments = {gpu.name: rank_environment(rank, gpus) for rank, gpu in enumerate(gpus)}
    arguments = {gpu: list(program.arguments) for gpu in environments}
    if program.image:
        given = Path.cwd(), program.arguments, environments, fabric.bed.watch.check
        arguments = create_containers(program.image, fabric.lock, *given)
    return [
        _command(fabric, rank, arguments[gpu], environments[gpu])
        for rank, gpu in enumerate(environments)
    ]


def _command(
    fabric: Experiment, rank: int, arguments: Sequence[str], variables: Mapping[str, str]
) -> Command:
    own = {name: value for name, value in os.environ.items() if not is_set_here(name, value)}
    own.pop("PYTHONPATH", None)  # where this program's modules are
    environment = {**own, **fabric.lock.environment, **variables}
    process_id = fabric.bed.process_ids[fabric.placement.gpus[rank].name]
    return Command(rank, arguments, environment, process_id)


def _rank_end(fabric: Experiment, rank: int, ended: RanksResult) -> RankEnd:
    gpu = fabric.placement.gpus[rank]
    return RankEnd(rank, gpu.name, str(nic_address(gpu)), ended.codes.get(rank))


def sentence(ended: RanksResult, ranks: Sequence[int], timeout_s: float) -> str:
    """Say what went wrong; empty if all ranks ended with exit code 0."""
    if ended.timed_out:
        left = [str(rank) for rank in ranks if rank not in ended.codes]
        who, were = ("rank", "was") if len(left) == 1 else ("ranks", "were")
        return f"did not end within {timeout_s:g} s: {who} {', '.join(left)} {were} killed"
    if not ended.failed:
        return ""
    how = "; ".join(f"rank {rank} ended {_how(code)}" for rank, code in ended.failed.items())
    others = "; all others were killed" if len(ended.codes) < len(ranks) else ""
    return f"{how}{others}"


def _how(code: int) -> str:
    names = {one.value: one.name for one in signal.Signals}
    return f"with exit code {code}" if code > 0 else f"by {names.get(-code, f'signal {-code}')}"
