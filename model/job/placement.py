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


class Addresses(dict[tuple[int, int], str]):
    """Map from (source rank, destination rank) to the destination's address, computed at lookup.

    A thousand GPUs are a million pairs, of which few schedules use all.
    """

    def __init__(self, gpus: RankGpus) -> None:
        super().__init__()
        self._gpus = gpus

    def __missing__(self, pair: tuple[int, int]) -> str:
        source, destination = pair
        return str(address_of(self._gpus[destination], self._gpus[source]))


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

    def addresses(self) -> Addresses:
        """Addresses by (source rank, destination rank)."""
        return Addresses(self.gpus)

    def gpu_numbers(self) -> list[int]:
        """Index of every rank's GPU among all GPUs, in rank order."""
        return [self.topology.gpus.index(gpu) for gpu in self.gpus]


def job_placement(spec: FabricSpec) -> Placement:
    """The job on its initial GPUs, in a fabric without failures."""
    return Placement(spec, straight_cross_connects(spec), build_topology(spec).job_gpus)
