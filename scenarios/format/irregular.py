"""Irregular fabrics: GPUs that are missing, and the links of a custom one.

Which of them routing and controller can serve, and why others are refused.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice, product

from model.fabric.build import build_topology
from model.fabric.health import HEALTHY
from model.fabric.job_grid import JobGrid, Slot
from model.fabric.spec import FabricKind, FabricSpec
from model.fabric.topology import Gpu
from model.fabric.wiring import Wire, Wiring, neighbours, tiers, upward
from model.routing.paths import Unreachable, require_connected
from scenarios.format.issues import Issue
from scenarios.format.keys import Fabric
from scenarios.format.networks.files import LinkEntry

# A transfer has two ends.
LEAST_GPUS = 2
# No closed form describes unequal domains: each transfer is followed.
MOST_UNEQUAL_GPUS = 256
# Interfaces of a switch have its name and a port's number, in the 15 characters of Linux.
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,9}", re.ASCII)
GPU, HB_SWITCH = re.compile(r"d[0-9]+g[0-9]+"), re.compile(r"hb[0-9]+(l[0-9]+)?")
# Names that faults have for other components, and that Linux has for interfaces of its own.
TAKEN = re.compile(r"d[0-9]+|controller|lo|all|default")
# Keys of the rails and spines of regular fabrics, which links stand for in a custom one.
REGULAR = ("spare_rail_switches", "rail_leaves", "spines", "oversubscription", "planes")
PLACE = ("fabric", "links")


def missing_slots(fabric: Fabric) -> tuple[Slot, ...]:
    """Return the slots of the grid that hold no GPU, in their order."""
    # Without any, a fabric on paper may have too many slots to name.
    slots = product(range(fabric.domains), range(fabric.domain_size)) if fabric.missing else ()
    missing = set(fabric.missing)
    return tuple(slot for slot in slots if Gpu(*slot).name in missing)


def job_grid(fabric: Fabric) -> JobGrid:
    """Return the grid that a job uses, before the fabric is known to be right."""
    gpus_per_nic = max(1, fabric.domain_size // fabric.nics)
    return JobGrid(fabric.domains, fabric.domain_size, missing_slots(fabric), gpus_per_nic)


def missing_issues(fabric: Fabric) -> Iterator[Issue]:
    """Issues of the GPUs that are missing from a fabric of bounded size: unknown, or too many."""
    place = "fabric", "missing"
    if not fabric.missing:
        return
    grid = job_grid(fabric)
    known = {Gpu(*slot).name for slot in grid.missing}
    last = Gpu(fabric.domains - 1, fabric.domain_size - 1).name
    for name, count in Counter(fabric.missing).items():
        if name not in known:
            yield Issue(place, f"unknown GPU {name!r} of the job", f"known: d0g0 to {last}")
        elif count > 1:
            yield Issue(place, f"duplicate GPU {name!r}")
    if fabric.spare_gpus:
        what = "cannot be combined with spare_gpus: a spare takes the place of a GPU that is lost"
        yield Issue(place, what, "use a smaller domain_size, or no spares")
    if fabric.domains * fabric.domain_size >= LEAST_GPUS and grid.gpus < LEAST_GPUS:
        yield Issue(place, f"must leave at least {LEAST_GPUS} GPUs, got {grid.gpus}")
    elif grid.gpus > MOST_UNEQUAL_GPUS:
        what = f"supports at most {MOST_UNEQUAL_GPUS} GPUs, got {grid.gpus}"
        yield Issue(place, what, "no closed form describes unequal domains")
    below = max(1, fabric.domain_size // fabric.hb_leaves)
    held = {(domain, rail // below) for domain, rail in grid.slots}
    for domain, leaf in product(range(fabric.domains), range(fabric.domain_size // below)):
        if (domain, leaf) not in held:
            what = f"leaves no GPU in domain d{domain}"
            beside = f" below its leaf HB switch {leaf}" if fabric.hb_leaves > 1 else ""
            yield Issue(place, what + beside, "use fewer domains, or leave a GPU there")


def unconnected_issues(spec: FabricSpec) -> Iterator[Issue]:
    """Yield an issue if so many GPUs are missing that others have no path."""
    try:
        require_connected(build_topology(spec), HEALTHY)
    except Unreachable as error:
        what = f"on the {spec.kind} fabric {error}: domains need a rail in common"
        yield Issue(("fabric", "missing"), what, "leave fewer out, or use kinds: rail-optimized")


def wiring(fabric: Fabric, port_bps: float) -> Wiring:
    """Return the links of all entries, upward; without a rate of its own, a link has a port's."""
    return upward(_wires(fabric, port_bps), _ports(fabric))


def _wires(fabric: Fabric, port_bps: float) -> Wiring:
    return tuple(
        Wire(lower, upper, round(entry.rate or port_bps), entry.delay, entry.loss)
        for entry in fabric.links
        for lower, upper in product(entry.from_, entry.to)
    )


def _ports(fabric: Fabric) -> dict[str, int]:
    """Return the number of NIC links of each GPU; none without a NIC of its own."""
    domains, size = fabric.domains + fabric.spare_domains, fabric.domain_size + fabric.spare_gpus
    holders = replace(job_grid(fabric), domains=domains, size=size).holders
    return {Gpu(*slot).name: fabric.lanes * (slot == holder) for slot, holder in holders.items()}


def wiring_issues(fabric: Fabric) -> Iterator[Issue]:
    """Yield issues of the links of a fabric."""
    is_custom, is_alone = FabricKind.CUSTOM in fabric.kinds, len(fabric.kinds) == 1
    if is_custom and not fabric.links:
        yield Issue(("fabric", "kinds"), "custom needs links", "add `links`, or `topology`")
    elif fabric.links and not is_custom:
        yield Issue(PLACE, "need the kind custom", "add it to `kinds`, or leave `kinds` out")
    elif is_custom:
        for key in fabric.model_fields_set & set(REGULAR if is_alone else REGULAR[:1]):
            what = "describes rails and spines; a custom fabric has its links instead"
            yield Issue(("fabric", key), what, "leave it out")
        # Without any GPU, there are issues of those that are missing.
        if ports := _ports(fabric):
            of_names = [
                Issue((*PLACE, number), what)
                for number, entry in enumerate(fabric.links)
                for what in islice(_entry_issues(entry, ports), 1)
            ]
            yield from of_names or _graph_issues(_wires(fabric, 0), ports)


def _entry_issues(entry: LinkEntry, gpus: Mapping[str, int]) -> Iterator[str]:
    for name in dict.fromkeys((*entry.from_, *entry.to)):
        if HB_SWITCH.fullmatch(name):
            yield f"{name} is an HB switch, whose links follow from hb_rate and hb_leaves"
        elif GPU.fullmatch(name) and name not in gpus:
            yield f"{name} is none of the {len(gpus)} GPUs, d0g0 to {[*gpus][-1]}"
        elif name in gpus and name in entry.to:
            yield f"{name} is a GPU: links lead to switches"
        elif TAKEN.fullmatch(name):
            yield f"{name} cannot be a switch: Railbed or Linux has this name for something else"
        elif not NAME.fullmatch(name):
            yield f"{name!r} must be a letter and at most 9 more letters, digits and underscores"


def _graph_issues(wires: Wiring, ports: Mapping[str, int]) -> Iterator[Issue]:
    """Yield issues of links twice, of GPUs without their NIC links, and of GPUs without a path."""
    seen = set[frozenset[str]]()
    for wire in wires:
        ends = frozenset(wire[:2])
        if len(ends) == 1 or ends in seen:
            what = f"{wire.lower} and {wire.upper} must be two nodes with one link"
            yield Issue(PLACE, what, "give one link the rates of all that run beside it")
            return
        seen.add(ends)
    near = neighbours(wires)
    for gpu, count in ports.items():
        if len(near[gpu]) != count:
            what = f"{gpu} must have {count} NIC links, got {len(near[gpu])}"
            yield Issue(PLACE, what, "see nic_ports and nics_per_domain")
            return
    reached = set(chain.from_iterable(tiers(wires, ports)))
    if lost := [node for node in near if node not in reached and node not in ports]:
        yield Issue(PLACE, f"connect {lost[0]} to no GPU", "join it, or leave it out")
    # A path may lead over switches, or through HB domains.
    first, *others = ports
    domains = [Wire(gpu, f"{gpu.partition('g')[0]}-", 0) for gpu in ports]
    reached = set(chain.from_iterable(tiers((*wires, *domains), [first])))
    if lost := [gpu for gpu in others if gpu not in reached]:
        yield Issue(PLACE, f"leave {first} without a path to {lost[0]}", "join their switches")
