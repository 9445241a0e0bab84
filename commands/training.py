"""The commands `train` and `traffic`: a training iteration's time, and its bytes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from commands.options import AsJson, Store, configuration_names
from commands.output import draw_figure, print_result
from model.errors import InputError, Problem
from results.store.runs import DEFAULT_STORE, find_run

if TYPE_CHECKING:
    from model.training.search import Evaluation
    from model.training.traffic import Traffic
    from scenarios.format.training import Configuration

# A pair takes about 100 bytes while it is counted.
MOST_PAIRS = 2 * 10**7

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
    """Model the time of a training iteration, with the strategy given or the best one found."""
    from results.documents.training import train_object
    from results.tables.modeled.training import print_train

    name, configuration, found = _evaluated(config, gpus, batch, domain_size, platform, search)
    print_result(train_object(name, configuration.job, found), as_json, print_train)


def _evaluated(
    config: Path,
    gpus: int | None,
    batch: int | None,
    domain_size: int | None,
    platform: str | None,
    search: bool,
) -> "tuple[str, Configuration, Evaluation]":
    """The name of a configuration, the configuration with its changes, and its iteration."""
    from scenarios.format.training import (
        configuration_name,
        evaluated,
        load_configuration,
    )

    changes = _changes(gpus, batch, domain_size, platform)
    configuration = load_configuration(config).model_copy(update=changes)
    if domain_size is not None and domain_size > configuration.gpus:
        what = f"must be at most {configuration.gpus}, the number of GPUs, got {domain_size}"
        raise InputError(Problem("--domain-size", what))
    name = configuration_name(config)
    return name, configuration, evaluated(name, configuration, search=search)


def _changes(
    gpus: int | None, batch: int | None, domain_size: int | None, platform: str | None
) -> dict[str, int | str]:
    """The keys that options change; raises `InputError` with every value that is wrong."""
    from scenarios.format.training import (
        MOST_BATCH,
        MOST_COUNT,
        MOST_GPUS,
    )
    from scenarios.format.units import known_platform

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


def traffic(
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CONFIG]",
            help="a training configuration, without --run",
            autocompletion=configuration_names,
        ),
    ] = None,
    gpus: Gpus = None,
    batch: Batch = None,
    domain_size: DomainSize = None,
    platform: PlatformName = None,
    search: Search = False,
    figure: Annotated[
        Path | None, typer.Option(metavar="PATH", help="draw the heat map: PATH.svg and PATH.png")
    ] = None,
    run: Annotated[
        str | None, typer.Option(metavar="RUN", help="count what a stored run's iteration sent")
    ] = None,
    case: Annotated[str | None, typer.Option(metavar="CASE", help="which iteration of RUN")] = None,
    store: Store = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Count the bytes of a training iteration by parallel dimension, and the idle pairs."""
    from results.documents.training import traffic_object
    from results.tables.modeled.training import print_traffic

    if run is not None:
        given = (config, gpus, batch, domain_size, platform, search or None)
        name, flows = _recorded(run, case, store, alone=set(given) == {None})
    elif config is None:
        raise InputError(Problem("traffic", "needs a CONFIG, or --run RUN"))
    else:
        name, flows = _modeled(config, gpus, batch, domain_size, platform, search)
    if figure is not None:
        from results.figures.heat_map import draw_heat_map

        draw_figure(figure, lambda path: draw_heat_map(flows, name, path))
    print_result(traffic_object(name, flows), as_json, print_traffic)


def _modeled(
    config: Path,
    gpus: int | None,
    batch: int | None,
    domain_size: int | None,
    platform: str | None,
    search: bool,
) -> "tuple[str, Traffic]":
    from model.training.traffic import traffic as traffic_of

    name, configuration, found = _evaluated(config, gpus, batch, domain_size, platform, search)
    _require_few_pairs(name, configuration)
    return name, traffic_of(configuration.job, found.strategy)


def _recorded(run: str, case: str | None, store: Path, *, alone: bool) -> "tuple[str, Traffic]":
    from studies.twins.recorded_traffic import recorded_traffic

    if not alone:
        raise InputError(Problem("--run", "goes without a configuration and changes of it"))
    return recorded_traffic(find_run(store, run), case)


def _require_few_pairs(name: str, configuration: "Configuration") -> None:
    """Raise `InputError` if the pairs of all-to-alls would not fit the memory."""
    pairs = configuration.gpus * (configuration.moe.expert_parallel if configuration.moe else 1)
    if pairs > MOST_PAIRS:
        what = f"has {pairs} pairs of GPUs in all-to-alls, at most {MOST_PAIRS} are counted"
        raise InputError(Problem(name, what, "fewer GPUs, or fewer for each expert's group"))
