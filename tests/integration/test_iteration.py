"""Training iterations on a real fabric take as long as modeled, part by part."""

from dataclasses import replace
from pathlib import Path

import pytest

from execution.path_check import check_fabric
from model.fabric.spec import FabricKind
from model.training.reduction import Wanted, reduced
from model.training.steps import IterationSteps
from results.verdicts.breakdown import iteration_result
from results.verdicts.verdict import Verdict
from scenarios.format.training import evaluated, load_configuration
from testbed.nodes.gpu_proxies import ProxyKind
from tests.integration.agreement import agreeing_attempt
from tests.integration.fabrics import fabric_up, small_spec
from traffic_gen.workloads.training_iteration import Iteration

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

# Parts of the completion time. The model omits that a message's last segment, up to 64 KiB, leaves
# on token debt: a few milliseconds for each collective that follows compute.
AGREES_WITHIN, PARTS_WITHIN = 0.04, 0.05
DOMAINS, SIZE = 2, 4
KIND = FabricKind.RAIL_ONLY


def steps_of(name: str, wanted: Wanted, time_dilation: float, size_scale: float) -> IterationSteps:
    """An iteration of a shipped configuration, with more traffic for its compute than it has."""
    configuration = load_configuration(Path(name))
    full = evaluated(name, configuration).strategy
    small = reduced(configuration.job, full, DOMAINS, SIZE, wanted)
    return Iteration(name, small, KIND).steps(size_scale, time_dilation)


def test_an_iteration_takes_as_long_as_modeled_and_so_does_each_part() -> None:
    """Three dimensions of a pipeline, and all-to-alls of experts."""
    dense = steps_of("gpt-146b", Wanted(microbatches=2), 1.0, 500.0)
    sparse = steps_of("moe-1.3b", Wanted(), 1.0, 500.0)
    spec = replace(small_spec(KIND, DOMAINS, SIZE), bucket_depth_s=0.001)
    with fabric_up(spec, ProxyKind.PROCESS) as fabric:
        for steps in (dense, sparse):
            prediction = fabric.predict(steps)
            found = agreeing_attempt(fabric, steps, prediction, AGREES_WITHIN)
            assert found.agrees(AGREES_WITHIN), (steps.algorithm, found.ratio)
            result = iteration_result(steps, found.executions, prediction)
            for name, part in result.parts_s.items():
                away_s = abs(part.measured - part.modeled)
                assert away_s <= found.limit(PARTS_WITHIN) * prediction.completion_s, (name, part)


def test_one_domain_of_all_gpus_is_the_ideal_network() -> None:
    """Paths are as intended, though no packet leaves the domain."""
    configuration = load_configuration(Path("gpt-146b"))
    full = evaluated("gpt-146b", configuration).strategy
    small = reduced(configuration.job, full, 1, 4, Wanted(2, 1, microbatches=1))
    steps = Iteration("gpt-146b", small, KIND).steps(1000.0)
    spec = replace(small_spec(KIND, 1, 4), bucket_depth_s=0.001)
    with fabric_up(spec, ProxyKind.PROCESS) as fabric:
        assert check_fabric(fabric).verdict is Verdict.PASS
        found = agreeing_attempt(fabric, steps, fabric.predict(steps), AGREES_WITHIN)
    assert found.agrees(AGREES_WITHIN), found.ratio
