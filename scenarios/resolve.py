"""Resolve a checked file to a scenario: defaults, `auto`, and checks across keys."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from model.fabric.addressing import MAX_DOMAIN_SIZE, MAX_DOMAINS
from model.fabric.shaping import MAX_RATE_BPS, MIN_RATE_BPS
from model.fabric.spec import PLATFORMS, FabricKind, FabricSpec, SpineSelection
from model.prediction.machine import Machine
from scenarios.format.faults import entry_issues, faults_on, recovery_issues
from scenarios.format.issues import Issue
from scenarios.format.keys import Expect, Fabric, ScenarioFile
from scenarios.planning.admission import admission_issues, late_faults
from scenarios.planning.emulated_fabric import (
    asked_datapath,
    bandwidth_scale,
    bucket_depth,
    fabric_spec,
    sized_cases,
)
from scenarios.scenario import AUTO, Case, Chosen, Repeats, Scenario
from scenarios.workload_issues import (
    generator_load_issues,
    given_size_issues,
    schedule_issues,
    size_issues,
    workload_issues,
)

# Open vSwitch numbers ports below OFPP_MAX of OpenFlow 1.0; OpenFlow 1.3 itself reserves only those
# from 0xffffff00 on (section 7.2.1).
MAX_SWITCH_PORTS = 0xFF00
# The largest fabric that was measured has 256 GPUs, the largest that was computed 1024.
LEAST_GPUS, MAX_GPUS, MAX_UPLINKS = 2, 4096, 16384
# By hash, a rail switch has a rule for each NIC and each GPU on another rail.
MOST_HASHED_GPUS = 256


def resolve(
    file: ScenarioFile, default_name: str, text: str, machine: Machine | None
) -> tuple[Scenario | None, list[Issue]]:
    """Return the scenario, or None and all issues.

    `machine` has this machine's measured costs; they are ignored if the scenario asks for another
    datapath.
    """
    if machine is not None and asked_datapath(file.fabric) not in (None, machine.key.datapath):
        machine = None
    issues = _issues_of_keys(file)
    # Proofs of schedules take longest, so all other checks come first; `auto` needs the proofs,
    # though.
    is_given = file.fabric.bandwidth_scale != "auto"
    if not issues and not is_given:
        issues = list(schedule_issues(file))
    if issues:
        return None, issues
    scale = bandwidth_scale(file, machine)
    depth = bucket_depth(file, machine)
    kinds = dict.fromkeys(file.fabric.kinds)
    fabrics = tuple(fabric_spec(file, kind, scale.value, depth.value) for kind in kinds)
    issues = [issue for spec in fabrics for issue in _rate_issues(spec)][:1]
    if issues:
        return None, issues
    broken = {spec.kind: faults_on(file, spec) for spec in fabrics}
    issues = [issue for _, wrong in broken.values() for issue in wrong]
    if not issues and is_given:
        issues = list(schedule_issues(file))
    if issues:
        return None, issues
    sized = [
        (number, case)
        for spec in fabrics
        for number, workload in enumerate(file.workloads)
        if spec.kind in workload.kinds
        for case in sized_cases(workload, spec, machine)
    ]
    cases = _distinct(file, tuple(replace(case, workload=number) for number, (case, _) in sized))
    issues = list(_case_issues(file, fabrics, cases, machine))
    if not issues:
        issues = list(late_faults(file, fabrics, cases))
    scenario = Scenario(
        name=file.name or default_name,
        description=file.description,
        text=text,
        fabrics=fabrics,
        cases=cases,
        repeats=AUTO if file.repeats == "auto" else Repeats.exactly(file.repeats),
        warmup=file.warmup,
        check_data=file.check_data,
        check_paths=file.check_paths,
        expect=file.expect,
        faults={kind: faults for kind, (faults, _) in broken.items()},
        job=file.job,
        probed_pairs=file.probed_pairs,
        machine_seed=file.machine_seed,
        chosen=_chosen(scale, depth, cases, [dilation for _, (_, dilation) in sized]),
    )
    return (None if issues else scenario), issues


def _issues_of_keys(file: ScenarioFile) -> list[Issue]:
    """Issues of keys and their values, without building a fabric or a schedule."""
    issues = [*_fabric_issues(file.fabric), *workload_issues(file), *_expect_issues(file.expect)]
    issues += [*entry_issues(file), *recovery_issues(file)]
    return issues or list(given_size_issues(file))


def _case_issues(
    file: ScenarioFile,
    fabrics: tuple[FabricSpec, ...],
    cases: tuple[Case, ...],
    machine: Machine | None,
) -> Iterator[Issue]:
    """Issues of cases that are repeated, too large, or too much for this machine."""
    yield from _repeated_cases(cases)
    too_large = list(size_issues(cases))
    yield from too_large or generator_load_issues(fabrics, cases)
    if machine is not None and not file.allow_overload:
        yield from admission_issues(file, fabrics, cases, machine)


def _fabric_issues(fabric: Fabric) -> Iterator[Issue]:
    own = (fabric.hb_rate, fabric.nic_rate)
    if fabric.platform is not None and own != (None, None):
        yield Issue(("fabric", "platform"), "cannot be combined with hb_rate or nic_rate")
    if fabric.platform is None and None in own:
        known = ", ".join(PLATFORMS)
        yield Issue(
            ("fabric",), "needs a platform, or both hb_rate and nic_rate", f"known: {known}"
        )
    yield from _size_of_fabric_issues(fabric)


def _size_of_fabric_issues(fabric: Fabric) -> Iterator[Issue]:
    """Issues of sizes beyond the addresses, the domains, or the port numbers of a switch."""
    domains = fabric.domains + fabric.spare_domains
    size = fabric.domain_size + fabric.spare_gpus + fabric.spare_rail_switches
    for key, value, most in (
        ("domains", domains, MAX_DOMAINS),
        ("domain_size", size, MAX_DOMAIN_SIZE),
    ):
        if value > most:
            yield Issue(("fabric", key), f"must be at most {most} (address space), got {value}")
    if domains <= MAX_DOMAINS and size <= MAX_DOMAIN_SIZE:
        yield from _count_issues(fabric, domains, size)
    yield from _hb_switch_issues(fabric)
    if fabric.rail_leaves > domains:
        what = f"must be at most the number of domains, {domains}, got {fabric.rail_leaves}"
        yield Issue(("fabric", "rail_leaves"), what)
    ports = domains + (fabric.spines or 0)
    if ports > MAX_SWITCH_PORTS:
        what = f"rail switch must have at most {MAX_SWITCH_PORTS} ports (Open vSwitch), got {ports}"
        yield Issue(("fabric", "spines"), what)


def _hb_switch_issues(fabric: Fabric) -> Iterator[Issue]:
    """Issues of HB switches on two levels."""
    size = fabric.domain_size + fabric.spare_gpus
    if size % fabric.hb_leaves:
        what = f"{fabric.hb_leaves} leaf HB switches must divide {size} GPUs, spares included"
        yield Issue(("fabric", "hb_leaves"), what, f"use a divisor of {size}")
    if fabric.hb_leaves == 1 and fabric.hb_oversubscription > 1:
        what = "needs trunks; a single HB switch has none"
        yield Issue(("fabric", "hb_oversubscription"), what, "use hb_leaves of 2 or more")


def _count_issues(fabric: Fabric, domains: int, size: int) -> Iterator[Issue]:
    """Issues of too few GPUs, of too many, also for selection by hash, and of too many uplinks."""
    gpus = domains * size
    if fabric.domains * fabric.domain_size < LEAST_GPUS:
        what = f"must have at least {LEAST_GPUS} GPUs without spares, got 1 in 1 domain"
        yield Issue(("fabric", "domains"), what)
    leaves = max(_uplinked_switches(fabric, kind) for kind in fabric.kinds)
    uplinks = size * leaves * (fabric.spines or fabric.domains)
    if gpus > MAX_GPUS:
        what = f"must have at most {MAX_GPUS} GPUs, spares included, got {gpus}"
        yield Issue(("fabric", "domains"), what)
    if fabric.spine_selection is SpineSelection.HASH and gpus > MOST_HASHED_GPUS:
        what = f"hash supports at most {MOST_HASHED_GPUS} GPUs, got {gpus}"
        yield Issue(("fabric", "spine_selection"), what)
    if uplinks > MAX_UPLINKS:
        what = f"must have at most {MAX_UPLINKS} uplinks, got {uplinks}"
        yield Issue(("fabric", "spines"), what)


def _uplinked_switches(fabric: Fabric, kind: FabricKind) -> int:
    """Number of switches of each rail that have uplinks."""
    if kind is FabricKind.RAIL_OPTIMIZED:
        return 1
    return fabric.rail_leaves if fabric.rail_leaves > 1 else 0


def _expect_issues(expect: Expect) -> Iterator[Issue]:
    for name, within, limit in (
        ("ratio", expect.ratio_within, expect.ratio_limit),
        ("replay", expect.replay_within, expect.replay_limit),
    ):
        if limit < within:
            what = f"must be at least {name}_within, {within:g}, got {limit:g}"
            yield Issue(("expect", f"{name}_limit"), what)


def _rate_issues(spec: FabricSpec) -> Iterator[Issue]:
    """Yield an issue if the slowest link is too slow to be shaped, or the fastest too fast."""
    rates = {"an HB link": spec.emulated_hb_bps, "a NIC link": spec.emulated_nic_bps}
    if spec.has_spines:
        rates["an uplink"] = spec.emulated_uplink_bps
    if spec.hb.leaves > 1:
        rates["a trunk between HB switches"] = spec.emulated_hb_trunk_bps
    name, slowest = min(rates.items(), key=lambda item: item[1])
    if slowest < MIN_RATE_BPS:
        largest = spec.bandwidth_scale * slowest / MIN_RATE_BPS
        what = (
            f"leaves {name} {slowest / 1e6:.3g} Mbit/s, below the {MIN_RATE_BPS / 1e6:g} Mbit/s "
            f"that can be shaped (bandwidth_scale {spec.bandwidth_scale:g})"
        )
        yield Issue(("fabric", "bandwidth_scale"), what, f"use at most {largest:.6g}")
    name, fastest = max(rates.items(), key=lambda item: item[1])
    if fastest > MAX_RATE_BPS:
        what = (
            f"leaves {name} {fastest / 1e9:.3g} Gbit/s, above the {MAX_RATE_BPS / 1e9:g} Gbit/s "
            f"that can be shaped (bandwidth_scale {spec.bandwidth_scale:g})"
        )
        yield Issue(("fabric", "bandwidth_scale"), what, "use a larger one")


def _chosen(
    scale: Chosen, depth: Chosen, cases: tuple[Case, ...], dilations: list[Chosen]
) -> dict[str, Chosen]:
    """Values chosen for `auto`, by key."""
    values = {"bandwidth_scale": scale, "bucket_depth": depth}
    for case, dilation in zip(cases, dilations, strict=True):
        values[f"time_dilation of {case.name}"] = dilation
    return {key: value for key, value in values.items() if value.why}


def _distinct(file: ScenarioFile, cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """Add the size, and other keys of the workload, to names that differ in them."""
    sizes = [case.size_name.replace(" ", "") for case in cases]
    variants = [file.workloads[case.workload].variant for case in cases]
    return _named_apart(_named_apart(cases, sizes), variants)


def _named_apart(cases: tuple[Case, ...], parts: Sequence[str]) -> tuple[Case, ...]:
    """Append its part to the name of each case, if cases of the same name differ in that part."""
    known = defaultdict[str, set[str]](set)
    for case, part in zip(cases, parts, strict=True):
        known[case.name].add(part)
    return tuple(
        replace(case, name=f"{case.name}/{part}") if part and len(known[case.name]) > 1 else case
        for case, part in zip(cases, parts, strict=True)
    )


def _repeated_cases(cases: tuple[Case, ...]) -> Iterator[Issue]:
    for name, count in Counter(case.name for case in cases).items():
        if count > 1:
            yield Issue(
                ("workloads",),
                f"case {name} is defined {'twice' if count == 2 else f'{count} times'}",
            )
