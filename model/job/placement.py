"""Placement of a job: the state of the fabric, and the GPU of every rank."""

from dataclasses import dataclass
from functools import cached_property

from model.fabric.addressing import address_of
from model.fabric.health import HEALTHY, Epoch, Health
from model.fabric.spec import FabricSpec
from model.fabric.topology import (
    CrossConnects,
    Gpu,
    RankGpus,
    Topology,
    build_topology,
    straight_cross_connects,
)

Pair = tuple[Gpu, Gpu]


@dataclass(frozen=True)
class Placement:
    """The cross-connects of NIC links, the fabric's health, and the GPU of every rank."""

    spec: FabricSpec
    cross_connects: CrossConnects
    gpus: RankGpus
    health: Health = HEALTHY

    @cached_property
    def topology(self) -> Topology:
        """The fabric with these cross-connects."""
        return build_topology(self.spec, self.cross_connects)

    @property
    def epoch(self) -> Epoch:
        """The fabric's state, as predictions use it."""
        return Epoch(self.topology, self.health)

    def addresses(self) -> dict[tuple[int, int], str]:
        """Addresses by (source rank, destination rank)."""
        gpus = list(enumerate(self.gpus))
        return {(a, b): str(address_of(to, of)) for a, of in gpus for b, to in gpus if a != b}

    def gpu_numbers(self) -> list[int]:
        """Index of every rank's GPU among all GPUs, in rank order."""
        return [self.topology.gpus.index(gpu) for gpu in self.gpus]


def job_placement(spec: FabricSpec) -> Placement:
    """The job on its initial GPUs, in a fabric without failures."""
    return Placement(spec, straight_cross_connects(spec), build_topology(spec).job_gpus)
