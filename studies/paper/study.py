"""Figures 8 to 10 of the paper: iteration times against domain size, bandwidths and batch.

The paper does not say how many GPUs and sequences figures 8 and 9 have, nor the GPU's speed and
memory: these are the assumptions of a `Setting`.
"""

from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Literal

from model.training.iteration import Evaluation
from model.training.job import Job, cluster_of
from model.training.search import best
from model.training.strategy import ANY, Wish
from model.training.transformer import Recomputation, Transformer
from scenarios.format.training import load_configuration

TBIT, GBIT = 1e12 / 8, 1e9 / 8
# The corners and the middle of the bandwidths that figure 9 varies.
HB_RATES, NIC_RATES = (2.4 * TBIT, 4.8 * TBIT, 9.6 * TBIT), (100 * GBIT, 200 * GBIT, 400 * GBIT)
DOMAIN_SIZES = (8, 256)
BATCHES = (256, 512, 1024, 2048, 4096)
# Those of section II-A; Railbed may know others.
PLATFORM_NAMES = ("dgx-a100", "dgx-h100", "mi300x", "gh200", "gb200-nvl72")
FIG8_MODELS = ("gpt-146b", "gpt-1t")


@dataclass(frozen=True)
class Setting:
    """Values that the paper does not give: GPUs and batch of figures 8 and 9, speed of the machine.

    `compute` and `links` multiply the GPU's FLOP/s and both bandwidths.
    """

    gpus: int = 32768
    batch: int = 4096
    platform: str = "gh200"
    compute: float = 1.0
    links: float = 1.0
    recomputation: Recomputation = Recomputation.SELECTIVE


DEFAULT = Setting()


@cache
def transformer(name: str) -> Transformer:
    """The model of a shipped configuration."""
    return load_configuration(Path(name)).transformer


@cache
def iteration(
    name: str,
    setting: Setting,
    domain_size: int | None = None,
    hb: float | None = None,
    nic: float | None = None,
    wish: Wish = ANY,
) -> Evaluation:
    """An iteration with its best strategy; without a domain size on the ideal network.

    `hb` and `nic` in bytes/s replace the platform's bandwidths; `wish` restricts the strategies.
    """
    known = cluster_of(setting.platform, setting.gpus, domain_size or setting.gpus)
    gpu = known.accelerator
    cluster = replace(
        known,
        hb=setting.links * (hb or known.hb),
        nic=setting.links * (nic or known.nic),
        accelerator=replace(gpu, fastest_flops=setting.compute * gpu.fastest_flops),
    )
    evaluation = best(Job(transformer(name), setting.batch, setting.recomputation, cluster), wish)
    assert evaluation is not None, f"no strategy for {name} with {setting}"
    return evaluation


def slower_than_ideal(name: str, setting: Setting) -> float:
    """Figure 8: percent by which K = 256 takes longer than the ideal network."""
    ours, ideal = (iteration(name, setting, size).iteration_s for size in (256, None))
    return 100 * (ours / ideal - 1)


def faster_by(key: Literal["hb", "nic"], domain_size: int, setting: Setting) -> float:
    """Figure 9: percent that GPT-1T gains by four times a bandwidth, mean over the other one."""
    seconds_s = {
        (hb, nic): iteration("gpt-1t", setting, domain_size, hb, nic).iteration_s
        for hb, nic in product(HB_RATES, NIC_RATES)
    }
    if key == "hb":
        pairs = [((min(HB_RATES), nic), (max(HB_RATES), nic)) for nic in NIC_RATES]
    else:
        pairs = [((hb, min(NIC_RATES)), (hb, max(NIC_RATES))) for hb in HB_RATES]
    return mean(100 * (seconds_s[slow] / seconds_s[fast] - 1) for slow, fast in pairs)


def of_ideal(domain_size: int, batch: int, setting: Setting, wish: Wish = ANY) -> float:
    """Figure 10: performance of GPT-1T in percent of the ideal network's."""
    chosen = replace(setting, batch=batch)
    ours = iteration("gpt-1t", chosen, domain_size, wish=wish)
    return 100 * iteration("gpt-1t", chosen).iteration_s / ours.iteration_s
