"""Placement of a job: the state of the fabric, and the GPU of every rank; after a fault, too.

Recovery strategies lead to other placements (rail-only paper, section IV-C).
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from model.fabric.addressing import address_of
from model.fabric.build import CrossConnects, build_topology, exchanged, straight_cross_connects
from model.fabric.health import HEALTHY, Epoch, Health
from model.fabric.spec import FabricKind, FabricSpec
from model.fabric.topology import Gpu, RankGpus, Topology
from model.faults import Fault, domain_name

Pair = tuple[Gpu, Gpu]


class Addresses(dict[tuple[int, int, int], str]):
    """Map from (source rank, destination rank, lane) to the destination's address.

    Computed at lookup: a thousand GPUs are a million pairs, of which few schedules use all.
    """

    def __init__(self, gpus: RankGpus) -> None:
        super().__init__()
        self._gpus = gpus

    def __missing__(self, key: tuple[int, int, int]) -> str:
        source, destination, lane = key
        return str(address_of(self._gpus[destination].by(lane), self._gpus[source]))


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
        """Addresses by (source rank, destination rank, lane)."""
        return Addresses(self.gpus)

    def gpu_numbers(self) -> list[int]:
        """Index of every rank's GPU among all GPUs, in rank order."""
        return [self.topology.gpus.index(gpu) for gpu in self.gpus]


def job_placement(spec: FabricSpec) -> Placement:
    """The job on its initial GPUs, in a fabric without failures."""
    return Placement(spec, straight_cross_connects(spec), build_topology(spec).job_gpus)


class RecoveryStrategy(StrEnum):
    """How a job recovers from a fault."""

    REROUTE = "reroute"
    RESTART = "abort-and-restart"
    SPARE_DOMAIN = "spare-domain"
    SPARE_GPU = "spare-gpu"
    SPARE_RAIL_SWITCH = "spare-rail-switch"
    SWAP_GROUP = "swap-group"
    REMOTE_GPU = "remote-gpu"


def placement_after(
    placement: Placement, fault: Fault, strategy: RecoveryStrategy, group_size: int
) -> Placement:
    """Return the job's placement after recovery, with the cross-connects that it needs."""
    match strategy:
        case RecoveryStrategy.REROUTE | RecoveryStrategy.RESTART:
            return placement
        case RecoveryStrategy.SPARE_DOMAIN:
            return _to_spare_domain(placement, fault)
        case RecoveryStrategy.SPARE_GPU:
            return _to_spare_gpu(placement, _lost_gpu(placement, fault))
        case RecoveryStrategy.SPARE_RAIL_SWITCH:
            return _to_spare_rail_switch(placement, fault)
        case RecoveryStrategy.SWAP_GROUP:
            return _swap_group(placement, _lost_gpu(placement, fault), group_size)
        case RecoveryStrategy.REMOTE_GPU:
            remote = Gpu(placement.spec.job_domains, 0)
            return _moved(placement, {_lost_gpu(placement, fault): remote})


def _lost_gpu(placement: Placement, fault: Fault) -> Gpu:
    return placement.topology.gpu_by_name[fault.target]


def _moved(
    placement: Placement, moves: dict[Gpu, Gpu], cross_connects: CrossConnects | None = None
) -> Placement:
    gpus = tuple(moves.get(gpu, gpu) for gpu in placement.gpus)
    return replace(placement, gpus=gpus, cross_connects=cross_connects or placement.cross_connects)


def _to_spare_domain(placement: Placement, fault: Fault) -> Placement:
    """All ranks of the domain move to the spare domain, each to the same local rank and rail."""
    spare, gpus = placement.spec.job_domains, placement.topology.gpu_by_name
    lost = next(
        gpu.domain for gpu in gpus.values() if fault.target in (gpu.name, domain_name(gpu.domain))
    )
    return _moved(placement, {g: Gpu(spare, g.rail) for g in placement.gpus if g.domain == lost})


def _to_spare_gpu(placement: Placement, lost: Gpu) -> Placement:
    """Move the lost GPU's rank to a spare GPU of its domain.

    Rail-optimized reaches it by any rail; rail-only moves its NIC link to the lost GPU's OCS port.
    """
    spare = Gpu(lost.domain, placement.spec.job_size)
    if placement.spec.kind is not FabricKind.RAIL_ONLY:
        return _moved(placement, {lost: spare})
    ocs_port = placement.cross_connects[lost.domain][lost.rail]
    return _moved(placement, {lost: spare}, exchanged(placement.cross_connects, spare, ocs_port))


def _to_spare_rail_switch(placement: Placement, fault: Fault) -> Placement:
    """All NIC links of the rail move to the first spare switch."""
    rail, spare = placement.topology.switch_by_name[fault.target].rail, placement.spec.domain_size
    cross_connects = tuple(
        tuple((spare if switch == rail else switch, port) for switch, port in of_domain)
        for of_domain in placement.cross_connects
    )
    return replace(placement, cross_connects=cross_connects)


def _swap_group(placement: Placement, lost: Gpu, size: int) -> Placement:
    """The lost GPU's group moves to spares of the next domain, which get the group's OCS ports."""
    first, other = lost.rail // size * size, (lost.domain + 1) % placement.spec.job_domains
    moves = {
        Gpu(lost.domain, first + place): Gpu(other, placement.spec.job_size + place)
        for place in range(size)
    }
    cross_connects = placement.cross_connects
    for old, new in moves.items():
        ocs_port = placement.cross_connects[old.domain][old.rail]
        cross_connects = exchanged(cross_connects, new, ocs_port)
    return _moved(placement, moves, cross_connects)
