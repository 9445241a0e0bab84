"""Recovery strategies of a job and the layouts they lead to (rail-only paper, section IV-C)."""

from dataclasses import replace
from enum import StrEnum

from model.fabric.spec import FabricKind
from model.fabric.topology import Circuits, Gpu, exchanged
from model.faults import Fault, domain_name
from model.job.placement import Layout


class RecoveryStrategy(StrEnum):
    """How a job recovers from a fault."""

    REROUTE = "reroute"
    RESTART = "abort-and-restart"
    SPARE_DOMAIN = "spare-domain"
    SPARE_GPU = "spare-gpu"
    SPARE_RAIL_SWITCH = "spare-rail-switch"
    SWAP_GROUP = "swap-group"
    REMOTE_GPU = "remote-gpu"


def layout_after(
    layout: Layout, fault: Fault, reaction: RecoveryStrategy, group_size: int
) -> Layout:
    """Return the job's layout after recovery, with the cross-connects that it needs."""
    match reaction:
        case RecoveryStrategy.REROUTE | RecoveryStrategy.RESTART:
            return layout
        case RecoveryStrategy.SPARE_DOMAIN:
            return _to_spare_domain(layout, fault)
        case RecoveryStrategy.SPARE_GPU:
            return _to_spare_gpu(layout, _lost_gpu(layout, fault))
        case RecoveryStrategy.SPARE_RAIL_SWITCH:
            return _to_spare_rail_switch(layout, fault)
        case RecoveryStrategy.SWAP_GROUP:
            return _swap_group(layout, _lost_gpu(layout, fault), group_size)
        case RecoveryStrategy.REMOTE_GPU:
            remote = Gpu(layout.spec.job_domains, 0)
            return _moved(layout, {_lost_gpu(layout, fault): remote})


def _lost_gpu(layout: Layout, fault: Fault) -> Gpu:
    return layout.topology.gpu_by_name[fault.target]


def _moved(layout: Layout, moves: dict[Gpu, Gpu], circuits: Circuits | None = None) -> Layout:
    placement = tuple(moves.get(gpu, gpu) for gpu in layout.placement)
    return replace(layout, placement=placement, circuits=circuits or layout.circuits)


def _to_spare_domain(layout: Layout, fault: Fault) -> Layout:
    """All ranks of the domain move to the spare domain, each to the same local rank and rail."""
    spare, gpus = layout.spec.job_domains, layout.topology.gpu_by_name
    lost = next(
        gpu.domain for gpu in gpus.values() if fault.target in (gpu.name, domain_name(gpu.domain))
    )
    return _moved(layout, {g: Gpu(spare, g.rail) for g in layout.placement if g.domain == lost})


def _to_spare_gpu(layout: Layout, lost: Gpu) -> Layout:
    """Move the lost GPU's rank to a spare GPU of its domain.

    Rail-optimized reaches it by any rail; rail-only moves its NIC link to the lost GPU's slot.
    """
    spare = Gpu(lost.domain, layout.spec.job_size)
    if layout.spec.kind is FabricKind.RAIL_OPTIMIZED:
        return _moved(layout, {lost: spare})
    slot = layout.circuits[lost.domain][lost.rail]
    return _moved(layout, {lost: spare}, exchanged(layout.circuits, spare, slot))


def _to_spare_rail_switch(layout: Layout, fault: Fault) -> Layout:
    """All NIC links of the rail move to the first spare switch."""
    rail, spare = layout.topology.switch_by_name[fault.target].rail, layout.spec.domain_size
    circuits = tuple(
        tuple((spare if slot[0] == rail else slot[0], slot[1]) for slot in of_domain)
        for of_domain in layout.circuits
    )
    return replace(layout, circuits=circuits)


def _swap_group(layout: Layout, lost: Gpu, size: int) -> Layout:
    """The lost GPU's group moves to spares of the next domain, which get the group's slots."""
    first, other = lost.rail // size * size, (lost.domain + 1) % layout.spec.job_domains
    moves = {
        Gpu(lost.domain, first + place): Gpu(other, layout.spec.job_size + place)
        for place in range(size)
    }
    circuits = layout.circuits
    for old, new in moves.items():
        circuits = exchanged(circuits, new, layout.circuits[old.domain][old.rail])
    return _moved(layout, moves, circuits)
