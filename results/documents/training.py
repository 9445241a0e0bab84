"""The JSON objects of a training iteration: its time, and its traffic."""

from dataclasses import fields
from typing import Any

from model.training.job import Cluster, Job
from model.training.search import Evaluation
from model.training.traffic import Dimension, Traffic

TRAIN_SCHEMA, TRAFFIC_SCHEMA = "railbed.train/1", "railbed.traffic/1"


def train_object(name: str, job: Job, found: Evaluation) -> dict[str, Any]:
    """Time, utilization in percent, strategy and terms of an iteration."""
    strategy, memory = found.strategy, found.memory_bytes
    return {
        "schema": TRAIN_SCHEMA,
        "configuration": name,
        **_gpus(job.cluster),
        "batch": job.batch,
        "parameters": job.transformer.parameters,
        "iteration_s": found.iteration_s,
        "mfu": 100 * found.mfu,
        "hfu": 100 * found.hfu,
        "strategy": {
            key: getattr(strategy, key)
            for key in ("tensor", "pipeline", "data", "interleave", "microbatch")
        },
        "in_domain": {
            key: getattr(strategy, f"{key}_inside") for key in ("tensor", "pipeline", "data")
        },
        "terms_s": {key.name: float(getattr(found.terms, key.name)) for key in fields(found.terms)},
        "memory_bytes": memory,
        "fits": memory <= job.cluster.accelerator.memory_bytes,
    }


def traffic_object(name: str, found: Traffic) -> dict[str, Any]:
    """Bytes of an iteration over all GPUs; shares are of all ordered pairs of GPUs."""
    tensor = found.pairs_with_traffic(Dimension.TENSOR)
    return {
        "schema": TRAFFIC_SCHEMA,
        "configuration": name,
        **_gpus(found),
        "bytes": {dimension.value: flows.total for dimension, flows in found.flows.items()},
        "idle_pairs": 1 - found.pairs_with_traffic(*Dimension) / max(found.pairs, 1),
        "tensor_pairs": tensor / max(found.pairs, 1),
        "hb_bytes": found.hb_bytes(),
        "nic_bytes": found.nic_bytes(),
        "cross_rail_nic_bytes": found.cross_rail_bytes(),
        "pairs": found.pairs,
    }


def _gpus(found: Cluster | Traffic) -> dict[str, Any]:
    return {"gpus": found.gpus, "domain_size": found.domain_size}
