"""The algorithms of collectives: every one generates its transfers and dependencies."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import numpy as np

from model.fabric.job_grid import JobGrid
from model.prediction import closed_forms as closed
from model.prediction.nccl_tuning import NVLS, RING, TREE
from model.workload.transfers.collective import Collective
from model.workload.transfers.proof import ScheduleError
from traffic_gen.workloads.algorithms import all_to_all, reductions
from traffic_gen.workloads.algorithms.builder import Builder

# Number of slices that algorithms cut each chunk into, unless a workload says otherwise.
DEFAULT_SLICES, TREE_SLICES, MICROBATCHES = 4, 16, 8
Named = tuple[Collective, str]
"""A collective, and the name of its algorithm."""


def send_recv_chain(build: Builder) -> None:
    """Every rank sends each slice on to the next rank, as the stages of a pipeline do.

    Slices are the microbatches of the pipeline: a stage sends its result for a microbatch when it
    has received the microbatch from the stage before.
    """
    last, arrived = build.gpus - 1, build.nothing()
    for step in range(last + build.slices - 1):
        stages = np.arange(max(0, step - build.slices + 1), min(last, step + 1))
        chunks = stages * build.slices + step - stages
        arrived = build.send(stages, stages + 1, chunks[:, None], channel="stages", after=arrived)


@dataclass(frozen=True)
class Algorithm:
    """An algorithm of a collective: the function that builds its transfers, and its closed form.

    A pipelined algorithm sends its chunks in slices; `slices` is their number, more than 1, unless
    a workload says otherwise. `shards` is the number of chunks that the data of a rank are cut
    into: by default, one for each rank. `takes_peers` says whether the number of partners at once
    is a parameter. The function raises `ScheduleError` for a grid of GPUs that it cannot serve,
    before it sends.
    """

    build: Callable[[Builder], object]
    closed_form: closed.ClosedForm
    slices: int = 1
    shards: Callable[[JobGrid], int] = attrgetter("gpus")
    takes_peers: bool = False

    @property
    def is_modeled(self) -> bool:
        """Whether it has a closed form alone, and no transfers."""
        return self.build is no_transfers


def no_transfers(_build: Builder) -> None:
    """Refuse every grid: a switch that reduces cannot be shown with packets."""
    raise ScheduleError("switches reduce, which cannot be emulated")


def a_part_for_each_rail(grid: JobGrid) -> int:
    """Return the number of chunks: one for each rank and each NIC that all domains have."""
    return grid.gpus * len(grid.shared_rails)


ALGORITHMS: dict[Named, Algorithm] = {
    (Collective.ALL_REDUCE, "ring"): Algorithm(reductions.ring_all_reduce, closed.RING_ALL_REDUCE),
    (Collective.ALL_REDUCE, "rings"): Algorithm(
        reductions.rings_all_reduce, closed.RINGS_ALL_REDUCE, shards=a_part_for_each_rail
    ),
    (Collective.ALL_REDUCE, "hierarchical"): Algorithm(
        reductions.hierarchical_all_reduce, closed.HIERARCHICAL_ALL_REDUCE
    ),
    (Collective.ALL_REDUCE, "hierarchical-pipelined"): Algorithm(
        reductions.hierarchical_all_reduce, closed.HIERARCHICAL_ALL_REDUCE, DEFAULT_SLICES
    ),
    (Collective.ALL_REDUCE, "halving-doubling"): Algorithm(
        reductions.halving_doubling_all_reduce, closed.HALVING_DOUBLING
    ),
    (Collective.ALL_REDUCE, "double-binary-tree"): Algorithm(
        reductions.double_tree_all_reduce,
        closed.DOUBLE_TREE,
        TREE_SLICES,
        shards=lambda grid: len(grid.shared_rails),
    ),
    (Collective.ALL_GATHER, "ring"): Algorithm(reductions.ring_all_gather, closed.RING),
    (Collective.ALL_GATHER, "rings"): Algorithm(
        reductions.rings_all_gather, closed.RINGS, shards=a_part_for_each_rail
    ),
    (Collective.ALL_GATHER, "hierarchical"): Algorithm(
        reductions.hierarchical_all_gather, closed.HIERARCHICAL
    ),
    (Collective.ALL_GATHER, "hierarchical-pipelined"): Algorithm(
        reductions.hierarchical_all_gather, closed.HIERARCHICAL, DEFAULT_SLICES
    ),
    (Collective.REDUCE_SCATTER, "ring"): Algorithm(reductions.ring_reduce_scatter, closed.RING),
    (Collective.REDUCE_SCATTER, "rings"): Algorithm(
        reductions.rings_reduce_scatter, closed.RINGS, shards=a_part_for_each_rail
    ),
    (Collective.REDUCE_SCATTER, "hierarchical"): Algorithm(
        reductions.hierarchical_reduce_scatter, closed.HIERARCHICAL
    ),
    (Collective.REDUCE_SCATTER, "hierarchical-pipelined"): Algorithm(
        reductions.hierarchical_reduce_scatter, closed.HIERARCHICAL, DEFAULT_SLICES
    ),
    (Collective.ALL_TO_ALL, "direct"): Algorithm(
        all_to_all.direct_all_to_all, closed.DIRECT, takes_peers=True
    ),
    (Collective.ALL_TO_ALL, "pairwise"): Algorithm(all_to_all.pairwise_all_to_all, closed.PAIRWISE),
    (Collective.ALL_TO_ALL, "two-step"): Algorithm(all_to_all.two_step_all_to_all, closed.TWO_STEP),
    (Collective.ALL_TO_ALL, "two-step-pipelined"): Algorithm(
        all_to_all.two_step_all_to_all, closed.TWO_STEP, DEFAULT_SLICES
    ),
    (Collective.ALL_TO_ALL, "spreading"): Algorithm(
        all_to_all.spreading_all_to_all, closed.TWO_STEP, DEFAULT_SLICES
    ),
    (Collective.BROADCAST, "ring"): Algorithm(reductions.ring_broadcast, closed.CHAIN),
    (Collective.BROADCAST, "hierarchical"): Algorithm(
        reductions.hierarchical_broadcast, closed.HIERARCHICAL_BROADCAST
    ),
    (Collective.REDUCE, "ring"): Algorithm(reductions.ring_reduce, closed.CHAIN),
    (Collective.REDUCE, "hierarchical"): Algorithm(
        reductions.hierarchical_reduce, closed.HIERARCHICAL_BROADCAST
    ),
    (Collective.GATHER, "direct"): Algorithm(reductions.direct_gather, closed.DIRECT_GATHER),
    (Collective.GATHER, "hierarchical"): Algorithm(
        reductions.hierarchical_gather, closed.HIERARCHICAL_SCATTER
    ),
    (Collective.SCATTER, "direct"): Algorithm(reductions.direct_scatter, closed.DIRECT_SCATTER),
    (Collective.SCATTER, "hierarchical"): Algorithm(
        reductions.hierarchical_scatter, closed.HIERARCHICAL_SCATTER
    ),
    (Collective.SEND_RECV, "chain"): Algorithm(
        send_recv_chain, closed.STAGES, MICROBATCHES, shards=lambda _grid: 1
    ),
}
# AllReduces in which switches reduce, as NVLink SHARP and SHARP do: no GPU sends to another one.
MODELED: dict[Named, Algorithm] = {
    (Collective.ALL_REDUCE, "nvls"): Algorithm(no_transfers, closed.NVLS, TREE_SLICES),
    (Collective.ALL_REDUCE, "nvls-sharp"): Algorithm(no_transfers, closed.NVLS_SHARP, TREE_SLICES),
}
# NCCL's own choice of an AllReduce, and our names of its algorithms.
NCCL = "nccl"
NAMES_OF_NCCL = {RING: "rings", TREE: "double-binary-tree", NVLS: "nvls"}
# The algorithms that are part of Railbed; plugins add others.
BUILT_IN = frozenset(ALGORITHMS)
# The Python file of each algorithm of a plugin.
PLUGINS: dict[Named, Path] = {}


def algorithms_of(collective: Collective) -> list[str]:
    """Return the names of the algorithms of a collective."""
    return [name for of, name in ALGORITHMS if of is collective]


def names_of(collective: Collective) -> list[str]:
    """Return the names of its algorithms, those that are only modeled, and NCCL's choice."""
    modeled = [name for of, name in MODELED if of is collective]
    return [*algorithms_of(collective), *modeled, *([NCCL] if modeled else [])]


def algorithm_of(named: Named) -> Algorithm:
    """Return an algorithm, also one that is only modeled; before NCCL's choice, its rings."""
    collective, name = named
    known = collective, NAMES_OF_NCCL[RING] if name == NCCL else name
    return ALGORITHMS.get(known) or MODELED[known]
