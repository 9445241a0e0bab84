"""Paths of probe packets, hop by hop."""

from dataclasses import dataclass

from model.fabric.topology import Hop


@dataclass(frozen=True)
class Trace:
    """The hops of a probe, in order, and whether it arrived."""

    hops: tuple[Hop, ...]
    arrived: bool
