"""Chains of GPUs: Broadcasts, and the Send/Recv chain of pipeline stages."""

import numpy as np

from model.arrays import Ints
from model.workload.transfers.collective import ROOT
from traffic_gen.workloads.algorithms.builder import Builder, joined
from traffic_gen.workloads.algorithms.patterns import all_rails, along, whole_ring, within_domains


def ring_broadcast(build: Builder) -> None:
    """Send chunk after chunk from the root along the ring of all ranks, without its last edge."""
    chain = whole_ring(build)
    along(build, chain, np.arange(build.gpus)[None, :], "ring", build.nothing())


def hierarchical_broadcast(build: Builder) -> None:
    """Send from the root to its HB domain, a part along each rail, and within all HB domains."""

    def of_rail(sources: Ints, _peers: Ints) -> Ints:
        return build.rail_ranks(sources)

    root, arrived = np.array([ROOT]), build.nothing()
    for peer in range(1, build.domain_size):
        to = np.array([peer])
        arrived = joined(arrived, build.send(root, to, build.rail_ranks(to), channel="hb"))
    rails = all_rails(build)
    arrived = joined(arrived, along(build, rails, rails, "nic", arrived))
    within_domains(build, of_rail, arrived)


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
