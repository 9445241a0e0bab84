"""Iterations on paper, held against published figures, and Calculon's; nothing is fitted."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from linux.files.program_files import rows_of
from model.training.iteration import Evaluation, evaluate
from model.training.job import PRODUCT_EFFICIENCY, Cluster, Job
from model.training.layer import BACKWARD, again_s, forward_s
from model.training.search import best
from model.training.strategy import ANY, Strategy, Wish, stage_layers
from model.training.transformer import Recomputation
from scenarios.format.training import Configuration, evaluated, load_configuration
from studies.benchmarks.rows import Row
from studies.paper import published

# DeepSeek-V3: arXiv 2412.19437, table 1: 14.8 T tokens in 2.664 million hours of its H800s.
TRAINED_TOKENS, GPU_HOURS = 14.8e12, 2.664e6
SECONDS_PER_HOUR = 3600
# Where published figures are from.
MEGATRON_H100, LLAMA_H100, DEEPSEEK_H800 = "Megatron-LM, H100", "Llama 3, H100", "DeepSeek-V3, H800"
MEGATRON_A100, SELECTIVE, FULLY = "MegatronLM, A100", "selective, A100", "full, A100"
SOURCES = {
    MEGATRON_H100: "github.com/NVIDIA/Megatron-LM, images/model_table.png, 2024-07-15",
    LLAMA_H100: "arXiv 2407.21783, table 4",
    DEEPSEEK_H800: "arXiv 2412.19437, table 1",
    MEGATRON_A100: "arXiv 2104.04473, table 1",
    SELECTIVE: "arXiv 2205.05198, tables 3 and 5",
    FULLY: "arXiv 2205.05198, table 5",
}
# GPT-530B on 2520 A100 without overlap and offload, by Calculon (arXiv 2211.03122) of 2024-02-22
# with its systems/a100_80g.json: the fastest that it finds, and its seconds by cause.
CALCULON = Path(__file__).parent / "calculon.csv"
CALCULONS_STRATEGY = Wish(tensor=4, pipeline=21, interleave=5, microbatch=1)
FULL = {"recomputation": Recomputation.FULL, "sequence_parallel": False}


def throughput(_store: Path) -> Iterator[Row]:
    """Yield a row for each published figure: seconds of an iteration, or percent of the peak."""
    yield from map(_megatron_h100, published("megatron_h100"))
    yield from map(_llama, published("llama_3_405b"))
    yield _deepseek()
    yield from map(_megatron_a100, published("megatron_configs"))
    for against, changes, key in ((SELECTIVE, {}, "iteration_s"), (FULLY, FULL, "full_s")):
        for row in published("selective_recompute"):
            ours = _modeled(row["configuration"], changes)
            yield _held(against, row["model"], ours, "s", float(row[key]), ours.iteration_s)


def _megatron_h100(row: dict[str, str]) -> Row:
    """Gradients and weights overlap; interleaving and microbatch, not published, are searched."""
    keys = ("heads", "hidden", "layers", "gpus", "batch")
    given: dict[str, Any] = {key: int(row[key]) for key in keys}
    configuration = Configuration(
        **given,
        sequence=4096,
        vocabulary=131072,
        platform="dgx-h100",
        recomputation=Recomputation.SELECTIVE,
        fused_attention=True,
        overlap=True,
        strategy=_degrees(row),
    )
    model = f"{row['params_billion']}B"
    ours = evaluated(model, configuration)
    published_mfu = float(row["mfu_percent"])
    return _held(MEGATRON_H100, model, ours, "MFU, %", published_mfu, 100 * ours.mfu)


def _degrees(row: dict[str, str]) -> Any:
    return {key: int(row[f"{key}_parallel"]) for key in ("tensor", "pipeline")}


def _llama(row: dict[str, str]) -> Row:
    ours, published_mfu = llama(row), float(row["mfu_percent"])
    return _held(LLAMA_H100, "405B", ours, "MFU, %", published_mfu, 100 * ours.mfu)


def llama(row: dict[str, str]) -> Evaluation:
    """Llama 3 405B as published: tensor-parallel ranks fill a domain (section 3.3.2)."""
    given = {key: int(row[key]) for key in ("gpus", "batch", "sequence")}
    job = load_configuration(Path("llama-3-405b"), given).job
    tensor, pipeline = 8, 16
    strategy = Strategy(
        tensor,
        pipeline,
        data=job.cluster.gpus // (tensor * pipeline),
        interleave=8,
        microbatch=1,
        tensor_inside=tensor,
        pipeline_inside=1,
        data_inside=1,
        context=int(row["context_parallel"]),
    )
    return evaluate(job, strategy)


def _deepseek() -> Row:
    ours = _modeled("deepseek-v3", {"platform": "h800", "precision": "fp8"})
    job = ours.job
    of_all = job.batch * job.transformer.sequence / TRAINED_TOKENS
    published_s = of_all * GPU_HOURS * SECONDS_PER_HOUR / job.cluster.gpus
    return _held(DEEPSEEK_H800, "671B", ours, "s", published_s, ours.iteration_s)


def _megatron_a100(row: dict[str, str]) -> Row:
    """Full recomputation, which MegatronLM counts; its interleaving and microbatch are 1 here."""
    size = float(row["params_billion"])
    ours = _modeled(f"gpt-{size / 1000:.0f}t" if size > 1000 else f"gpt-{size:.3g}b", {})
    theirs = float(row["percent_of_peak"])
    return _held(MEGATRON_A100, f"{size:g}B", ours, "HFU, %", theirs, 100 * ours.hfu)


def _modeled(name: str, given: dict[str, Any]) -> Evaluation:
    return evaluated(name, load_configuration(Path(name), given))


def _held(
    against: str, model: str, ours: Evaluation, unit: str, theirs: float, modeled: float
) -> Row:
    return {
        "against": against,
        "model": model,
        "gpus": ours.job.cluster.gpus,
        "unit": unit,
        "published": round(theirs, 2),
        "modeled": round(modeled, 2),
        "deviation": modeled / theirs - 1,
        "source": SOURCES[against],
    }


def calculon(_store: Path) -> Iterator[Row]:
    """Yield a row for each term of GPT-530B: Calculon's, ours with its efficiencies, and ours.

    All by its strategy; then ours by our fastest.
    """
    selective = {"recomputation": Recomputation.SELECTIVE, "sequence_parallel": True}
    job = load_configuration(Path("gpt-530b"), selective).job
    like_calculon = replace(job, cluster=_calculons(job.cluster))
    columns = {
        "calculon_s": _theirs(),
        "its_efficiencies_s": _terms(like_calculon, CALCULONS_STRATEGY),
        "its_strategy_s": _terms(job, CALCULONS_STRATEGY),
        "fastest_s": _terms(job, ANY),
    }
    for term in _theirs():
        yield {"term": term, **{name: column[term] for name, column in columns.items()}}
    yield {"term": "iteration", **{name: sum(one.values()) for name, one in columns.items()}}


def _theirs() -> dict[str, float]:
    return {row["term"]: float(row["seconds"]) for row in rows_of(CALCULON)}


def _calculons(cluster: Cluster) -> Cluster:
    """Calculon's A100: shares of the peak for the largest matrices, of NVLink's and NIC's rates."""
    gpu = cluster.accelerator
    faster = replace(gpu, fastest_flops=gpu.peak_flops * 0.95 / PRODUCT_EFFICIENCY)
    return replace(cluster, accelerator=faster, hb=0.65 * 300e9 / 1.5, nic=0.9 * 25e9)


def _terms(job: Job, wish: Wish) -> dict[str, float]:
    """Seconds by cause of the fastest iteration; compute is divided into its parts.

    A strategy that is given need not fit the memory, as Calculon counts less of it.
    """
    found = best(job, wish, must_fit=wish == ANY)
    assert found is not None
    gpu, strategy, terms = found.job.cluster.accelerator, found.strategy, found.terms
    layers = stage_layers(job.transformer.layers, strategy.pipeline)
    layers *= job.batch / (strategy.replicas * strategy.microbatch)
    alone = replace(found.job.cluster, accelerator=replace(gpu, memory_bandwidth=inf))
    once_s = (1 + BACKWARD) * layers * forward_s(found.job, strategy)
    products_s = (1 + BACKWARD) * layers * forward_s(replace(found.job, cluster=alone), strategy)
    again = layers * again_s(found.job, strategy)
    parts = {
        "products": products_s,
        "memory traffic": once_s - products_s,
        "recomputation": again,
        "logits": terms.compute - once_s - again,
    }
    named = ("tensor", "bubble", "pipeline", "data", "optimizer")
    whole: dict[str, Any] = {**parts, **{name: getattr(terms, name) for name in named}}
    return {name: float(seconds) for name, seconds in whole.items()}
