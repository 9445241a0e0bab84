"""The platforms that the rail-only paper names, with bandwidths per GPU and direction."""

from dataclasses import dataclass

GBIT = 1_000_000_000


@dataclass(frozen=True)
class Platform:
    """Bandwidths of a GPU in bit/s per direction: to its HB domain (C_F), and of its NIC (C_S)."""

    name: str
    domain_size: int
    hb_rate_bps: int
    nic_rate_bps: int


# arXiv 2307.12169, section II-A; DGX A100: 600 GB/s bidirectional NVLink 3 and HDR InfiniBand.
PLATFORMS = {
    platform.name: platform
    for platform in (
        Platform("dgx-a100", 8, 2400 * GBIT, 200 * GBIT),
        Platform("dgx-h100", 8, 3600 * GBIT, 400 * GBIT),
        Platform("mi300x", 8, 3600 * GBIT, 400 * GBIT),
        Platform("gh200", 256, 3600 * GBIT, 400 * GBIT),
        Platform("gb200-nvl72", 72, 7200 * GBIT, 400 * GBIT),
    )
}
