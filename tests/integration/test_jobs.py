"""Jobs on a real fabric slow each other down as much as modeled, where they share uplinks."""

from dataclasses import replace

import pytest

from execution.cases.emulation import Experiment
from model.fabric.job_grid import JobGrid
from model.fabric.spec import FabricKind
from model.job.concurrent_jobs import ConcurrentJobs, Partition, PlacedSteps
from model.workload.transfers.collective import Collective
from results.verdicts.breakdown import job_times
from testbed.nodes.gpu_proxies import ProxyKind
from tests.integration.agreement import agreeing_attempt
from tests.integration.fabrics import fabric_up, slowed_down, small_spec
from traffic_gen.workloads.sized_collective import SizedCollective

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

# All jobs together; and each of them, as flows of two jobs share a link evenly in the model alone.
AGREES_WITHIN, EACH_WITHIN = 0.04, 0.08
DOMAINS, SIZE = 4, 2


def placed(name: str, first: int) -> PlacedSteps:
    """An all-to-all on two domains from the first one, on all rails."""
    steps = SizedCollective(Collective.ALL_TO_ALL, "pairwise", (2, SIZE), 2_000_000).steps()
    return PlacedSteps(name, Partition((first, first + 1), (0, SIZE - 1)), steps)


def seconds(fabric: Experiment, *jobs: PlacedSteps) -> float:
    """How long these jobs take, until the last one has ended; each as long as modeled."""
    steps = ConcurrentJobs(JobGrid(DOMAINS, SIZE), jobs)
    prediction = fabric.predict(steps)
    found = agreeing_attempt(fabric, steps, prediction, AGREES_WITHIN)
    assert found.agrees(AGREES_WITHIN), (len(jobs), found.ratio)
    for job in job_times(steps, found.executions, prediction):
        assert abs(job.ratio - 1) <= EACH_WITHIN, (len(jobs), job.job, job.ratio)
    return found.ratio * prediction.completion_s


def test_jobs_that_share_uplinks_slow_each_other_down_as_modeled() -> None:
    """One spine switch has room for the cross-rail traffic of one job, not of both.

    The model has 1.52 for the time together over that alone.
    """
    spec = small_spec(FabricKind.RAIL_OPTIMIZED, DOMAINS, SIZE)
    shared = replace(spec, nic=replace(spec.nic, spines=1, oversubscription=2.0))
    with fabric_up(slowed_down(shared), ProxyKind.PROCESS) as fabric:
        top, bottom = placed("top", 0), placed("bottom", 2)
        assert seconds(fabric, top, bottom) / seconds(fabric, top) >= 1.4
