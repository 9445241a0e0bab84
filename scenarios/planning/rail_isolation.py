"""Rail isolation: traffic of a case that crosses rails on a rail-only fabric."""

from collections.abc import Iterator

from model.fabric.spec import FabricKind, FabricSpec
from scenarios.planning.load_estimate import real_task
from scenarios.scenario import Case, Scenario


def rail_crossings(scenario: Scenario) -> Iterator[str]:
    """Yield a sentence for each case, and each of several jobs, that crosses rails on rail-only."""
    for spec in scenario.fabrics:
        for case in scenario.cases_on(spec.kind):
            yield from (f"{case.name}: {how}" for how in crossings(case, spec))


def crossings(case: Case, spec: FabricSpec) -> Iterator[str]:
    """Yield how a case, or each of its jobs, crosses rails; nothing if the fabric has spines."""
    if spec.kind is FabricKind.RAIL_ONLY:
        yield from case.task.crossings(real_task(case.task, spec).spec)
