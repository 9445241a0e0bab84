"""Check the faults of a scenario file, and resolve them for one fabric."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from model.fabric.build import build_topology
from model.fabric.spec import FabricKind, FabricSpec, SpineSelection
from model.fabric.topology import Topology
from model.faults import (
    POSSIBLE,
    Component,
    Fault,
    FaultMode,
    choose_components,
    components,
    health_under,
    rates_left,
)
from model.job.placement import RecoveryStrategy, job_placement, placement_after
from model.routing.paths import Unreachable, require_connected
from model.sentences import counted
from scenarios.format.issues import Issue, did_you_mean
from scenarios.format.keys import FaultEntry, Job, ScenarioFile
from scenarios.format.units import MOST_S

DEFAULT_AT_S = 0.3
# A full packet takes 1.2 s at this rate. Below it, a link is lost rather than slow.
LEAST_LEFT_BPS = 10_000
# Recovery strategies that keep the job on its GPUs.
WITHOUT_MOVE = (RecoveryStrategy.REROUTE, RecoveryStrategy.RESTART)
# For each recovery strategy, the components that it serves, and the key of the spares it uses.
_LOST_GPU = (Component.GPU, Component.DOMAIN)
SERVED_COMPONENTS = {
    RecoveryStrategy.SPARE_DOMAIN: _LOST_GPU,
    RecoveryStrategy.SPARE_GPU: (Component.GPU,),
    RecoveryStrategy.REMOTE_GPU: (Component.GPU,),
    RecoveryStrategy.SWAP_GROUP: (Component.GPU,),
    RecoveryStrategy.SPARE_RAIL_SWITCH: (Component.RAIL_SWITCH,),
}
# Of keys of a job, the recovery strategies that use them.
USED_BY = {
    "restart_time": set(RecoveryStrategy) - {RecoveryStrategy.REROUTE},
    "reconfiguration_time": {RecoveryStrategy.SPARE_RAIL_SWITCH, RecoveryStrategy.SWAP_GROUP},
    "group_size": {RecoveryStrategy.SWAP_GROUP},
}
OF_REPLAY = ("replay_within", "replay_limit")
OF_FAULTS = (*OF_REPLAY, "blackout_ms")
SPARES = {
    RecoveryStrategy.SPARE_DOMAIN: "spare_domains",
    RecoveryStrategy.REMOTE_GPU: "spare_domains",
    RecoveryStrategy.SPARE_GPU: "spare_gpus",
    RecoveryStrategy.SPARE_RAIL_SWITCH: "spare_rail_switches",
}


def fault_issues(file: ScenarioFile) -> Iterator[Issue]:
    """Issues of the fault entries, and of the recovery from them, without building a fabric."""
    for number, entry in enumerate(file.faults):
        wrong = chain(_wrong(entry), _unanswered(entry, file.faults), _unserved(entry, file))
        yield from (Issue(("faults", number, key), *what) for key, *what in wrong)
    yield from _recovery_issues(file)


def _wrong(entry: FaultEntry) -> Iterator[tuple[str, ...]]:
    """Yield the keys of a fault that do not fit each other, each with what is wrong."""
    if entry.how not in POSSIBLE[entry.what]:
        possible = ", ".join(mode for mode in FaultMode if mode in POSSIBLE[entry.what])
        yield "how", f"{entry.how} is not a fault mode of {entry.what}; known: {possible}"
    if entry.where is not None and entry.random is not None:
        yield "random", "cannot be combined with where"
    if twice := [name for name, count in Counter(entry.where or ()).items() if count > 1]:
        yield "where", f"names {twice[0]} twice"
    if entry.at is not None and entry.at_step is not None:
        yield "at_step", "cannot be combined with at"
    if entry.how is FaultMode.DEGRADE and entry.rate is None:
        yield "rate", "is required for degrade"
    elif entry.how is not FaultMode.DEGRADE and entry.rate is not None:
        yield "rate", f"needs how: degrade, got {entry.how}"
    if entry.how is not FaultMode.FLAP:
        for key in ("period", "count"):
            if key in entry.model_fields_set:
                yield key, f"needs how: flap, got {entry.how}"
        return
    if entry.for_ is not None:
        yield "for", "cannot be combined with flap; its duration is period times count"
    if (flapping_s := entry.period * entry.count) > MOST_S:
        what = f"{entry.count} periods of {entry.period:g} s must last at most {MOST_S:g} s"
        yield "count", f"{what}, got {flapping_s:g} s"


def idle_keys(file: ScenarioFile) -> Iterator[str]:
    """Yield the keys of recovery, and of the verdict on it, that change nothing, each with why."""
    if file.faults:
        strategy = file.job.strategy
        for key, users in USED_BY.items():
            if key in file.job.model_fields_set and strategy not in users:
                yield f"job.{key}: job.strategy {strategy} does not use it"
        given = [f"expect.{key}" for key in OF_REPLAY if key in file.expect.model_fields_set]
        if given and strategy is not RecoveryStrategy.REROUTE:
            yield f"{', '.join(given)}: by job.strategy {strategy}, nothing is replayed"
        return
    given = [f"job.{key}" for key in Job.model_fields if key in file.job.model_fields_set]
    given += [f"expect.{key}" for key in OF_FAULTS if key in file.expect.model_fields_set]
    given += ["probed_pairs"] * ("probed_pairs" in file.model_fields_set)
    if given:
        yield f"{', '.join(given)}: there are no faults"


def _unanswered(entry: FaultEntry, entries: Sequence[FaultEntry]) -> Iterator[tuple[str, str, str]]:
    """Yield what a fault needs a controller for, which is dead then, or may be."""
    kills = [other for other in entries if other.what is Component.CONTROLLER]
    stays = entry.for_ is None and entry.how is not FaultMode.FLAP
    answered = (kill.for_ is not None or (stays and _is_before(entry, kill)) for kill in kills)
    if entry not in kills and not all(answered):
        hint = "give that fault `for`, or let this one begin before it, and last"
        yield "what", "needs the controller, which another fault kills for good", hint
    alive = (_is_before(entry, kill) or _is_over(kill, entry) for kill in kills)
    if entry.how is FaultMode.UPGRADE and not all(alive):
        what = "upgrade needs the controller to drain the switch, and another fault kills it"
        hint = "move `at` before the kill, or after the controller has returned (`for`)"
        yield "how", what, hint


def _unserved(entry: FaultEntry, file: ScenarioFile) -> Iterator[tuple[str, ...]]:
    """Yield why the job cannot go on, or be modeled, with a fault."""
    strategy, fabric, roce = file.job.strategy, file.fabric, file.fabric.roce
    is_spread = fabric.spine_selection is SpineSelection.SPRAY or (roce and roce.split_data)
    is_above = entry.what in (Component.UPLINK, Component.SPINE_SWITCH)
    if is_above and is_spread and fabric.lanes > 1:
        what = f"{entry.what} cannot be modeled: a flow may end on both ports of a NIC"
        yield "what", what, "use nic_ports: 1, or leave out spray and split_data"
    if strategy in WITHOUT_MOVE and entry.what in _LOST_GPU:
        what = f"loss of a {entry.what} needs a replacement; job.strategy is {strategy}"
        yield "what", what, _serving(entry.what)
    is_over = entry.for_ is not None or entry.how is FaultMode.FLAP
    if is_over and strategy is not RecoveryStrategy.REROUTE and not _is_of_controllers(file):
        what = f"needs job.strategy reroute: with {strategy}, faults are permanent"
        yield "how" if entry.for_ is None else "for", what


def _serving(component: Component) -> str:
    """Return a hint: the recovery strategies that serve the loss of a component."""
    staying = () if component in _LOST_GPU else WITHOUT_MOVE
    moving = (one for one, serves in SERVED_COMPONENTS.items() if component in serves)
    return f"use {', '.join((*staying, *moving))}"


def _is_over(kill: FaultEntry, entry: FaultEntry) -> bool:
    """Whether a killed controller is known to have returned before a fault begins."""
    if kill.for_ is None or kill.at_step is not None or entry.at_step is not None:
        return False
    return start_s(kill) + kill.for_ <= start_s(entry)


def _is_before(entry: FaultEntry, other: FaultEntry) -> bool:
    """Whether a fault is known to begin before the other."""
    if entry.at_step is not None and other.at_step is not None:
        return entry.at_step < other.at_step
    return entry.at_step is other.at_step is None and start_s(entry) < start_s(other)


def start_s(entry: FaultEntry) -> float:
    """Seconds from the execution's start to the fault's."""
    return DEFAULT_AT_S if entry.at is None else entry.at


def faults_on(file: ScenarioFile, spec: FabricSpec) -> tuple[tuple[Fault, ...], list[Issue]]:
    """Return the faults on one fabric, first those that begin first, and issues of them.

    Components may be missing, and GPUs unreachable. Of faults at steps, times are not known.
    """
    topology = build_topology(spec)
    faults: list[Fault] = []
    issues: list[Issue] = []
    for number, entry in enumerate(file.faults):
        known = components(topology, entry.what)
        issues += _missing(number, entry, topology, known)
        if not issues:
            targets = entry.where or known[:1]
            if entry.random is not None:
                targets = choose_components(topology, entry.what, entry.random, file.seed)
            begun = [_fault(entry, target, spec) for target in targets]
            if whole := [what for fault in begun if (what := rate_problem(topology, fault))]:
                what = f"{whole[0]} on the {spec.kind} fabric"
                issues.append(Issue(("faults", number, "rate"), what))
            faults += begun
    if not issues:
        issues += _unreachable(file, topology, faults)
    return tuple(sorted(faults, key=lambda fault: (fault.at_step or 0, fault.at_s))), issues


def _unreachable(
    file: ScenarioFile, topology: Topology, faults: Sequence[Fault]
) -> Iterator[Issue]:
    """Yield an issue of a job whose GPUs, those that it moves to included, lack a path."""
    strategy, spec, hint = file.job.strategy, topology.spec, "break less, or elsewhere"
    try:
        if strategy in WITHOUT_MOVE:
            hint = "break less, or let the job move to spares"
            require_connected(topology, health_under(topology, faults))
        elif len(faults) == 1:
            after = placement_after(job_placement(spec), faults[0], strategy, file.job.group_size)
            require_connected(after.topology, health_under(after.topology, faults), after.gpus)
    except Unreachable as error:
        once = " with all faults at once, as when degraded," if len(faults) > 1 else ""
        what = f"on the {spec.kind} fabric{once} {error}: no execution would complete"
        yield Issue(("faults",), what, hint)


def rate_problem(topology: Topology, fault: Fault) -> str:
    """Say what is wrong if a fault leaves a link its whole rate or more; empty if it does not."""
    for link, rate_bps in rates_left(topology, [fault]).items():
        if rate_bps >= (whole_bps := topology.link_by_name[link].rate_bps):
            whole = f"{whole_bps * topology.spec.bandwidth_scale / 1e9:g} Gbit/s"
            return f"must be less than the link's {whole}"
    return ""


def _missing(
    number: int, entry: FaultEntry, topology: Topology, known: tuple[str, ...]
) -> Iterator[Issue]:
    spec = topology.spec
    if not known:
        others = ", ".join(other for other in Component if components(topology, other))
        what = f"a {spec.kind} fabric of this shape has none"
        yield Issue(("faults", number, "what"), what, f"it has {others}")
        return
    places = set(known)
    unknown = [name for name in entry.where or () if name not in places]
    for name in unknown[:1]:
        others = f" and {counted(len(unknown) - 1, 'other')}" if unknown[1:] else ""
        hint = f"known: {', '.join(known[:6])}{', …' if len(known) > 6 else ''}"
        missing = f"{entry.what} {name!r}{others}{did_you_mean(name, known)}"
        what = f"the {spec.kind} fabric has no {missing}"
        yield Issue(("faults", number, "where"), what.rstrip(";"), hint)
    if entry.random is not None and entry.random > len(known):
        what = f"the {spec.kind} fabric has only {len(known)}, got {entry.random}"
        yield Issue(("faults", number, "random"), what)
    if entry.rate is not None and (left_bps := entry.rate / spec.bandwidth_scale) < LEAST_LEFT_BPS:
        what = f"leaves {left_bps:.6g} bit/s, below the {LEAST_LEFT_BPS} that can be shaped"
        yield Issue(("faults", number, "rate"), what, "use blackhole for a link that carries none")


def _fault(entry: FaultEntry, target: str, spec: FabricSpec) -> Fault:
    return Fault(
        component=entry.what,
        mode=entry.how,
        target=target,
        at_s=start_s(entry),
        at_step=entry.at_step,
        for_s=entry.period * entry.count if entry.how is FaultMode.FLAP else entry.for_,
        rate_bps=None if entry.rate is None else round(entry.rate / spec.bandwidth_scale),
        period_s=entry.period,
        count=entry.count,
    )


def _recovery_issues(file: ScenarioFile) -> Iterator[Issue]:
    """Issues if the recovery strategy does not fit the fabric or the faults."""
    job, fabric = file.job, file.fabric
    if job.strategy is RecoveryStrategy.REROUTE:
        return
    if _is_of_controllers(file):
        what = f"{job.strategy} needs a failure of the fabric: a killed controller stops no job"
        yield Issue(("job", "strategy"), what, f"use {RecoveryStrategy.REROUTE}")
        return
    count = sum(entry.random or len(entry.where or (entry.what,)) for entry in file.faults)
    if count != 1:
        what, hint = f"needs exactly one broken component, got {count}", "break one"
        if not {entry.what for entry in file.faults} & {*_LOST_GPU}:
            hint += f", or use {RecoveryStrategy.REROUTE}"
        yield Issue(("job", "strategy"), what, hint)
        return
    broken = file.faults[0].what
    if (wanted := SERVED_COMPONENTS.get(job.strategy)) and broken not in wanted:
        what = f"needs a fault of a {' or '.join(wanted)}, got {broken}"
        yield Issue(("job", "strategy"), what, _serving(broken))
    if (key := SPARES.get(job.strategy)) and getattr(fabric, key) < 1:
        yield Issue(("fabric", key), f"must be at least 1 for {job.strategy}")
    if job.strategy is not RecoveryStrategy.SWAP_GROUP:
        return
    size = job.group_size
    if fabric.spare_gpus < size:
        what = f"must be at least group_size, {size}, got {fabric.spare_gpus}"
        yield Issue(("fabric", "spare_gpus"), what)
    if fabric.domain_size % size:
        what = f"must divide domain_size, {fabric.domain_size}, got {size}"
        yield Issue(("job", "group_size"), what)
    if fabric.kinds != (FabricKind.RAIL_ONLY,):
        yield Issue(("fabric", "kinds"), "must be rail-only for swap-group")


def _is_of_controllers(file: ScenarioFile) -> bool:
    return bool(file.faults) and {fault.what for fault in file.faults} == {Component.CONTROLLER}
