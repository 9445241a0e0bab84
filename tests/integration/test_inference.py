"""A request load on a real fabric: requests arrive at their times, and wait as long as modeled."""

from dataclasses import replace

import numpy as np
import pytest

from model.fabric.spec import FabricKind
from results.verdicts.breakdown import request_result
from testbed.nodes.gpu_proxies import ProxyKind
from tests.integration.agreement import undisturbed_attempt
from tests.integration.fabrics import fabric_up, slowed_down, small_spec
from traffic_gen.workloads.inference import Arrivals, RequestLoad

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

# Parts of the modeled latency. A shard that meets another one at a NIC gets less of it, or more,
# than the model's even share; arrivals and acknowledgements take the rest.
MEDIAN_WITHIN, PERCENTILES_WITHIN = 0.04, 0.25
ARRIVES_WITHIN_S = 0.05


def test_requests_take_as_long_as_modeled() -> None:
    """8 requests of 2 x 300 kB, which take 125 ms each at 20 Mbit/s, at half of the NICs' rate.

    A busy machine only delays: the execution that is nearest to the model counts.
    """
    steps = RequestLoad("some", Arrivals(8, 8.0, 100, 0.3, 1), 6000, 2, 2, 2, 2).steps()
    spec = slowed_down(replace(small_spec(FabricKind.RAIL_ONLY), bucket_depth_s=0.001))
    with fabric_up(spec, ProxyKind.PROCESS) as fabric:
        prediction = fabric.predict(steps)
        found = undisturbed_attempt(fabric, steps, prediction)
    modeled = steps.latencies_s(np.array(prediction.arrival_s))
    away = {}
    for execution in found.executions:
        arrived_s = np.array([record.arrived_ns for record in execution.records]) / 1e9
        arrivals_s = arrived_s[steps.transfers.is_compute]
        assert arrivals_s == pytest.approx(
            np.repeat(steps.arrival_ns, 2) / 1e9, abs=ARRIVES_WITHIN_S
        )
        away[abs(float(np.median(steps.latencies_s(arrived_s) / modeled)) - 1)] = execution
    nearest = min(away)
    assert nearest <= MEDIAN_WITHIN
    result = request_result(steps, fabric.topology, [away[nearest]], prediction)
    for name, value in result.latency_s.items():
        assert abs(value.measured / value.modeled - 1) <= PERCENTILES_WITHIN, (name, value)
