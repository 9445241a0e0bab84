"""Our values of the claims of sections II to V: traffic, utilization, cost and power."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from model.fabric.network_cost import networks
from model.fabric.spec import PLATFORMS
from model.training.job import cluster_of
from model.training.strategy import Strategy
from model.training.traffic import Dimension, Traffic, traffic
from scenarios.format.prices import load_prices
from scenarios.format.training import evaluated, load_configuration
from studies.paper import Finding, published

DOMAIN_SIZE = 256
# Table 2's sizes and radices.
GPUS, RADICES = (32768, 65536), (64, 128, 256)
FIG2_MODELS = ("gpt-146b", "gpt-310b", "gpt-530b", "gpt-1t")
GIGA = 1e9
# Figure 4: 16 domains of 256 GPUs, GPT-1T with tensor 8 and data 64 = 32 x 2, so pipeline 8.
GH200_GPUS = 4096
GH200_STRATEGY = Strategy(
    tensor=8,
    pipeline=8,
    data=64,
    interleave=1,
    microbatch=1,
    tensor_inside=8,
    pipeline_inside=1,
    data_inside=32,
)


@cache
def shipped_traffic(name: str) -> Traffic:
    """The traffic of a shipped configuration with its own strategy."""
    configuration = load_configuration(Path(name))
    return traffic(configuration.job, evaluated(name, configuration).strategy)


@cache
def gh200_traffic() -> Traffic:
    """The traffic of GPT-1T on 16 GH200 (figure 4)."""
    job = load_configuration(Path("gpt-1t")).job
    job = replace(job, cluster=cluster_of("gh200", GH200_GPUS))
    return traffic(job, GH200_STRATEGY)


def _share(traffic: Traffic, dimension: Dimension) -> float:
    return 100 * traffic.flows[dimension].total / traffic.every.total


def _tensor_share() -> Finding:
    shares = {name: _share(shipped_traffic(name), Dimension.TENSOR) for name in FIG2_MODELS}
    listed = ", ".join(f"{name} {share:.1f}" for name, share in shares.items())
    return Finding((min(shares.values()),), f"the least of {listed}")


def _idle_pairs() -> Finding:
    idle = {
        name: 100 * (1 - traffic.pairs_with_traffic(*Dimension) / traffic.pairs)
        for name in FIG2_MODELS
        for traffic in [shipped_traffic(name)]
    }
    listed = ", ".join(f"{name} {share:.2f}" for name, share in idle.items())
    return Finding((min(idle.values()),), f"the least of {listed}")


def _tensor_pairs() -> Finding:
    shares = {
        name: 100 * traffic.pairs_with_traffic(Dimension.TENSOR) / traffic.pairs
        for name in FIG2_MODELS
        for traffic in [shipped_traffic(name)]
    }
    listed = ", ".join(f"{name} {share:.3f}" for name, share in shares.items())
    note = f"GPT-1T; a ring has one pair a GPU, so the share falls with the GPUs: {listed}"
    return Finding((shares["gpt-1t"],), note)


def _hb_pair() -> Finding:
    traffic = shipped_traffic("gpt-1t")
    ring = traffic.flows[Dimension.TENSOR].total / traffic.gpus / GIGA
    note = (
        f"counted as a ring, each GPU sends {ring:.0f} GB to its one neighbour (with full "
        f"recomputation; {ring * 2 / 3:.0f} GB without). Spread over the 7 peers of the domain and "
        f"counted in both directions, a pair has {2 * ring / 7:.0f} GB, which is the paper's value"
    )
    return Finding((ring,), note)


def _nic_pair() -> Finding:
    traffic = shipped_traffic("gpt-1t")
    each = traffic.flows[Dimension.DATA].total / traffic.gpus / GIGA
    pipeline = traffic.flows[Dimension.PIPELINE].total / traffic.gpus / 2 / GIGA
    return Finding((each,), f"gradients; the pipeline has {pipeline:.1f} GB in each direction")


def _cross_rail() -> Finding:
    return Finding((shipped_traffic("gpt-1t").cross_rail_bytes(),))


def _hb_share() -> Finding:
    traffic = gh200_traffic()
    flows = traffic.flows[Dimension.DATA]
    inside = flows.source // traffic.domain_size == flows.destination // traffic.domain_size
    return Finding((100 * float(flows.bytes[inside].sum()) / flows.total,))


def _data_nic_share() -> Finding:
    traffic = gh200_traffic()
    flows = traffic.flows[Dimension.DATA]
    across = flows.source // traffic.domain_size != flows.destination // traffic.domain_size
    by_nic = float(flows.bytes[across].sum())
    batch = load_configuration(Path("gpt-1t")).batch
    others = (traffic.every.total - flows.total) / batch
    needed = (by_nic / 0.008 - flows.total) / others
    note = (
        f"with MegatronLM's batch of {batch}; the paper gives none here. Gradients do not grow "
        f"with the batch, all else does: the share is 0.8 % at {needed:.0f} sequences"
    )
    return Finding((100 * by_nic / traffic.every.total,), note)


def _all_to_all_share() -> Finding:
    traffic = shipped_traffic("moe-1.3b")
    experts, data = (traffic.flows[one].total for one in (Dimension.EXPERT, Dimension.DATA))
    configuration = load_configuration(Path("moe-1.3b"))
    model = configuration.transformer
    untied = data * (1 + model.vocabulary * model.hidden / model.shared_parameters)
    note = (
        "16-bit gradients of all parameters outside experts, with one embedding for input and "
        f"logits; with two embeddings {100 * experts / (experts + untied):.1f} %"
    )
    return Finding((100 * experts / (experts + data),), note)


def _slowdown(platform: str) -> Finding:
    rates = PLATFORMS[platform]
    limit = 100 * rates.nic_rate_bps / rates.hb_rate_bps
    return Finding((limit,), "C_S/C_F, the limit for many domains; the paper prints 8.2 and 11.2")


def _saved(key: str, gpus: int, radix: int) -> float:
    return networks(gpus, radix, DOMAIN_SIZE, load_prices().prices)["saved"][key]


def _least_and_most(key: str, sizes: tuple[int, ...], unit: float = 1.0) -> tuple[float, float]:
    """The least and the largest saving among sizes and radices."""
    savings = [_saved(key, gpus, radix) / unit for gpus in sizes for radix in RADICES]
    return min(savings), max(savings)


def _power() -> str:
    prices = load_prices().prices
    return (
        f"{prices.port_watts:g} W a port, {prices.transceiver_watts:g} W a transceiver; "
        "the paper's powers are not published"
    )


def modeled_hfu(model: str) -> float:
    """Our HFU of a model of arXiv 2205.05198, in percent."""
    name = f"korthikanti-{model.lower()}"
    return 100 * evaluated(name, load_configuration(Path(name))).hfu


def published_hfu() -> dict[str, float]:
    """The published HFU of each model of arXiv 2205.05198, in percent."""
    return {row["model"]: float(row["hfu_percent"]) for row in published("selective_recompute")}


def _error(model: str) -> Finding:
    ours, theirs = modeled_hfu(model), published_hfu()[model]
    note = f"our HFU is {ours:.1f} %, the published one {theirs:.1f} %; the value is an error"
    return Finding((abs(ours - theirs),), note)


VALUES: dict[str, Callable[[], Finding]] = {
    "fig2-tp-share": _tensor_share,
    "fig2-idle-pairs": _idle_pairs,
    "fig2-tp-pairs": _tensor_pairs,
    "fig3-hb-pair": _hb_pair,
    "fig3-nic-pair": _nic_pair,
    "fig3-cross-rail": _cross_rail,
    "fig4-hb-share": _hb_share,
    "fig4-dp-nic-share": _data_nic_share,
    "fig5-alltoall-share": _all_to_all_share,
    "a2a-a100": lambda: _slowdown("dgx-a100"),
    "a2a-h100": lambda: _slowdown("dgx-h100"),
    "fig7-1t": lambda: _error("1T"),
    "fig7-22b": lambda: _error("22B"),
    "table2-cost": lambda: Finding(_least_and_most("usd_percent", (32768,))),
    "table2-cost-usd": lambda: Finding(_least_and_most("usd", (65536,), 1e6)),
    "table2-power": lambda: Finding(_least_and_most("watts_percent", (32768,)), _power()),
    "table2-power-mw": lambda: Finding(_least_and_most("watts", GPUS, 1e6), _power()),
    "table2-prices": lambda: Finding(
        (load_prices().prices.transceiver_usd, load_prices().prices.port_usd),
        "the paper's prices, taken as they are",
    ),
    "table2-power-port": lambda: Finding(
        (load_prices().prices.port_watts,),
        load_prices().port_watts.source,
    ),
    "table2-power-transceiver": lambda: Finding(
        (load_prices().prices.transceiver_watts,),
        load_prices().transceiver_watts.source,
    ),
}
