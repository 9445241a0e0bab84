"""Skewed all-to-alls, and several communicators at once, on a real fabric against the model."""

import pytest

from execution.cases.emulation import Experiment
from model.fabric.spec import FabricKind
from model.workload.transfers.collective import Collective
from testbed.nodes.gpu_proxies import ProxyKind
from tests.integration.agreement import agreeing_attempt
from tests.integration.fabrics import fabric_up, slowed_down, small_spec
from traffic_gen.workloads.algorithms.all_to_all import Preset, Skew
from traffic_gen.workloads.sized_collective import SizedCollective

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

AGREES_WITHIN = 0.03
DOMAINS, SIZE = 3, 3
HOT = Skew(Preset.HOT_EXPERT)


def measured_s(fabric: Experiment, algorithm: str, size_bytes: int) -> tuple[float, float]:
    """Return measured and modeled seconds of an all-to-all with a hot expert; they must agree."""
    named = Collective.ALL_TO_ALL, algorithm
    schedule = SizedCollective(*named, (DOMAINS, SIZE), size_bytes, matrix=HOT).steps()
    prediction = fabric.predict(schedule)
    found = agreeing_attempt(fabric, schedule, prediction, AGREES_WITHIN)
    assert found.agrees(AGREES_WITHIN), (algorithm, found)
    return found.ratio * prediction.completion_s, prediction.completion_s


def test_the_winner_of_a_skewed_all_to_all_and_communicators_at_once_are_as_modeled() -> None:
    spec = slowed_down(small_spec(FabricKind.RAIL_ONLY, DOMAINS, SIZE))
    with fabric_up(spec, ProxyKind.PROCESS) as fabric:
        two, spread = (
            measured_s(fabric, name, 1_500_000) for name in ("two-step-pipelined", "spreading")
        )
        assert (spread[0] < two[0]) == (spread[1] < two[1])
        ring = Collective.ALL_REDUCE, "ring", (DOMAINS, SIZE), 2_000_000
        both = SizedCollective(*ring, communicator=["rails", "domains"]).steps()
        found = agreeing_attempt(fabric, both, fabric.predict(both), AGREES_WITHIN)
        assert found.agrees(AGREES_WITHIN), found
