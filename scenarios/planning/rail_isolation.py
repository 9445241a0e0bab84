"""Rail isolation: traffic of a case that crosses rails on a rail-only fabric."""

from collections.abc import Iterator

import numpy as np

from model.arrays import Ints
from model.fabric.spec import FabricKind, FabricSpec
from model.job.communicators import label
from scenarios.planning.load_estimate import profile_steps, real_task, transfers_of
from scenarios.scenario import Case, Scenario
from scenarios.workloads.schedules import MOST_IRREGULAR_GPUS
from traffic_gen.workloads.jobs import Job, Jobs, Task
from traffic_gen.workloads.sized_collective import SizedCollective


def rail_crossings(scenario: Scenario) -> Iterator[str]:
    """Yield a sentence for each case, and each of several jobs, that crosses rails on rail-only."""
    for spec in scenario.fabrics:
        for case in scenario.cases_on(spec.kind):
            yield from (f"{case.name}: {found}" for found in crossings(case, spec))


def crossings(case: Case, spec: FabricSpec) -> Iterator[str]:
    """Yield how a case, or each of its jobs, crosses rails; nothing if the fabric has spines."""
    if spec.kind is FabricKind.RAIL_ONLY:
        yield from (f"{whose}{told}" for whose, told in _told(case, spec) if told)


def _told(case: Case, spec: FabricSpec) -> Iterator[tuple[str, str]]:
    """Yield a prefix, and how the case or each of its jobs crosses rails; empty if it does not."""
    if isinstance(case.task, Jobs):
        pairs = _pairs(case, spec)
        for job in case.task.jobs:
            yield f"job {job.name}: ", _of_job(job, pairs, spec.job_size)
        return
    yield "", _by_communicator(case.task) or _by_pairs(_pairs(case, spec), spec.job_size)


def _of_job(job: Job, pairs: Ints, domain_size: int) -> str:
    """Say how one of several jobs crosses rails, whose GPUs are those of its partition."""
    own = np.isin(pairs[0], job.partition.ranks(domain_size))
    return _by_communicator(job.task) or _by_pairs(pairs[:, own], domain_size)


def _by_communicator(task: Task) -> str:
    """Say which communicator no algorithm can serve along rails; nothing if all can be."""
    if not isinstance(task, SizedCollective):
        return ""
    groups = task.groups
    apart = sum(not group.is_rail_isolated(task.shape[1]) for group in groups)
    if not apart:
        return ""
    several = f" {apart} times" if len(groups) > 1 else ""
    return (
        f"the communicator {label(task.communicator)} crosses rails{several}: its GPUs are not "
        "joined by rails and HB domains of their own, so others forward for them"
    )


def _by_pairs(pairs: Ints, domain_size: int) -> str:
    """Say how many pairs of ranks that send share neither domain nor rail; nothing if none do."""
    (domains, others), (rails, other_rails) = np.divmod(pairs, domain_size)
    crossed = int(((domains != others) & (rails != other_rails)).sum())
    if not crossed:
        return ""
    of_all = f"{crossed} of {pairs.shape[1]} sending pairs of GPUs"
    return f"{of_all} share neither rail nor HB domain: other GPUs forward for them"


def _pairs(case: Case, spec: FabricSpec) -> Ints:
    """Return a column for each pair of ranks that sends; no pairs of too many GPUs to count."""
    if spec.gpus > MOST_IRREGULAR_GPUS:
        return np.empty((2, 0), np.int64)
    if isinstance(case.task, SizedCollective):
        sent = transfers_of(case.task)
        return np.unique(np.stack([sent.source, sent.destination]), axis=1)
    ends = np.stack(profile_steps(real_task(case.task, spec)).pairs)
    return ends[:, ends[0] != ends[1]]
