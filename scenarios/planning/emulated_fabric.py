"""Build the fabrics and cases of a checked scenario file, with every `auto` filled in."""

from dataclasses import replace

from model.fabric.shaping import DEFAULT_DEPTH_S, Impairment
from model.fabric.spec import (
    PLATFORMS,
    Datapath,
    FabricKind,
    FabricSpec,
    HbNetwork,
    NicNetwork,
    Spares,
)
from model.prediction.machine import Machine
from scenarios.cases import alone, full_size_case
from scenarios.format.keys import DatapathChoice, Fabric, ScenarioFile
from scenarios.format.workloads.kinds import AnyWorkload
from scenarios.planning.auto import (
    auto_bandwidth_scale,
    auto_bucket_depth,
    auto_size_scale,
    auto_time_dilation,
)
from scenarios.planning.load_estimate import real_task
from scenarios.scenario import Case, Chosen


def bandwidth_scale(file: ScenarioFile, machine: Machine | None) -> Chosen:
    """The scale of all rates, as given or chosen."""
    given = file.fabric.bandwidth_scale
    return auto_bandwidth_scale_of(file, machine) if given == "auto" else Chosen(float(given))


def auto_bandwidth_scale_of(file: ScenarioFile, machine: Machine | None) -> Chosen:
    """Choose the bandwidth scale for `auto`."""
    specs = (fabric_spec(file, kind, 1.0) for kind in dict.fromkeys(file.fabric.kinds))
    tasks = [
        real_task(full_size_case(workload, spec).task, spec)
        for spec in specs
        for workload in file.workloads
        if spec.kind in workload.kinds
    ]
    return auto_bandwidth_scale(tasks, machine)


def bucket_depth(file: ScenarioFile, machine: Machine | None) -> Chosen:
    """The depth of the links' buckets in seconds, as given or chosen."""
    given = file.fabric.bucket_depth
    return auto_bucket_depth(machine) if given == "auto" else Chosen(given)


def fabric_spec(
    file: ScenarioFile, kind: FabricKind, scale: float, depth_s: float = DEFAULT_DEPTH_S
) -> FabricSpec:
    """A fabric of the scenario: rates divided by a scale, buckets of a depth in seconds."""
    fabric = file.fabric
    hb_bps, nic_bps = _real_rates(fabric)
    return FabricSpec(
        kind=kind,
        domains=fabric.domains + fabric.spare_domains,
        domain_size=fabric.domain_size + fabric.spare_gpus,
        platform=fabric.platform or "own",
        hb=_hb_network(fabric, round(hb_bps)),
        nic=_nic_network(fabric, kind, round(nic_bps)),
        bandwidth_scale=scale,
        seed=file.seed,
        spares=Spares(fabric.spare_domains, fabric.spare_gpus, fabric.spare_rail_switches),
        bucket_depth_s=depth_s,
        datapath=asked_datapath(fabric),
    )


def _hb_network(fabric: Fabric, rate_bps: int) -> HbNetwork:
    return HbNetwork(
        rate_bps=rate_bps,
        leaves=fabric.hb_leaves,
        oversubscription=fabric.hb_oversubscription,
        impairment=Impairment(fabric.hb_delay, fabric.hb_loss),
    )


def _nic_network(fabric: Fabric, kind: FabricKind, rate_bps: int) -> NicNetwork:
    return NicNetwork(
        rate_bps=rate_bps,
        spines=fabric.spines or fabric.domains,
        leaves=fabric.rail_leaves if kind is FabricKind.RAIL_ONLY else 1,
        oversubscription=fabric.oversubscription,
        spine_selection=fabric.spine_selection,
        impairment=Impairment(fabric.nic_delay, fabric.nic_loss),
    )


def asked_datapath(fabric: Fabric) -> Datapath | None:
    """The datapath that a scenario asks for; none for the machine's default."""
    choice = fabric.datapath
    return None if choice is DatapathChoice.AUTO else Datapath(choice)


def _real_rates(fabric: Fabric) -> tuple[float, float]:
    """The real rates of a GPU in bit/s: into its HB domain, and of its NIC."""
    if fabric.platform is not None:
        platform = PLATFORMS[fabric.platform]
        return platform.hb_rate_bps, platform.nic_rate_bps
    return fabric.hb_rate or 0.0, fabric.nic_rate or 0.0


def sized_cases(
    workload: AnyWorkload, spec: FabricSpec, machine: Machine | None
) -> list[tuple[Case, Chosen]]:
    """Return a workload's cases with their size scale, and the time dilation, as given or chosen.

    Several jobs are a case each, and one together, at the same scale.
    """
    case, dilation = _sized(workload, spec, machine)
    return [*((one, Chosen(dilation.value)) for one in alone(case)), (case, dilation)]


def _sized(workload: AnyWorkload, spec: FabricSpec, machine: Machine | None) -> tuple[Case, Chosen]:
    case = full_size_case(workload, spec)
    task, scale = real_task(case.task, spec), spec.bandwidth_scale
    if workload.time_dilation is None:
        given = workload.size_scale
        size_scale = auto_size_scale(task, scale) if given == "auto" else given
        return replace(case, size_scale=size_scale), Chosen(scale / size_scale)
    dilation = (
        auto_time_dilation(task, scale, machine)
        if workload.time_dilation == "auto"
        else Chosen(workload.time_dilation)
    )
    return replace(case, size_scale=scale / dilation.value), dilation
