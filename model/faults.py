"""Faults of a fabric: components, fault modes, and the fabric's health during a fault."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from model.fabric.health import Health
from model.fabric.topology import LinkKind, NodeKind, Topology
from model.routing.drain import drain


class Component(StrEnum):
    """The components of a fabric that can fail."""

    NIC_LINK = "nic-link"
    RAIL_SWITCH = "rail-switch"
    SPINE_SWITCH = "spine-switch"
    UPLINK = "uplink"
    HB_LINK = "hb-link"
    HB_TRUNK = "hb-trunk"
    HB_SWITCH = "hb-switch"
    GPU = "gpu"
    DOMAIN = "domain"
    CONTROLLER = "controller"


class FaultMode(StrEnum):
    """How a component can fail; a switch that is upgraded is drained first, then restarted."""

    DOWN = "down"
    BLACKHOLE = "blackhole"
    BLACKHOLE_ONE_WAY = "blackhole-one-way"
    DEGRADE = "degrade"
    FLAP = "flap"
    KILL = "kill"
    UPGRADE = "upgrade"


_LINK = frozenset(FaultMode) - {FaultMode.KILL, FaultMode.UPGRADE}
_SWITCH = frozenset({FaultMode.DOWN, FaultMode.BLACKHOLE, FaultMode.KILL})
POSSIBLE: dict[Component, frozenset[FaultMode]] = {
    Component.NIC_LINK: _LINK,
    Component.UPLINK: _LINK,
    Component.HB_LINK: _LINK,
    Component.HB_TRUNK: _LINK,
    Component.RAIL_SWITCH: _SWITCH | {FaultMode.UPGRADE},
    Component.SPINE_SWITCH: _SWITCH | {FaultMode.UPGRADE},
    Component.HB_SWITCH: frozenset({FaultMode.DOWN, FaultMode.BLACKHOLE}),
    Component.GPU: _SWITCH,
    Component.DOMAIN: _SWITCH,
    Component.CONTROLLER: frozenset({FaultMode.KILL}),
}
# A killed GPU proxy does not come back.
FINAL = frozenset({(Component.GPU, FaultMode.KILL), (Component.DOMAIN, FaultMode.KILL)})


@dataclass(frozen=True)
class Fault:
    """A fault of one component; times are in seconds from the start of an execution.

    It begins at `at_s`, or when the first transfer of the collective's step `at_step` begins, and
    lasts `for_s` or until the end. A flapping link is down for the first half of each of `count`
    periods. `rate_bps` is the emulated rate of a degraded link.
    """

    component: Component
    mode: FaultMode
    target: str
    at_s: float = 0.0
    at_step: int | None = None
    for_s: float | None = None
    rate_bps: int | None = None
    period_s: float = 0.0
    count: int = 0

    @property
    def name(self) -> str:
        """The target and the fault mode."""
        return f"{self.target} {self.mode}"

    def meets(self, later: "Fault") -> bool:
        """Whether it may last when a later one begins; the times of steps are not known."""
        steps = {self.at_step, later.at_step} != {None}
        return steps or self.for_s is None or self.at_s + self.for_s > later.at_s

    @property
    def in_words(self) -> str:
        """The component, the fault mode, and the rate that a degraded link keeps."""
        left = "" if self.rate_bps is None else f" to {self.rate_bps / 1e6:g} Mbit/s"
        name = " ".join(dict.fromkeys((self.component, self.target)))  # there is one controller
        return f"{name}: {self.mode}{left}"


def domain_name(domain: int) -> str:
    """The name of an HB domain, as faults use it."""
    return f"d{domain}"


def components(topology: Topology, component: Component) -> tuple[str, ...]:
    """Return the names of all components of a kind that a job may use.

    Spares are left out, with their links.
    """
    job = {gpu.name for gpu in topology.job_gpus}
    match component:
        case Component.NIC_LINK | Component.HB_LINK | Component.UPLINK | Component.HB_TRUNK:
            kind = LinkKind(component.value)
            links = (link for link in topology.links if link.kind is kind)
            used = {*job, *_hb_switches(topology)}
            return tuple(k.name for k in links if k.lower.node in used or kind is LinkKind.UPLINK)
        case Component.RAIL_SWITCH | Component.SPINE_SWITCH:
            kinds = NodeKind(component.value)
            switches = (s.name for s in topology.switches if s.kind is kinds)
            return tuple(name for name in switches if topology.links_of(name))
        case Component.HB_SWITCH:
            return _hb_switches(topology)
        case Component.GPU:
            return tuple(gpu.name for gpu in topology.job_gpus)
        case Component.DOMAIN:
            return tuple(map(domain_name, range(topology.spec.job_domains)))
        case Component.CONTROLLER:
            return (component.value,)


def _hb_switches(topology: Topology) -> tuple[str, ...]:
    """Names of the HB switches of all domains that a job uses, leaves first."""
    domains, leaves = topology.spec.job_domains, topology.spec.hb.leaves
    return topology.hb_leaves[: domains * leaves] + topology.hb_switches[:domains]


def choose_components(
    topology: Topology, component: Component, count: int, seed: int
) -> tuple[str, ...]:
    """Choose `count` components of a kind at random; the same for the same seed."""
    return tuple(random.Random(seed).sample(components(topology, component), count))


def broken_links(topology: Topology, fault: Fault) -> frozenset[str]:
    """Names of the links that a fault affects."""
    if fault.target in topology.link_by_name:
        return frozenset({fault.target})
    return frozenset(
        link.name for node in nodes(topology, fault) for link in topology.links_of(node)
    )


def nodes(topology: Topology, fault: Fault) -> tuple[str, ...]:
    """Names of the switches or GPUs that a fault affects; empty for a link or the controller."""
    match fault.component:
        case Component.DOMAIN:
            gpus = (gpu for gpu in topology.gpus if domain_name(gpu.domain) == fault.target)
            return tuple(gpu.name for gpu in gpus)
        case Component.RAIL_SWITCH | Component.SPINE_SWITCH | Component.HB_SWITCH | Component.GPU:
            return (fault.target,)
        case Component.NIC_LINK | Component.HB_LINK | Component.UPLINK | Component.HB_TRUNK:
            return ()
        case Component.CONTROLLER:
            return ()


def loses_links(mode: FaultMode) -> bool:
    """Whether the broken component's links carry nothing, not only less than before."""
    return mode is not FaultMode.DEGRADE


def health_under(topology: Topology, faults: Iterable[Fault]) -> Health:
    """Health of a fabric while all these faults last, with slow links drained."""
    lasting = list(faults)
    lost = [broken_links(topology, fault) for fault in lasting if loses_links(fault.mode)]
    return drain(topology, Health(frozenset().union(*lost), rates_left(topology, lasting)))


def rates_left(topology: Topology, faults: Iterable[Fault]) -> dict[str, int]:
    """The lowest rate in bit/s that faults leave to each link that they slow down, by its name."""
    rates_bps: dict[str, int] = {}
    for fault in faults:
        if fault.rate_bps is not None:
            for link in broken_links(topology, fault):
                rates_bps[link] = min(fault.rate_bps, rates_bps.get(link, fault.rate_bps))
    return rates_bps
