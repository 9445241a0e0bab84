"""Check the GPUs that are missing from a fabric."""

from collections import Counter
from collections.abc import Iterator
from itertools import product

from model.fabric.build import build_topology
from model.fabric.health import HEALTHY
from model.fabric.job_grid import JobGrid, Slot
from model.fabric.spec import FabricSpec
from model.fabric.topology import Gpu
from model.routing.paths import Unreachable, require_connected
from scenarios.format.issues import Issue
from scenarios.format.keys import Fabric

# A transfer has two ends.
LEAST_GPUS = 2
# No closed form describes unequal domains: each transfer is followed.
MOST_UNEQUAL_GPUS = 256


def missing_slots(fabric: Fabric) -> tuple[Slot, ...]:
    """Return the slots of the grid that hold no GPU, in their order."""
    if not fabric.missing:
        return ()
    slots, names = product(range(fabric.domains), range(fabric.domain_size)), set(fabric.missing)
    return tuple(slot for slot in slots if Gpu(*slot).name in names)


def job_grid(fabric: Fabric) -> JobGrid:
    """Return the grid that a job uses, before the fabric is known to be right."""
    gpus_per_nic = max(1, fabric.domain_size // fabric.nics)
    return JobGrid(fabric.domains, fabric.domain_size, missing_slots(fabric), gpus_per_nic)


def missing_issues(fabric: Fabric) -> Iterator[Issue]:
    """Issues of the GPUs that are missing from a fabric of bounded size: unknown, or too many."""
    place = "fabric", "missing"
    if not fabric.missing:
        return
    slots = missing_slots(fabric)
    known = {Gpu(*slot).name for slot in slots}
    last = Gpu(fabric.domains - 1, fabric.domain_size - 1).name
    for name, count in Counter(fabric.missing).items():
        if name not in known:
            yield Issue(place, f"unknown GPU {name!r} of the job", f"known: d0g0 to {last}")
        elif count > 1:
            yield Issue(place, f"duplicate GPU {name!r}")
    if fabric.spare_gpus:
        what = "cannot be combined with spare_gpus: a spare takes the place of a GPU that is lost"
        yield Issue(place, what, "use a smaller domain_size, or no spares")
    grid = job_grid(fabric)
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
        yield Issue(("fabric", "missing"), what)
