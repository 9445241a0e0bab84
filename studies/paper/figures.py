"""The paper's figures, modeled at its scale, as series."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from model.training.traffic import Dimension, Traffic
from results.figures.paper import Bars, Curves, Panel, draw, draw_heat_map
from studies.paper import claimed, claims, study

HEAT_MAPS: dict[str, tuple[str, Callable[[], Traffic]]] = {
    "fig3": ("GPT-1T on DGX A100", lambda: claims.shipped_traffic("gpt-1t")),
    "fig4": ("GPT-1T on 16 GH200", claims.gh200_traffic),
    "fig5": ("MoE-1.3B on 16 DGX A100", lambda: claims.shipped_traffic("moe-1.3b")),
}
# Domain sizes of figure 8; the last is the ideal network.
FIG8_SIZES = tuple(2**power for power in range(3, 16))
FIG10_SIZES = (8, 32, 256)


def draw_figure(name: str, path: Path) -> None:
    """Draw a figure by its name, as PATH.svg and PATH.png."""
    if name in HEAT_MAPS:
        title, traffic = HEAT_MAPS[name]
        draw_heat_map(traffic(), title, path)
    else:
        draw(PANELS[name](), path)


def _fig2a() -> list[Panel]:
    jobs = [claims.shipped_traffic(name) for name in claims.FIG2_MODELS]
    dimensions = (Dimension.TENSOR, Dimension.DATA, Dimension.PIPELINE)
    shares = {one.value: [claims.share(job, one) for job in jobs] for one in dimensions}
    return [Bars("bytes of an iteration", "share of the bytes (%)", claims.FIG2_MODELS, shares)]


def _fig2b() -> list[Panel]:
    jobs = [claims.shipped_traffic(name) for name in claims.FIG2_MODELS]
    shares = {
        "no traffic": [claims.idle_pairs(job) for job in jobs],
        "tensor-parallel traffic": [claims.tensor_pairs(job) for job in jobs],
    }
    return [Bars("pairs of GPUs", "share of the pairs (%)", claims.FIG2_MODELS, shares)]


def _fig7() -> list[Panel]:
    ours, theirs = zip(*claims.utilization().values(), strict=True)
    series = {"published": theirs, "modeled": ours}
    return [Bars("A100, selective recomputation", "HFU (%)", [*claims.utilization()], series)]


def _fig8() -> list[Panel]:
    title = f"{study.DEFAULT.gpus} GPUs, batch {study.DEFAULT.batch}"
    return [
        Curves(
            title,
            "HB domain size K (GPUs)",
            "iteration time (s)",
            FIG8_SIZES,
            {name: [_iteration_s(name, size) for size in FIG8_SIZES]},
        )
        for name in study.FIG8_MODELS
    ]


def _fig9() -> list[Panel]:
    return [
        Curves(
            f"GPT-1T, K = {size}",
            "HB bandwidth (Tbit/s)",
            "iteration time (s)",
            [hb / study.TBIT for hb in study.HB_RATES],
            {
                f"NIC {nic / study.GBIT:.0f} Gbit/s": [
                    study.iteration("gpt-1t", study.DEFAULT, size, hb, nic).iteration_s
                    for hb in study.HB_RATES
                ]
                for nic in study.NIC_RATES
            },
        )
        for size in study.DOMAIN_SIZES
    ]


def _fig10() -> list[Panel]:
    title, batch = f"GPT-1T, {study.DEFAULT.gpus} GPUs", "global batch (sequences)"
    times = {
        f"K = {size}" if size else "ideal": [
            _iteration_s("gpt-1t", size, one) for one in study.BATCHES
        ]
        for size in (*FIG10_SIZES, None)
    }
    relative = {
        f"K = {size}": [study.of_ideal(size, one, study.DEFAULT) for one in study.BATCHES]
        for size in FIG10_SIZES
    }
    return [
        Curves(title, batch, "iteration time (s)", study.BATCHES, times),
        Curves(
            title, batch, "performance (% of ideal)", study.BATCHES, relative, _published_points()
        ),
    ]


def _iteration_s(name: str, domain_size: int | None, batch: int = study.DEFAULT.batch) -> float:
    return study.iteration(name, replace(study.DEFAULT, batch=batch), domain_size).iteration_s


def _published_points() -> dict[str, list[tuple[float, float]]]:
    """Values of figure 10 in the paper's text: performance at the least and the largest batch."""
    ends = (study.BATCHES[0], study.BATCHES[-1])
    return {
        f"paper, K = {size}": list(zip(ends, claimed(f"fig10-k{size}"), strict=True))
        for size in study.DOMAIN_SIZES
    }


PANELS: dict[str, Callable[[], list[Panel]]] = {
    "fig2a": _fig2a,
    "fig2b": _fig2b,
    "fig7": _fig7,
    "fig8": _fig8,
    "fig9": _fig9,
    "fig10": _fig10,
}
