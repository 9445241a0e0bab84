"""Epochs of constant fabric state during an execution, and the GPUs of ranks."""

from dataclasses import dataclass

from model.fabric.health import HEALTHY, Health
from model.fabric.topology import Gpu, Topology

# The GPU of every rank, in rank order.
RankGpus = tuple[Gpu, ...]


@dataclass(frozen=True)
class Epoch:
    """State of the fabric from `begin_s` on: its topology and its health."""

    topology: Topology
    health: Health = HEALTHY
    begin_s: float = 0.0
