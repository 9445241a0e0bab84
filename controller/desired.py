"""What should be installed: rules on the switches and host routes of the proxies.

Pure functions of the topology, derived from `model.routing.next_hop` alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from model import addressing
from model.routing import next_hop
from model.topology import Gpu, Hop, LinkKind, Topology


@dataclass(frozen=True)
class Rule:
    """An OpenFlow rule: IPv4 packets to `destination` leave by `port`.

    `hardware_address` is what the last switch before a GPU writes into the Ethernet header.
    """

    destination: IPv4Network
    port: int
    hardware_address: str | None = None


@dataclass(frozen=True)
class Route:
    """A host route of a proxy: packets to `destination` go to `gateway` over `interface`."""

    destination: IPv4Network
    gateway: IPv4Address
    interface: str
    source: IPv4Address


def desired_rules(topology: Topology, switch: str) -> frozenset[Rule]:
    """The rules of a rail or spine switch: one a GPU, or one a rail that leaves by one port."""
    rules: set[Rule] = set()
    for rail in range(topology.spec.domain_size):
        gpus = [topology.gpu(domain, rail) for domain in range(topology.spec.domains)]
        rules |= _rail_rules(switch, [(gpu, next_hop(topology, switch, gpu)) for gpu in gpus])
    return frozenset(rules)


def _rail_rules(switch: str, hops: list[tuple[Gpu, Hop | None]]) -> set[Rule]:
    """The rules of a switch for all GPUs of one rail."""
    rules = {_rule(switch, gpu, hop) for gpu, hop in hops if hop is not None}
    ports = {rule.port for rule in rules}
    if len(rules) == len(hops) and len(ports) == 1 and not _last_hops(rules):
        return {Rule(addressing.rail_network(hops[0][0].rail), ports.pop())}
    return rules


def _last_hops(rules: set[Rule]) -> bool:
    return any(rule.hardware_address for rule in rules)


def _rule(switch: str, gpu: Gpu, hop: Hop) -> Rule:
    last = hop.receiver == gpu.name
    return Rule(
        destination=IPv4Network(addressing.nic_address(gpu)),
        port=hop.link.port_of(switch).number,
        hardware_address=addressing.nic_mac(gpu) if last else None,
    )


def desired_routes(topology: Topology, gpu: Gpu) -> frozenset[Route]:
    """The host routes of a GPU's proxy to all other HB domains: one a rail where one will do."""
    others = [domain for domain in range(topology.spec.domains) if domain != gpu.domain]
    routes: set[Route] = set()
    for rail in range(topology.spec.domain_size):
        destinations = [topology.gpu(domain, rail) for domain in others]
        steps = {to: _step(topology, gpu, to) for to in destinations}
        if len(set(steps.values())) == 1:
            routes |= _routes(topology, gpu, {addressing.rail_network(rail): steps.popitem()[1]})
        else:
            single = {IPv4Network(addressing.nic_address(to)): step for to, step in steps.items()}
            routes |= _routes(topology, gpu, single)
    return frozenset(routes)


# The interface by which a proxy sends, and the GPU or switch that its link, or its HB domain's
# switch, hands the packet to.
Step = tuple[str, str]


def _step(topology: Topology, gpu: Gpu, destination: Gpu) -> Step | None:
    hop = next_hop(topology, gpu.name, destination)
    handed = hop
    if hop is not None and hop.link.kind is LinkKind.HB:
        handed = next_hop(topology, hop.receiver, destination)
    if hop is None or handed is None:
        return None
    return hop.link.lower.interface, handed.receiver


def _routes(topology: Topology, gpu: Gpu, steps: Mapping[IPv4Network, Step | None]) -> set[Route]:
    """The routes for these steps; where there is no way there is no route."""
    source = addressing.nic_address(gpu)
    return {
        Route(network, _gateway(topology, step[1]), step[0], source)
        for network, step in steps.items()
        if step is not None
    }


def _gateway(topology: Topology, receiver: str) -> IPv4Address:
    """The address of a peer in the HB domain, or the one that stands for a rail switch."""
    peer = topology.gpu_by_name.get(receiver)
    return addressing.GATEWAY if peer is None else addressing.hb_address(peer)
