"""The controller's probes of links: their size, their interval, and how many may be lost."""

from model.fabric.shaping import PACKET_HEADER_BYTES
from model.fabric.topology import Topology

# As long as an acknowledgement: byte conservation, which takes a header off each packet, then sees
# nothing of them, whatever their number.
PROBE_BYTES = PACKET_HEADER_BYTES
# Minimum interval of rounds, and time per link and direction, so as not to saturate the CPU.
SHORTEST_INTERVAL_S = 0.025
SECONDS_A_DIRECTION = 0.0003
# Share of the slowest link that probes take at most.
PROBES_SHARE = 0.001
# An occasional lost probe is no failure; BFD's usual multiplier (RFC 5880, section 6.8.1).
LOST_PROBES = 3
# Rounds until a gray failure is found that begins right after a round.
DETECTION_ROUNDS = LOST_PROBES + 1


def probe_interval_s(topology: Topology) -> float:
    """Time between two probes of one direction of a link.

    On slow links it grows as transfers do, and with it the time until a gray failure is found.
    The nominal rates count: a degraded link is probed as often as before.
    """
    by_rate_s = PROBE_BYTES * 8 / (PROBES_SHARE * topology.slowest_bps)
    by_directions_s = 2 * len(topology.links) * SECONDS_A_DIRECTION
    return max(SHORTEST_INTERVAL_S, by_directions_s, by_rate_s)


def longest_detection_s(topology: Topology) -> float:
    """The longest time until a gray failure is found."""
    return DETECTION_ROUNDS * probe_interval_s(topology)
