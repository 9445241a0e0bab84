"""Latencies of a request load: percentiles measured, and percentiles modeled."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from model.arrays import Floats
from model.fabric.shaping import wire_bytes
from model.fabric.topology import Topology
from model.measurement.records import Repeat
from model.prediction.fluid import Prediction
from model.workload.requests import RequestSteps
from results.verdicts.summary import MeasuredModeled

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class RequestResult:
    """The latencies of requests in emulated seconds, from arrival to last byte, by percentile.

    A percentile is that of all executions, by the nearest rank. `offered_load` is the rate that
    requests need until the last one arrives, as a part of the rate of all NICs.
    """

    requests: int
    offered_load: float
    latency: Mapping[str, MeasuredModeled]

    def plain(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "count": self.requests,
            "offered_load": self.offered_load,
            "latency_s": {name: asdict(value) for name, value in self.latency.items()},
        }


def request_result(
    steps: RequestSteps, topology: Topology, executions: Iterable[Repeat], prediction: Prediction
) -> RequestResult:
    """Return the latencies of a request load.

    Only whole executions count; without any, there are no percentiles.
    """
    measured = [_measured(steps, repeat) for repeat in executions if repeat.complete]
    modeled = _percentiles(steps.latencies_s(np.array(prediction.arrival_s)))
    found = _percentiles(np.concatenate(measured)) if measured else {}
    return RequestResult(
        requests=len(steps.arrival_ns),
        offered_load=_offered_load(steps, topology),
        latency={name: MeasuredModeled(value, modeled[name]) for name, value in found.items()},
    )


def _measured(steps: RequestSteps, repeat: Repeat) -> Floats:
    return steps.latencies_s(np.array([record.arrived_ns for record in repeat.records]) / 1e9)


def _percentiles(latencies_s: Floats) -> dict[str, float]:
    values = np.percentile(latencies_s, PERCENTILES, method="inverted_cdf").tolist()
    return {f"p{number}": value for number, value in zip(PERCENTILES, values, strict=True)}


def _offered_load(steps: RequestSteps, topology: Topology) -> float:
    rate_bps = steps.gpus * topology.spec.emulated_nic_bps
    until_s = int(steps.arrival_ns[-1]) / 1e9
    return wire_bytes(steps.size_bytes) * 8 / (rate_bps * until_s)
