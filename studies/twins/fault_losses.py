"""The section on fault tolerance: losses when a part fails, at scale and in experiments."""

from collections.abc import Iterator, Sequence
from typing import Any

from model.errors import EmulationError
from model.training.job import Job, cluster_of
from model.training.search import best
from studies.decision.designs import loss_with_nics, losses
from studies.paper.study import DEFAULT, DOMAIN_SIZES, transformer
from studies.twins.points import EXPERIMENTS

Row = dict[str, Any]


def lost_at_scale() -> Iterator[Row]:
    """Yield the losses of an iteration of GPT-1T at the paper's scale, by domain size and part.

    A lost NIC's traffic is spread over all other rails, or falls to one neighbour, whose NIC then
    carries two transfers in every step of a ring.
    """
    for size in DOMAIN_SIZES:
        cluster = cluster_of(DEFAULT.platform, DEFAULT.gpus, size)
        job = Job(transformer("gpt-1t"), DEFAULT.batch, DEFAULT.recomputation, cluster)
        found = best(job)
        if found is None:
            raise EmulationError(f"no strategy for GPT-1T with {DEFAULT}")
        lost = losses(job, found)
        yield {
            "K": size,
            **lost,
            "nic_link_to_one": loss_with_nics(job, found, 0.5),
            "domain": lost["gpu"],  # a GPU without a spare takes its domain
        }


def lost_in_experiments(results: Sequence[Row]) -> Iterator[Row]:
    """Yield the losses of the failure experiments: with the fault, or after it on spares."""
    for row in (row for result in results for row in result["failures"]):
        yield {
            "experiment": row["scenario"],
            "part": EXPERIMENTS[row["scenario"]],
            "fabric": row["fabric"],
            "measured": row["degraded_s"] / row["baseline_s"] - 1,
            "modeled": row["modeled_degraded_s"] / row["modeled_baseline_s"] - 1,
            "blackout_ms": row["blackout_ms"],
            "verdict": row["verdict"],
        }
