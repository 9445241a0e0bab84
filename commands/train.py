"""The command `train`, and its options, of which other commands have some, too."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from commands.options import AsJson, configuration_names
from commands.output import print_result
from model.errors import InputError, Problem
from model.training.iteration import Evaluation
from model.training.job import Job
from results.sections.modeled import train_sections
from scenarios.format.files import configuration_name
from scenarios.format.training import (
    MOST_BATCH,
    MOST_COUNT,
    MOST_GPUS,
    Configuration,
    evaluated,
    load_configuration,
)
from scenarios.format.units import known_platform

SCHEMA = "railbed.train/1"

Config = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG",
        help="a training configuration: a file, or gpt-146b ...",
        autocompletion=configuration_names,
    ),
]
Gpus = Annotated[int | None, typer.Option(metavar="N", help="number of GPUs")]
Batch = Annotated[int | None, typer.Option(metavar="B", help="sequences of an iteration")]
DomainSize = Annotated[
    int | None, typer.Option("--domain-size", metavar="K", help="GPUs of an HB domain")
]
PlatformName = Annotated[str | None, typer.Option("--platform", metavar="P", help="dgx-h100 ...")]
Search = Annotated[bool, typer.Option("--search", help="ignore the strategy of the file")]


def train(
    config: Config,
    gpus: Gpus = None,
    batch: Batch = None,
    domain_size: DomainSize = None,
    platform: PlatformName = None,
    search: Search = False,
    as_json: AsJson = False,
) -> None:
    """Print the modeled time of a configuration with these changes."""
    name, configuration, best = evaluation(config, gpus, batch, domain_size, platform, search)
    print_result(_train_object(name, configuration.job, best), as_json, train_sections)


def _train_object(name: str, job: Job, best: Evaluation) -> dict[str, Any]:
    """Time, utilization in percent, strategy and terms of an iteration."""
    strategy, memory = best.strategy, best.memory_bytes
    return {
        "schema": SCHEMA,
        "configuration": name,
        "gpus": job.cluster.gpus,
        "domain_size": job.cluster.domain_size,
        "batch": job.batch,
        "parameters": job.transformer.parameters,
        "iteration_s": best.iteration_s,
        "mfu": 100 * best.mfu,
        "hfu": 100 * best.hfu,
        "strategy": {
            key: getattr(strategy, key)
            for key in ("tensor", "pipeline", "data", "interleave", "microbatch")
        },
        "in_domain": {
            key: getattr(strategy, f"{key}_inside") for key in ("tensor", "pipeline", "data")
        },
        "terms_s": {key.name: float(getattr(best.terms, key.name)) for key in fields(best.terms)},
        "memory_bytes": memory,
        "fits": memory <= job.cluster.accelerator.memory_bytes,
    }


def evaluation(
    config: Path,
    gpus: int | None,
    batch: int | None,
    domain_size: int | None,
    platform: str | None,
    search: bool,
) -> tuple[str, Configuration, Evaluation]:
    """The name of a configuration, the configuration with its changes, and its iteration."""
    changes = checked_changes(gpus, batch, domain_size, platform)
    configuration = load_configuration(config).model_copy(update=changes)
    if domain_size is not None and domain_size > configuration.gpus:
        what = f"must be at most {configuration.gpus}, the number of GPUs, got {domain_size}"
        raise InputError(Problem("--domain-size", what))
    name = configuration_name(config)
    return name, configuration, evaluated(name, configuration, search=search)


def checked_changes(
    gpus: int | None, batch: int | None, domain_size: int | None, platform: str | None
) -> dict[str, int | str]:
    """The keys that options change; raises `InputError` with every value that is wrong."""
    sizes = {"gpus": gpus, "batch": batch, "domain_size": domain_size}
    most = {"gpus": MOST_GPUS, "batch": MOST_BATCH, "domain_size": MOST_COUNT}
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
