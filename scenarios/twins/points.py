"""The points of the paper's figures that are measured, each a scenario with changes."""

from dataclasses import dataclass

from model.fabric.platforms import PLATFORMS, Platform

GPUS = 16
# Domain sizes of figure 8 with 16 GPUs; a fabric has at least two domains.
DOMAIN_SIZES = (1, 2, 4, 8)
# The rate of an emulated NIC: with the fastest HB domain, 16 GPUs are no load for two cores.
NIC_BPS = 10e6
FIG8, ALL_TO_ALL = "fig8", "section-iv-b"


@dataclass(frozen=True)
class Twin:
    """A scenario of the library with changes (`KEY=VALUE`), and its place in a figure."""

    figure: str
    place: str
    scenario: str
    changes: tuple[str, ...]


def _of_domain_size(size: int) -> Twin:
    shape = (f"fabric.domains={GPUS // size}", f"fabric.domain_size={size}")
    return Twin(FIG8, f"{size}", "paper-fig8", shape)


def _of_platform(platform: Platform) -> Twin:
    scale = platform.nic_rate_bps / NIC_BPS
    rates = (f"fabric.platform={platform.name}", f"fabric.bandwidth_scale={scale:g}")
    return Twin(ALL_TO_ALL, platform.name, "paper-all-to-all", rates)


TWINS = (
    *(_of_domain_size(size) for size in DOMAIN_SIZES),
    *(_of_platform(platform) for platform in PLATFORMS.values()),
)
