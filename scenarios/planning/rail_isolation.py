"""Rail isolation: what of a case a rail-only fabric can only carry by crossing rails."""

from collections.abc import Iterator

import numpy as np

from model.fabric.spec import FabricKind, FabricSpec
from model.job.communicators import communicators, label
from scenarios.planning.load_estimate import TimedWork, followed, transfers_of, work_of
from scenarios.planning.schedules import MOST_IRREGULAR_GPUS
from scenarios.spec.scenario import Case, Scenario


def rail_crossings(scenario: Scenario) -> Iterator[str]:
    """Yield a sentence for each case that crosses rails on a rail-only fabric."""
    for spec in scenario.fabrics:
        for case in scenario.cases_on(spec.kind):
            sentence = crossing(case, spec)
            if sentence:
                yield sentence


def crossing(case: Case, spec: FabricSpec) -> str:
    """Say how a case crosses rails; nothing if it does not, or if the fabric has spines for it."""
    if spec.kind is not FabricKind.RAIL_ONLY:
        return ""
    groups = communicators(case.communicator, (spec.job_domains, spec.job_size))
    apart = sum(not group.is_rail_isolated(spec.job_size) for group in groups)
    if apart:
        several = f" {apart} times" if len(groups) > 1 else ""
        return (
            f"{case.name}: the communicator {label(case.communicator)} crosses rails{several}: its "
            "GPUs are not joined by rails and HB domains of their own, so others forward for them"
        )
    crossed, sent = _pairs(case, spec) if spec.gpus <= MOST_IRREGULAR_GPUS else (0, 0)
    if not crossed:
        return ""
    return (
        f"{case.name}: {crossed} of {sent} pairs of GPUs that send cross rails, and others forward "
        "for them"
    )


def _pairs(case: Case, spec: FabricSpec) -> tuple[int, int]:
    """Return how many pairs of ranks share neither domain nor rail, and how many pairs send."""
    job = work_of(case, spec)
    if isinstance(job, TimedWork):
        ends = np.stack(followed(job).pairs)
        ends = ends[:, ends[0] != ends[1]]
    else:
        sent = transfers_of(job)
        ends = np.unique(np.stack([sent.source, sent.destination]), axis=1)
    (domains, others), (rails, other_rails) = np.divmod(ends, spec.job_size)
    return int(((domains != others) & (rails != other_rails)).sum()), ends.shape[1]
