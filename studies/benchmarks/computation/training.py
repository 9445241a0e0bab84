"""Benchmark the model of training: one evaluation, a search, the traffic of a large job."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from model.training.job import Job, cluster_of
from model.training.search import best, evaluate
from model.training.strategy import divisors, insides, strategies
from model.training.traffic import Dimension, traffic
from model.training.transformer import Recomputation
from scenarios.format.training.configuration import evaluated, load_configuration
from studies.benchmarks.common.rows import Row

TRIALS = 5
NAME = "gpt-1t"
SEARCHED_GPUS = 65536


def training(_store: Path) -> Iterator[Row]:
    """Measure processor time; a search starts without anything that an earlier one has kept."""
    configuration = load_configuration(Path(NAME))
    given = configuration.job
    large = replace(
        given,
        batch=4096,
        recomputation=Recomputation.SELECTIVE,
        cluster=cluster_of("gh200", SEARCHED_GPUS),
    )
    strategy = evaluated(NAME, configuration).strategy
    yield _row("one evaluation", given, lambda: evaluate(given, strategy))
    yield _row("search", large, lambda: _searched(large)) | {"strategies": _count(large)}
    yield _row("traffic", given, lambda: traffic(given, strategy).pairs_with_traffic(*Dimension))


def _count(job: Job) -> int:
    return len(strategies(job).tensor)


def _searched(job: Job) -> None:
    divisors.cache_clear()
    insides.cache_clear()
    best(job)


def _row(what: str, job: Job, task: Callable[[], object]) -> Row:
    seconds = [_seconds(task) for _ in range(TRIALS)]
    return {
        "what": what,
        "gpus": job.cluster.gpus,
        "median_s": median(seconds),
        "max_s": max(seconds),
    }


def _seconds(task: Callable[[], object]) -> float:
    began_s = time.process_time()
    task()
    return time.process_time() - began_s
