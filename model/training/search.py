"""The evaluation of a strategy, and the search for the best one."""

from dataclasses import dataclass

import numpy as np

from model.training.iteration import Terms, iteration, memory_bytes
from model.training.job import Job
from model.training.strategy import ANY, Strategy, Wish, strategies


@dataclass(frozen=True)
class Evaluation:
    """A strategy's iteration: seconds by cause, memory in bytes, utilization as shares of 1.

    MFU counts the FLOPs that the model needs, HFU also the recomputed ones.
    """

    strategy: Strategy
    terms: Terms
    memory_bytes: float
    mfu: float
    hfu: float

    @property
    def iteration_s(self) -> float:
        """The iteration's time."""
        return float(self.terms.total)


def evaluate(job: Job, strategy: Strategy) -> Evaluation:
    """Evaluate one strategy."""
    terms = iteration(job, strategy)
    peak = float(terms.total) * job.cluster.gpus * job.cluster.accelerator.peak_flops
    return Evaluation(
        strategy,
        terms,
        float(memory_bytes(job, strategy)),
        job.transformer.model_flops(job.batch) / peak,
        job.transformer.hardware_flops(job.batch, job.recomputation) / peak,
    )


def best(job: Job, wish: Wish = ANY, *, must_fit: bool = True) -> Evaluation | None:
    """Return the fastest strategy, with `must_fit` of those that fit into memory; or `None`."""
    every = strategies(job, wish)
    if not len(every.tensor):
        return None
    times = iteration(job, every).total
    if must_fit:
        fits = memory_bytes(job, every) <= job.cluster.accelerator.memory_bytes
        times = np.where(fits, times, np.inf)
    fastest = int(np.argmin(times))
    return evaluate(job, every.at(fastest)) if np.isfinite(times[fastest]) else None
