"""What a fabric is to be: the specification that a scenario resolves to."""

from dataclasses import dataclass
from enum import StrEnum


class FabricKind(StrEnum):
    """The two networks that the rail-only paper compares (arXiv 2307.12169, figure 1)."""

    RAIL_ONLY = "rail-only"
    RAIL_OPTIMIZED = "rail-optimized"


@dataclass(frozen=True)
class FabricSpec:
    """A fabric of `domains` HB domains with `domain_size` GPUs each.

    Rates are those of the real platform, in bit/s per direction; the emulated ones are smaller
    by `bandwidth_scale`. `spines` and `oversubscription` matter to rail-optimized fabrics only:
    the uplinks of a rail switch carry the sum of its NIC links, divided by `oversubscription`.
    `seed` turns the choice of spines, reproducibly.
    """

    kind: FabricKind
    domains: int
    domain_size: int
    platform: str
    hb_rate_bps: int
    nic_rate_bps: int
    bandwidth_scale: float
    spines: int
    oversubscription: float = 1.0
    seed: int = 0

    @property
    def gpus(self) -> int:
        """The number of GPUs, N."""
        return self.domains * self.domain_size

    @property
    def emulated_hb_bps(self) -> float:
        """The rate of an emulated HB link, in bit/s."""
        return self.hb_rate_bps / self.bandwidth_scale

    @property
    def emulated_nic_bps(self) -> float:
        """The rate of an emulated NIC link, in bit/s."""
        return self.nic_rate_bps / self.bandwidth_scale

    @property
    def emulated_uplink_bps(self) -> float:
        """The rate of one emulated uplink from a rail switch to a spine switch, in bit/s."""
        downlinks_bps = self.domains * self.emulated_nic_bps
        return downlinks_bps / (self.spines * self.oversubscription)
