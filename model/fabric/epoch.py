"""What the fabric is during a part of an execution, and which GPU each rank has."""

from dataclasses import dataclass

from model.fabric.health import HEALTHY, Health
from model.fabric.topology import Gpu, Topology

# The GPU of every rank.
Placement = tuple[Gpu, ...]


@dataclass(frozen=True)
class Epoch:
    """What the fabric is from `begin_s` on: its topology and its health."""

    topology: Topology
    health: Health = HEALTHY
    begin_s: float = 0.0
