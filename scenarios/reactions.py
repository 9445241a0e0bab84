"""What a job can do about a fault (rail-only paper, section IV-C)."""

from enum import StrEnum


class Reaction(StrEnum):
    """What a job does when something has failed."""

    REROUTE = "reroute"
    RESTART = "abort-and-restart"
    SPARE_DOMAIN = "spare-domain"
    SPARE_GPU = "spare-gpu"
    SPARE_RAIL_SWITCH = "spare-rail-switch"
    SWAP_GROUP = "swap-group"
    REMOTE_GPU = "remote-gpu"
