"""From a checked file to a scenario: defaults, `auto`, and what no single key can tell."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from model.addressing import MAX_DOMAIN_SIZE, MAX_DOMAINS
from model.fabric import FabricKind, FabricSpec
from model.platforms import PLATFORMS
from model.shaping import MIN_RATE_BPS
from scenarios.scaling import auto_bandwidth_scale, auto_size_scale
from scenarios.scenario import Case, Expectation, Scenario
from scenarios.schema import Expect, Fabric, ScenarioFile, Workload, size_in_bytes

# OpenFlow 1.3 reserves the port numbers from here on (section 7.2.1).
MAX_SWITCH_PORTS = 0xFF00
# The agents' header has 32 bits for the length of a transfer.
MAX_TRANSFER_BYTES = 2**32 - 1


@dataclass(frozen=True)
class Fault:
    """Something wrong with a value, or with how values go together."""

    place: tuple[str | int, ...]
    what: str
    hint: str = ""


def resolve(
    file: ScenarioFile, default_name: str, text: str
) -> tuple[Scenario | None, list[Fault]]:
    """The scenario, or all that is wrong with it."""
    faults = [*_fabric_faults(file.fabric), *_workload_faults(file), *_expect_faults(file.expect)]
    if faults:
        return None, faults
    fabrics = tuple(_fabric(file, kind) for kind in dict.fromkeys(file.fabric.kinds))
    faults = [fault for spec in fabrics[-1:] for fault in _rate_faults(spec)]
    if faults:
        return None, faults
    cases = _distinct(tuple(_cases(file, fabrics)))
    faults = [*_repeated_cases(cases), *_size_faults(cases)]
    scenario = Scenario(
        name=file.name or default_name,
        description=file.description,
        text=text,
        fabrics=fabrics,
        cases=cases,
        repeats=file.repeats,
        warmup=file.warmup,
        verify=file.verify,
        expect=Expectation(file.expect.ratio_within, file.expect.ratio_limit),
    )
    return (None if faults else scenario), faults


def _fabric_faults(fabric: Fabric) -> Iterator[Fault]:
    own = (fabric.hb_rate, fabric.nic_rate)
    if fabric.platform is not None and own != (None, None):
        yield Fault(("fabric", "platform"), "goes without own rates: give the one or the others")
    if fabric.platform is None and None in own:
        known = ", ".join(PLATFORMS)
        yield Fault(
            ("fabric",), "needs a platform, or both hb_rate and nic_rate", f"known: {known}"
        )
    yield from _size_of_fabric_faults(fabric)


def _size_of_fabric_faults(fabric: Fabric) -> Iterator[Fault]:
    """More ports than addresses, or than a switch can number."""
    for key, value, most in (
        ("domains", fabric.domains, MAX_DOMAINS),
        ("domain_size", fabric.domain_size, MAX_DOMAIN_SIZE),
    ):
        if value > most:
            yield Fault(("fabric", key), f"there are addresses for at most {most}, got {value}")
    ports = fabric.domains + (fabric.spines or 0)
    if ports > MAX_SWITCH_PORTS:
        what = f"a rail switch would need {ports} ports; OpenFlow numbers {MAX_SWITCH_PORTS}"
        yield Fault(("fabric", "spines"), what)


def _workload_faults(file: ScenarioFile) -> Iterator[Fault]:
    """A workload that names no kinds is for all fabrics of the scenario."""
    for number, workload in enumerate(file.workloads):
        if not set(workload.kinds) & set(file.fabric.kinds):
            what = "is on none of the scenario's fabrics"
            hint = f"fabric.kinds: {', '.join(file.fabric.kinds)}"
            yield Fault(("workloads", number, "kinds"), what, hint)


def _expect_faults(expect: Expect) -> Iterator[Fault]:
    if expect.ratio_limit < expect.ratio_within:
        what = f"must be at least ratio_within, {expect.ratio_within:g}"
        yield Fault(("expect", "ratio_limit"), f"{what}, got {expect.ratio_limit:g}")


def _fabric(file: ScenarioFile, kind: FabricKind) -> FabricSpec:
    fabric = file.fabric
    hb, nic = _real_rates(fabric)
    scale = fabric.bandwidth_scale
    if scale == "auto":
        scale = auto_bandwidth_scale(fabric.domains * fabric.domain_size, hb, nic)
    return FabricSpec(
        kind=kind,
        domains=fabric.domains,
        domain_size=fabric.domain_size,
        platform=fabric.platform or "own",
        hb_rate_bps=round(hb),
        nic_rate_bps=round(nic),
        bandwidth_scale=float(scale),
        spines=fabric.spines or fabric.domains,
        oversubscription=fabric.oversubscription,
        seed=file.seed,
    )


def _real_rates(fabric: Fabric) -> tuple[float, float]:
    """The real rates of a GPU in bit/s: into its HB domain, and of its NIC."""
    if fabric.platform is not None:
        platform = PLATFORMS[fabric.platform]
        return platform.hb_rate_bps, platform.nic_rate_bps
    return fabric.hb_rate or 0.0, fabric.nic_rate or 0.0


def _rate_faults(spec: FabricSpec) -> Iterator[Fault]:
    """Links that would be too slow to be shaped."""
    rates = {"an HB link": spec.emulated_hb_bps, "a NIC link": spec.emulated_nic_bps}
    if spec.kind is FabricKind.RAIL_OPTIMIZED:
        rates["an uplink"] = spec.emulated_uplink_bps
    name, slowest = min(rates.items(), key=lambda item: item[1])
    if slowest < MIN_RATE_BPS:
        largest = spec.bandwidth_scale * slowest / MIN_RATE_BPS
        what = (
            f"leaves {name} {slowest / 1e6:.3g} Mbit/s, below the {MIN_RATE_BPS / 1e6:g} Mbit/s "
            f"that can be shaped (bandwidth_scale {spec.bandwidth_scale:g})"
        )
        yield Fault(("fabric", "bandwidth_scale"), what, f"use at most {largest:.0f}")


def _cases(file: ScenarioFile, fabrics: tuple[FabricSpec, ...]) -> Iterator[Case]:
    for spec in fabrics:
        for workload in file.workloads:
            if spec.kind in workload.kinds:
                yield _case(workload, spec)


def _case(workload: Workload, spec: FabricSpec) -> Case:
    case = Case(
        name=f"{spec.kind}/{workload.collective}/{workload.algorithm}",
        kind=spec.kind,
        collective=workload.collective,
        algorithm=workload.algorithm,
        size_name=workload.size,
        size_bytes=size_in_bytes(workload.size),
        size_scale=1.0,
    )
    scale = workload.size_scale
    return replace(case, size_scale=auto_size_scale(case, spec) if scale == "auto" else scale)


def _distinct(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """Cases that differ in size only get the size into their names."""
    count = Counter(case.name for case in cases)
    return tuple(
        replace(case, name=f"{case.name}/{case.size_name.replace(' ', '')}")
        if count[case.name] > 1
        else case
        for case in cases
    )


def _repeated_cases(cases: tuple[Case, ...]) -> Iterator[Fault]:
    for name, count in Counter(case.name for case in cases).items():
        if count > 1:
            yield Fault(("workloads",), f"the case {name} is there {count} times")


def _size_faults(cases: tuple[Case, ...]) -> Iterator[Fault]:
    for case in cases:
        if case.emulated_bytes > MAX_TRANSFER_BYTES:
            what = f"{case.name}: {case.emulated_bytes} bytes are more than a transfer can have"
            yield Fault(("workloads",), what, "use a larger size_scale")
