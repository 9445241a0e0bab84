"""The platforms that Railbed knows, with bandwidths per GPU and direction."""

from dataclasses import dataclass

GBIT = 1_000_000_000


@dataclass(frozen=True)
class Platform:
    """Bandwidths of a GPU in bit/s per direction: to its HB domain (C_F), and of its NIC (C_S)."""

    name: str
    hb_rate_bps: int
    nic_rate_bps: int


# Those of arXiv 2307.12169, section II-A. DGX A100: 600 GB/s bidirectional NVLink 3 and HDR
# InfiniBand.
PLATFORMS = {
    platform.name: platform
    for platform in (
        Platform("dgx-a100", 2400 * GBIT, 200 * GBIT),
        Platform("dgx-h100", 3600 * GBIT, 400 * GBIT),
        Platform("mi300x", 3600 * GBIT, 400 * GBIT),
        Platform("gh200", 3600 * GBIT, 400 * GBIT),
        Platform("gb200-nvl72", 7200 * GBIT, 400 * GBIT),
    )
}
