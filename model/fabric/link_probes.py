"""The controller's probes of links: their size and their interval."""

from model.fabric.topology import Topology

# Short enough for the class of acknowledgements, and longer than Ethernet's shortest frame.
PROBE_BYTES = 64
# Minimum interval of rounds, and time per link and direction, so as not to saturate the CPU.
SHORTEST_INTERVAL_S = 0.025
SECONDS_A_DIRECTION = 0.0003


def probe_interval_s(topology: Topology) -> float:
    """Time between two probes of one direction of a link."""
    return max(SHORTEST_INTERVAL_S, 2 * len(topology.links) * SECONDS_A_DIRECTION)
