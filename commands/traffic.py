"""The command `traffic`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from commands import train
from commands.options import AsJson, Figure, SomeStore, configuration_names, refuse_idle, run_names
from commands.output import draw_figure, print_result
from model.errors import InputError, Problem
from model.training.traffic import Dimension, Traffic
from model.training.traffic import traffic as traffic_of
from results.sections.modeled import traffic_sections
from results.store.runs import DEFAULT_STORE, find_run
from scenarios.format.training import chosen_object
from studies.twins.recorded_traffic import recorded_traffic

# Pairs of all-to-alls that fit the memory: one takes about 100 bytes while it is counted.
MOST_PAIRS = 2 * 10**7


def traffic(
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="CONFIG",
            help="a training configuration; not with --run",
            autocompletion=configuration_names,
        ),
    ] = None,
    gpus: train.Gpus = None,
    batch: train.Batch = None,
    sequence: train.Sequence = None,
    domain_size: train.DomainSize = None,
    platform: train.PlatformName = None,
    gpus_per_nic: train.GpusPerNic = None,
    search: train.Search = False,
    figure: Figure = None,
    run: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="count what a stored run sent", autocompletion=run_names),
    ] = None,
    case: Annotated[
        str | None, typer.Option(metavar="CASE", help="an iteration of RUN; default: the first")
    ] = None,
    store: SomeStore = None,
    as_json: AsJson = False,
) -> None:
    """Print the bytes of a modeled iteration or of a stored run's, and draw them if asked."""
    shared = gpus_per_nic or 1
    if run is not None:
        counts = {gpus, batch, sequence, domain_size, gpus_per_nic}
        if counts | {config, platform, search or None} != {None}:
            what = "cannot be combined with a configuration or its options"
            raise InputError(Problem("--run", what))
        name, flows = recorded_traffic(find_run(store or DEFAULT_STORE, run), case)
        size, chosen, remarks = flows.domain_size, {}, list[str]()
    elif config is None:
        raise InputError(Problem("traffic", "needs a CONFIG, or --run RUN"))
    else:
        refuse_idle("needs --run", case=case, store=store)
        changes = train.checked_changes(gpus, batch, domain_size, platform, sequence)
        name, best, remarks = train.evaluation(config, changes, search, gpus_per_nic=shared)
        pairs = best.job.cluster.gpus * best.strategy.expert
        if pairs > MOST_PAIRS:
            what = f"must have at most {MOST_PAIRS} pairs of GPUs in all-to-alls, got {pairs}"
            raise InputError(Problem(name, what, "use fewer GPUs, or a smaller expert_parallel"))
        flows, size = traffic_of(best.job, best.strategy), best.job.cluster.domain_size
        sizes = {"batch": best.job.batch, "sequence": best.job.transformer.sequence}
        chosen = sizes | chosen_object(best)
    if figure is not None:
        # Imports Matplotlib, which takes half a second.
        from results.figures.paper import draw_heat_map

        draw_figure(figure, lambda path: draw_heat_map(flows, name, path))
    result = chosen | _traffic_object(name, flows, size, shared) | {"left_out": remarks}
    print_result(result, as_json, traffic_sections)


def _traffic_object(name: str, counted: Traffic, domain_size: int, shared: int) -> dict[str, Any]:
    """Bytes of an iteration over all GPUs; shares are of all ordered pairs of GPUs.

    `domain_size` are the GPUs of an HB domain, of which some may be idle, `shared` those of a NIC.
    """
    tensor = counted.pairs_with_traffic(Dimension.TENSOR)
    return {
        "schema": "railbed.traffic/1",
        "configuration": name,
        "gpus": counted.gpus,
        "domain_size": domain_size,
        "gpus_per_nic": shared,
        "used_of_domain": counted.domain_size,
        "bytes": {dimension.value: flows.total for dimension, flows in counted.flows.items()},
        "idle_pairs": 1 - counted.pairs_with_traffic(*Dimension) / max(counted.pairs, 1),
        "tensor_pairs": tensor / max(counted.pairs, 1),
        "hb_bytes": counted.hb_bytes(),
        "nic_bytes": counted.nic_bytes(),
        "cross_rail_nic_bytes": counted.cross_rail_bytes(shared),
        "pairs": counted.pairs,
    }
