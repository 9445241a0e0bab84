"""The command `train`, and its options, of which other commands have some, too."""

from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from commands.options import AsJson, configuration_names
from commands.output import print_result
from model.errors import InputError, Problem
from model.fabric.spec import FabricKind
from model.sentences import counted
from model.training.iteration import Evaluation
from model.training.search import Freedom
from results.sections.modeled import train_sections
from scenarios.format import training
from scenarios.format.files import configuration_name
from scenarios.format.units import MOST_GPUS, known_platform

# A custom fabric has links, which no option gives.
Fabric = Literal["rail-only", "rail-optimized"]
Config = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG",
        help="a training configuration: a file, a model's config.json, or a name: gpt-146b ...",
        autocompletion=configuration_names,
    ),
]
Gpus = Annotated[int | None, typer.Option(metavar="N", help="number of GPUs")]
Batch = Annotated[int | None, typer.Option(metavar="B", help="sequences of an iteration")]
Sequence = Annotated[int | None, typer.Option(metavar="S", help="tokens of a sequence")]
DomainSize = Annotated[
    int | None, typer.Option("--domain-size", metavar="K", help="GPUs of an HB domain")
]
GpusPerNic = Annotated[int | None, typer.Option(metavar="M", min=1, help="GPUs that share a NIC")]
PlatformName = Annotated[str | None, typer.Option("--platform", metavar="P", help="dgx-h100 ...")]
Search = Annotated[bool, typer.Option("--search", help="ignore the file's strategy except context")]
Weigh = Annotated[
    list[Freedom] | None, typer.Option(help="search this as well; repeatable", show_choices=True)
]


def train(
    config: Config,
    gpus: Gpus = None,
    batch: Batch = None,
    sequence: Sequence = None,
    domain_size: DomainSize = None,
    platform: PlatformName = None,
    fabric: Annotated[Fabric, typer.Option(help="the network")] = "rail-only",
    gpus_per_nic: GpusPerNic = None,
    search: Search = False,
    weigh: Weigh = None,
    as_json: AsJson = False,
) -> None:
    """Print the modeled time of a configuration with these changes."""
    changes = checked_changes(gpus, batch, domain_size, platform, sequence)
    kind, shared = FabricKind(fabric), gpus_per_nic or 1
    name, best, remarks = evaluation(config, changes, search, weigh or [], kind, shared)
    result = _train_object(name, best) | {"gpus_per_nic": shared, "left_out": remarks}
    print_result(result, as_json, train_sections)


def _train_object(name: str, best: Evaluation) -> dict[str, Any]:
    """Time, utilization in percent, strategy and terms of an iteration."""
    job = best.job
    return {
        "schema": "railbed.train/1",
        "configuration": name,
        "gpus": job.cluster.gpus,
        "domain_size": job.cluster.domain_size,
        "fabric": job.cluster.kind.value,
        "batch": job.batch,
        "sequence": job.transformer.sequence,
        "parameters": job.transformer.parameters,
        "active_parameters": job.transformer.active_parameters,
        "iteration_s": best.iteration_s,
        "mfu": 100 * best.mfu,
        "hfu": 100 * best.hfu,
        **training.chosen_object(best),
        "terms_s": {key.name: float(getattr(best.terms, key.name)) for key in fields(best.terms)},
        "memory_bytes": best.memory_bytes,
        "host_memory_bytes": best.host_memory_bytes,
        "fits": best.fits,
    }


def evaluation(
    config: Path,
    changes: dict[str, Any],
    search: bool,
    weigh: Iterable[Freedom] = (),
    kind: FabricKind = FabricKind.RAIL_ONLY,
    gpus_per_nic: int = 1,
) -> tuple[str, Evaluation, list[str]]:
    """A configuration's name, its iteration with changes and further choices, and remarks."""
    configuration = training.load_configuration(config, changes)
    if Freedom.OVERLAP_EXPERTS in weigh and configuration.transformer.experts is None:
        what = f"{Freedom.OVERLAP_EXPERTS} needs a model with experts"
        raise InputError(Problem("--weigh", what))
    configuration = configuration.model_copy(update={"weigh": (*configuration.weigh, *weigh)})
    size = changes.get("domain_size")
    if size is not None and size > configuration.gpus:
        what = f"must be at most {configuration.gpus}, the number of GPUs, got {size}"
        raise InputError(Problem("--domain-size", what))
    name, job = configuration_name(config), configuration.job
    cluster = job.cluster
    if cluster.domain_size % gpus_per_nic:
        what = f"must divide the {counted(cluster.domain_size, 'GPU')} of an HB domain"
        raise InputError(Problem("--gpus-per-nic", f"{what}, got {gpus_per_nic}"))
    job = replace(job, cluster=replace(cluster, kind=kind, nic=cluster.nic / gpus_per_nic))
    best = training.evaluated(name, configuration, search=search, job=job)
    idle = training.faster_with_idle(configuration, best, search=search)
    return name, best, [*idle, *training.model_remarks(config)]


def checked_changes(
    gpus: int | None,
    batch: int | None,
    domain_size: int | None,
    platform: str | None,
    sequence: int | None = None,
) -> dict[str, Any]:
    """The keys that options change; raises `InputError` with every value that is wrong."""
    sizes = {"gpus": gpus, "batch": batch, "sequence": sequence, "domain_size": domain_size}
    most = dict.fromkeys(sizes, training.MOST_COUNT)
    most |= {"gpus": MOST_GPUS, "batch": training.MOST_BATCH}
    problems = [
        Problem(f"--{key.replace('_', '-')}", f"must be 1 to {most[key]}, got {size}")
        for key, size in sizes.items()
        if size is not None and not 1 <= size <= most[key]
    ]
    if platform is not None:
        try:
            known_platform(platform)
        except ValueError as error:
            problems.append(Problem("--platform", str(error)))
    if problems:
        raise InputError(*problems)
    given = {**sizes, "platform": platform}
    return {key: value for key, value in given.items() if value is not None}
