"""The platforms that Railbed knows, with bandwidths per GPU and direction."""

from dataclasses import dataclass

GBIT = 1_000_000_000


@dataclass(frozen=True)
class Platform:
    """Bandwidths of a GPU in bit/s per direction: to its HB domain (C_F), and of its NIC (C_S).

    An HB domain has `domain_size` GPUs.
    """

    name: str
    hb_rate_bps: int
    nic_rate_bps: int
    domain_size: int


# Those of arXiv 2307.12169, section II-A. DGX A100: 600 GB/s bidirectional NVLink 3 and HDR
# InfiniBand.
PLATFORMS = {
    platform.name: platform
    for platform in (
        Platform("dgx-a100", 2400 * GBIT, 200 * GBIT, 8),
        Platform("dgx-h100", 3600 * GBIT, 400 * GBIT, 8),
        Platform("mi300x", 3600 * GBIT, 400 * GBIT, 8),
        Platform("gh200", 3600 * GBIT, 400 * GBIT, 256),
        Platform("gb200-nvl72", 7200 * GBIT, 400 * GBIT, 72),
    )
}
