"""Build the topology of a fabric: its switches and links, with their names, ports and rates."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, product

from model.fabric.shaping import SWITCH_BURST_BYTES
from model.fabric.spec import FabricKind, FabricSpec, Planes
from model.fabric.topology import (
    FIRST_NIC_PORT,
    Gpu,
    Link,
    LinkKind,
    NodeKind,
    OpenFlowSwitch,
    Port,
    Topology,
)
from model.fabric.wiring import tiers

# A port of the OCS to a rail switch: the rail, and the domain that the port is for.
OcsPort = tuple[int, int]
# OCS cross-connects: the port of each NIC link, by domain and then by NIC and its port.
CrossConnects = tuple[tuple[OcsPort, ...], ...]


def hb_switch_name(domain: int) -> str:
    """The name of an HB domain's switch, of the second level where there are leaves below it."""
    return f"hb{domain}"


def rail_switch_name(rail: int) -> str:
    """The name of a rail's switch."""
    return f"rail{rail}"


def straight_cross_connects(spec: FabricSpec) -> CrossConnects:
    """Return the initial cross-connects: each NIC link leads to its own rail and plane."""
    domains, rails = range(spec.domains), range(spec.nics * spec.nic.ports)
    return tuple(tuple((rail, domain) for rail in rails) for domain in domains)


def exchanged(cross_connects: CrossConnects, gpu: Gpu, ocs_port: OcsPort) -> CrossConnects:
    """Move a GPU's NIC link to an OCS port, and the link that was there to the old port."""
    before = cross_connects[gpu.domain][gpu.rail]
    moved = {ocs_port: before, before: ocs_port}
    return tuple(tuple(moved.get(old, old) for old in of_domain) for of_domain in cross_connects)


def build_topology(spec: FabricSpec, cross_connects: CrossConnects | None = None) -> Topology:
    """Build the fabric of `spec` with these cross-connects, by default the initial ones."""
    cross_connects = cross_connects or straight_cross_connects(spec)
    gpus = tuple(Gpu(*slot) for slot in spec.grid.slots)
    switches = tuple(_switches(spec))
    return Topology(
        spec=spec,
        gpus=gpus,
        hb_switches=tuple(hb_switch_name(domain) for domain in range(spec.domains)),
        hb_leaves=tuple(_hb_leaf_name(spec, *place) for place in _hb_leaf_places(spec)),
        switches=switches,
        links=(
            *_hb_links(spec, gpus),
            *(
                _custom_links(spec)
                if spec.nic.links
                else (*_nic_links(spec, cross_connects), *_uplinks(spec, switches))
            ),
        ),
    )


def _switches(spec: FabricSpec) -> Iterator[OpenFlowSwitch]:
    """Rail switches first, then spine switches."""
    if spec.nic.links:
        yield from _custom_switches(spec)
        return
    rails = range(spec.nics + spec.spares.rail_switches)
    for rail, leaf in product(rails, range(spec.nic.leaves * spec.nic.ports)):
        yield OpenFlowSwitch(_leaf_name(spec, rail, leaf), NodeKind.RAIL_SWITCH, rail, leaf)
    if spec.kind is FabricKind.RAIL_OPTIMIZED:
        for index in range(spec.nic.spines * _spine_planes(spec)):
            plane, spine = divmod(index, spec.nic.spines)
            name = f"spine{spine}" + (f"p{plane}" if _spine_planes(spec) > 1 else "")
            yield OpenFlowSwitch(name, NodeKind.SPINE_SWITCH, None, index)
    elif spec.nic.leaves > 1:
        for rail, spine in product(rails, range(spec.nic.spines)):
            name = f"{rail_switch_name(rail)}s{spine}"
            yield OpenFlowSwitch(name, NodeKind.SPINE_SWITCH, rail, spine)


def _leaf_name(spec: FabricSpec, rail: int, leaf: int) -> str:
    """Name of a leaf switch or of a plane's; a rail's only switch has the rail's name."""
    if spec.nic.ports > 1:
        return f"{rail_switch_name(rail)}p{leaf}"
    return rail_switch_name(rail) + (f"l{leaf}" if spec.nic.leaves > 1 else "")


def _spine_planes(spec: FabricSpec) -> int:
    return spec.nic.ports if spec.nic.planes is Planes.SEPARATE else 1


def ocs_port_at(rail: int, port: int) -> OcsPort:
    """The OCS port that leads to a port (numbered from 1) of a rail's switch."""
    return rail, port - 1


def leaf_of_domain(spec: FabricSpec, domain: int) -> int:
    """Index of the leaf switch that serves a domain in every rail; neighbours share one."""
    return domain * spec.nic.leaves // spec.domains


def _hb_leaf_places(spec: FabricSpec) -> Iterator[tuple[int, int]]:
    """Yield the domain and the number of each leaf below another HB switch."""
    return product(range(spec.domains), range(spec.hb.leaves if spec.hb.leaves > 1 else 0))


def _hb_leaf_name(spec: FabricSpec, domain: int, leaf: int) -> str:
    """Name of a leaf HB switch; a domain's only switch has the domain's name."""
    return hb_switch_name(domain) + (f"l{leaf}" if spec.hb.leaves > 1 else "")


def _hb_links(spec: FabricSpec, gpus: tuple[Gpu, ...]) -> Iterator[Link]:
    """Yield all HB links, then the trunks; neighbouring GPUs share a leaf HB switch."""
    rate_bps = round(spec.emulated_hb_bps)
    shaping = spec.bucket_depth_s, spec.hb.impairment
    for gpu in gpus:
        switch = _hb_leaf_name(spec, gpu.domain, gpu.rail * spec.hb.leaves // spec.domain_size)
        lower = Port(gpu.name, 1, "hb0")
        upper = Port(switch, gpu.rail + 1, f"{switch}-g{gpu.rail}")
        yield Link(LinkKind.HB, lower, upper, rate_bps, *shaping)
    for domain, leaf in _hb_leaf_places(spec):
        name, above = _hb_leaf_name(spec, domain, leaf), hb_switch_name(domain)
        lower = Port(name, spec.domain_size + 1, f"{name}-up")
        upper = Port(above, leaf + 1, f"{above}-l{leaf}")
        yield Link(LinkKind.HB_TRUNK, lower, upper, round(spec.emulated_hb_trunk_bps), *shaping)


def _nic_links(spec: FabricSpec, cross_connects: CrossConnects) -> Iterator[Link]:
    """Name the switch's interface for the GPU: an OCS may move the link to another switch."""
    rate_bps, ports = round(spec.emulated_port_bps), spec.nic.ports
    shaping = switch_depth_s(spec.bucket_depth_s, rate_bps), spec.nic.impairment
    for holder, lane in product(dict.fromkeys(spec.grid.holders.values()), range(spec.lanes)):
        gpu = Gpu(*holder)
        number = gpu.rail // spec.grid.gpus_per_nic * spec.lanes + lane
        of_switch, domain = cross_connects[gpu.domain][number]
        rail, plane = divmod(of_switch, ports)
        switch = _leaf_name(spec, rail, plane + leaf_of_domain(spec, domain))
        upper = Port(switch, domain + 1, f"to-{gpu.name}" + (f"p{lane}" if spec.lanes > 1 else ""))
        lower = Port(gpu.name, FIRST_NIC_PORT + lane, f"nic{lane}")
        yield Link(LinkKind.NIC, lower, upper, rate_bps, *shaping)


def _uplinks(spec: FabricSpec, switches: tuple[OpenFlowSwitch, ...]) -> Iterator[Link]:
    """Yield the links from every rail switch to all spine switches of its rail or the fabric."""
    leaves = [switch for switch in switches if switch.kind is NodeKind.RAIL_SWITCH]
    spines = [switch for switch in switches if switch.kind is NodeKind.SPINE_SWITCH]
    for leaf, spine in product(leaves, spines):
        if not _are_joined(spec, leaf, spine):
            continue
        rate_bps = round(spec.emulated_uplink_bps)
        number = spec.domains + spine.index % spec.nic.spines + 1
        below = leaf.index + ((leaf.rail or 0) * spec.nic.ports if spine.rail is None else 0)
        lower = Port(leaf.name, number, f"{leaf.name}-s{spine.index}")
        upper = Port(spine.name, below + 1, f"{spine.name}-r{below}")
        depth_s = switch_depth_s(spec.bucket_depth_s, rate_bps)
        yield Link(LinkKind.UPLINK, lower, upper, rate_bps, depth_s, spec.nic.impairment)


def _are_joined(spec: FabricSpec, leaf: OpenFlowSwitch, spine: OpenFlowSwitch) -> bool:
    if spine.rail is not None:
        return spine.rail == leaf.rail
    return _spine_planes(spec) == 1 or spine.index // spec.nic.spines == leaf.index


def _custom_switches(spec: FabricSpec) -> Iterator[OpenFlowSwitch]:
    """Yield the switches of the lowest tier, to which NICs have links, then those above."""
    lowest, *above = tiers(spec.nic.links, spec.gpu_names)
    for index, name in enumerate(lowest):
        yield OpenFlowSwitch(name, NodeKind.RAIL_SWITCH, None, index)
    for index, name in enumerate(chain.from_iterable(above)):
        yield OpenFlowSwitch(name, NodeKind.SPINE_SWITCH, None, index)


def _custom_links(spec: FabricSpec) -> Iterator[Link]:
    """Yield the links of NICs, then those between switches, whose ports are numbered in order."""
    gpus, used = set(spec.gpu_names), Counter[str]()
    for wire in sorted(spec.nic.links, key=lambda wire: wire.lower not in gpus):
        used[wire.upper] += 1
        upper = Port(wire.upper, used[wire.upper], f"{wire.upper}-{used[wire.upper]}")
        lane, number = used[wire.lower], used[wire.lower] + 1
        used[wire.lower] += 1
        lower = Port(wire.lower, number, f"{wire.lower}-{number}")
        kind, rate_bps = LinkKind.UPLINK, round(wire.rate_bps / spec.bandwidth_scale)
        if wire.lower in gpus:
            kind, lower = LinkKind.NIC, Port(wire.lower, FIRST_NIC_PORT + lane, f"nic{lane}")
        own = spec.nic.impairment
        loss = 1 - (1 - own.loss) * (1 - wire.loss)
        impairment = replace(own, delay_s=own.delay_s + wire.delay_s, loss=loss)
        depth_s = switch_depth_s(spec.bucket_depth_s, rate_bps)
        yield Link(kind, lower, upper, rate_bps, depth_s, impairment)


def switch_depth_s(depth_s: float, rate_bps: int) -> float:
    """Bucket depth in seconds at a software switch: `depth_s`, but at most 64 KiB."""
    return min(depth_s, SWITCH_BURST_BYTES * 8 / rate_bps)
