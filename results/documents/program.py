"""The JSON object of a program that ran in the proxies: the schema `railbed.exec/1`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from model.fabric.spec import FabricKind
from model.fabric.topology import Hop, Topology
from results.verdicts.verdict import Verdict

SCHEMA = "railbed.exec/1"


@dataclass(frozen=True)
class RankEnd:
    """A rank, its GPU and address, and its exit code; `None` if it was ended."""

    rank: int
    gpu: str
    address: str
    exit_code: int | None


@dataclass(frozen=True)
class ProgramRun:
    """A program that ran: how it ended, and the bytes that each direction of each link carried.

    `sentence` says why it failed; empty if it did not. `probes_bytes` of a direction are an upper
    bound for the controller's link probes.
    """

    scenario: str
    topology: Topology
    command: Sequence[str]
    ranks: Sequence[RankEnd]
    sentence: str
    seconds: float
    carried: Mapping[Hop, int]
    probes_bytes: int

    @property
    def kind(self) -> FabricKind:
        """The kind of fabric."""
        return self.topology.spec.kind


def program_object(run: ProgramRun) -> dict[str, Any]:
    """Return the object that `exec --json` prints."""
    return {
        "schema": SCHEMA,
        "scenario": run.scenario,
        "fabric": run.kind.value,
        "command": list(run.command),
        "verdict": (Verdict.FAIL if run.sentence else Verdict.PASS).value,
        "sentence": run.sentence,
        "seconds": run.seconds,
        "ranks": [vars(rank) for rank in run.ranks],
        "probes_bytes": run.probes_bytes,
        "links": list(_links(run)),
    }


def _links(run: ProgramRun) -> Iterator[dict[str, Any]]:
    """Yield the bytes of each link, up (away from the GPU) and down."""
    for link in run.topology.links:
        yield {
            "link": link.name,
            "kind": link.kind.value,
            "lower": link.lower.node,
            "up_bytes": run.carried[Hop(link, link.lower.node)],
            "down_bytes": run.carried[Hop(link, link.upper.node)],
        }
