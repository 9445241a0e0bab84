"""Training iterations of a scenario: a configuration, reduced to the GPUs of the fabric."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from model.fabric.spec import FabricSpec
from model.job.communicators import Shape
from model.training.reduction import NoReduction, ReducedIteration, Wanted, reduced
from scenarios.format.issues import Issue, Place
from scenarios.format.training import (
    Configuration,
    configuration_name,
    evaluated,
    load_configuration,
)
from scenarios.format.workloads import IterationWork
from traffic_gen.workloads.training_iteration import Iteration


def iteration_task(workload: IterationWork, spec: FabricSpec) -> Iteration:
    """An iteration on a fabric, in its real size."""
    name = configuration_name(Path(workload.iteration))
    return Iteration(name, _reduced(workload, *spec.job_shape), spec.kind, workload.zero)


def iteration_issues(place: Place, workload: IterationWork, shape: Shape) -> Iterator[Issue]:
    """Issues of an iteration that cannot be reduced to its grid."""
    try:
        _reduced(workload, *shape)
    except NoReduction as error:
        hint = "use another grid of GPUs, or other degrees"
        yield Issue((*place, "iteration"), str(error), hint)


def _reduced(workload: IterationWork, domains: int, domain_size: int) -> ReducedIteration:
    """Reduce a configuration; raises `NoReduction`, or `InputError` for a wrong file."""
    configuration = load_configuration(Path(workload.iteration))
    if workload.batch is not None:
        configuration = configuration.model_copy(update={"batch": workload.batch})
    wanted = Wanted(workload.tensor, workload.pipeline, workload.microbatches, workload.layers)
    return _of_grid(workload.iteration, configuration, domains, domain_size, wanted)


@lru_cache(maxsize=64)
def _of_grid(
    name: str, configuration: Configuration, domains: int, domain_size: int, wanted: Wanted
) -> ReducedIteration:
    strategy = evaluated(name, configuration).strategy
    return reduced(configuration.job, strategy, domains, domain_size, wanted)
