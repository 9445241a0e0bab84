"""The model of training: parameters, FLOPs, memory, time, search; against published figures."""

import json
from dataclasses import fields, replace
from itertools import product
from math import inf
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands.train import train
from model.errors import InputError
from model.fabric.spec import PLATFORMS, FabricKind
from model.training import search
from model.training.iteration import Terms, evaluate, gather_s, iteration, optimizer_s
from model.training.job import ACCELERATORS, Job, cluster_of
from model.training.layer import (
    again_s,
    context_bytes,
    forward_s,
    gpu_parameters,
    held_parameters,
    layer_activations,
    layer_s,
    logits_s,
    memory_bytes,
    optimized_parameters,
    product_flops,
)
from model.training.search import Freedom, best
from model.training.steps import stage_order
from model.training.strategy import (
    ANY,
    Strategy,
    Wish,
    insides,
    strategies,
    used_of_domain,
)
from model.training.transformer import Experts, Latent, Recomputation, Transformer
from scenarios.format.training import (
    SHIPPED,
    GivenStrategy,
    evaluated,
    load_configuration,
    names,
)
from studies.benchmarks.iterations import calculon, llama, throughput
from studies.paper import published

SMALL = Transformer(layers=8, hidden=1024, heads=16, sequence=1024, vocabulary=50000)
MIXTURE = replace(SMALL, experts=Experts(every=2, count=4, top_k=1))
ALL_CHOICES: dict[str, tuple[Any, ...]] = {
    "recomputation": tuple(Recomputation),
    "sequence_parallel": (False, True),
    "sharding": (1, 2, 3),
    "overlap": (False, True),
    "overlap_experts": (False, True),
    "offload": (False, True),
}
PUBLISHED = {row["model"]: row for row in published("selective_recompute")}
MEGATRON = published("megatron_configs")
TRANSFORMERS = st.builds(
    Transformer,
    layers=st.integers(1, 12),
    hidden=st.integers(1, 8).map(lambda n: 512 * n),
    heads=st.sampled_from([4, 6, 8]),
    sequence=st.sampled_from([512, 2048]),
    vocabulary=st.just(51200),
)
JOBS = st.builds(
    Job,
    TRANSFORMERS,
    batch=st.sampled_from([8, 16, 48]),
    recomputation=st.sampled_from(list(Recomputation)),
    cluster=st.builds(
        cluster_of,
        st.sampled_from(["dgx-h100", "dgx-a100"]),
        st.sampled_from([1, 4, 6, 8, 16, 24, 64]),
        st.sampled_from([1, 2, 4, 6, 8, 16]),
    ),
)


def job_of(transformer: Transformer, gpus: int, batch: int, domain_size: int = 8) -> Job:
    return Job(
        transformer, batch, Recomputation.SELECTIVE, cluster_of("dgx-h100", gpus, domain_size)
    )


def configured(name: str) -> Job:
    return load_configuration(Path(name)).job


def test_every_platform_has_its_gpu() -> None:
    assert ACCELERATORS.keys() == PLATFORMS.keys()


def test_a_dgx_h200_is_a_dgx_h100_with_more_and_faster_memory() -> None:
    before, after = (cluster_of(name, 64) for name in ("dgx-h100", "dgx-h200"))
    changed = {"memory_bytes": 141e9, "memory_bandwidth": 4.8e12, "fastest_fp8": 1453.4e12}
    gpu = replace(before.accelerator, **changed)
    assert after == replace(before, accelerator=gpu)
    assert (after.domain_size, after.hb, after.nic) == (8, 450e9, 50e9)


@pytest.mark.parametrize("row", MEGATRON, ids=lambda row: row["params_billion"])
def test_parameters_of_megatron_lm(row: dict[str, str]) -> None:
    found = [configured(name) for name in names() if name.startswith("gpt-")]
    sizes = {round(job.transformer.parameters / 1e9, 1) for job in found}
    assert float(row["params_billion"]) in sizes


@pytest.mark.parametrize("row", MEGATRON, ids=lambda row: row["params_billion"])
def test_shipped_configurations_are_the_published_ones(row: dict[str, str]) -> None:
    ours = [load_configuration(Path(name)) for name in names() if name.startswith("gpt-")]
    keys = ("heads", "hidden", "layers", "gpus", "batch")
    wanted = [int(row[key]) for key in (*keys, "tensor_parallel", "pipeline_parallel")]
    found = [
        [getattr(one, key) for key in keys] + [one.strategy.tensor, one.strategy.pipeline]
        for one in ours
    ]
    assert wanted in found


@pytest.mark.parametrize("model", PUBLISHED)
def test_published_times_give_the_published_utilization(model: str) -> None:
    row = PUBLISHED[model]
    job = configured(row["configuration"])
    peak = float(row["iteration_s"]) * job.cluster.gpus * job.cluster.accelerator.peak_flops
    mfu = 100 * job.transformer.model_flops(job.batch) / peak
    hfu = 100 * job.transformer.hardware_flops(job.batch, job.recomputation) / peak
    assert mfu == pytest.approx(float(row["mfu_percent"]), abs=0.4)
    assert hfu == pytest.approx(float(row["hfu_percent"]), abs=0.4)


@pytest.mark.parametrize("model", PUBLISHED)
def test_modeled_utilization_is_within_4_points(model: str) -> None:
    configuration = load_configuration(Path(PUBLISHED[model]["configuration"]))
    found = evaluated(model, configuration)
    assert 100 * found.hfu == pytest.approx(float(PUBLISHED[model]["hfu_percent"]), abs=4)


def test_published_iteration_times_are_met() -> None:
    """Selective and full recomputation; without sequence parallelism where all is recomputed."""
    errors = []
    for row in PUBLISHED.values():
        configuration = load_configuration(Path(row["configuration"]))
        full = {"recomputation": Recomputation.FULL, "sequence_parallel": False}
        for changes, key in (({}, "iteration_s"), (full, "full_s")):
            found = evaluated(row["model"], configuration.model_copy(update=changes))
            errors.append(abs(found.iteration_s / float(row[key]) - 1))
    assert np.mean(errors) < 0.04
    assert max(errors) < 0.08


@pytest.mark.parametrize("row", published("llama_3_405b"), ids=lambda row: row["mfu_percent"])
def test_llama_3s_utilization_is_within_2_points(row: dict[str, str]) -> None:
    """On H100, though the one constant is from a layer on A100.

    Of 131072 tokens, many documents load GPUs unequally, which the model leaves out.
    """
    within = 2 if row["context_parallel"] == "1" else 7
    assert 100 * llama(row).mfu == pytest.approx(float(row["mfu_percent"]), abs=within)


@pytest.mark.parametrize("row", published("published_models"), ids=lambda row: row["configuration"])
def test_parameters_of_todays_models(row: dict[str, str]) -> None:
    model = configured(row["configuration"]).transformer
    assert model.parameters == pytest.approx(1e9 * float(row["params_billion"]), rel=0.01)
    if row["active_billion"]:
        assert model.active_parameters == pytest.approx(
            1e9 * float(row["active_billion"]), rel=0.02
        )


@pytest.mark.parametrize("row", MEGATRON, ids=lambda row: row["params_billion"])
def test_megatron_lms_utilization_is_within_4_points(row: dict[str, str]) -> None:
    """Independent of the one constant: other sizes, other degrees, no sequence parallelism."""
    size = float(row["params_billion"])
    name = next(
        name
        for name in names()
        if name.startswith("gpt-")
        and configured(name).transformer.parameters == pytest.approx(1e9 * size, rel=0.05)
    )
    modeled = 100 * evaluated(name, load_configuration(Path(name))).hfu
    assert modeled == pytest.approx(float(row["percent_of_peak"]), abs=4)


def test_a_layer_of_the_22b_model_takes_its_measured_time() -> None:
    """20.3 ms: arXiv 2205.05198, table 4, the one figure that a constant is derived from."""
    job = configured("korthikanti-22b")
    found = evaluate(job, strategies(job, Wish(8, 1, 1, 4)).at(0))
    tensor_s = float(found.terms.tensor) / job.transformer.layers
    assert float(layer_s(job, found.strategy)) + tensor_s == pytest.approx(20.3e-3, rel=0.005)


def test_the_difference_from_calculon_is_the_products_efficiency() -> None:
    """Term by term: with its efficiencies the same strategy takes no longer than its 31.9 s."""
    rows = {row.pop("term"): row for row in calculon(Path())}
    whole = rows.pop("iteration")
    for column, seconds in whole.items():
        assert seconds == pytest.approx(sum(row[column] for row in rows.values()))
    assert whole["calculon_s"] == pytest.approx(31.9, abs=0.1)
    assert whole["its_efficiencies_s"] <= 31.9
    products = rows["products"]
    assert products["its_efficiencies_s"] == pytest.approx(products["calculon_s"], rel=0.02)
    slower = products["fastest_s"] - products["calculon_s"]
    assert slower > whole["fastest_s"] - whole["calculon_s"] > 0


def test_published_throughputs_and_their_errors() -> None:
    """On H100, MegatronLM's smallest models and the longest sequences are too fast."""
    rows: dict[str, list[float]] = {}
    for row in throughput(Path()):
        assert row["source"]
        rows.setdefault(row["against"], []).append(row["deviation"])
    errors = {name: np.abs(of).max() for name, of in rows.items()}
    assert {name for name, error in errors.items() if error > 0.09} == {
        "Megatron-LM, H100",
        "Llama 3, H100",
    }
    assert max(rows["Megatron-LM, H100"]) == rows["Megatron-LM, H100"][0] < 0.19
    assert max(rows["Megatron-LM, H100"][2:]) < 0.09
    assert max(map(abs, rows["Llama 3, H100"][:2])) < 0.03
    assert abs(rows["DeepSeek-V3, H800"][0]) < 0.08


def test_fp8_computes_products_with_weights_at_its_own_peak() -> None:
    job, strategy = job_of(MIXTURE, 16, 64), Strategy(1, 1, 16, 1, 1, 1, 1, 8, 4)
    before, after = (evaluate(one, strategy) for one in (job, replace(job, fp8=True)))
    attention = 3 * MIXTURE.layers * MIXTURE.attention_flops(4)
    weights = 3 * MIXTURE.layers * MIXTURE.layer_flops(4) - attention
    gpu = job.cluster.accelerator
    saved_s = weights * (1 - gpu.fastest_flops / 1402.6e12) / gpu.product_flops
    assert before.terms.compute - after.terms.compute == pytest.approx(saved_s)
    assert after.terms.expert == pytest.approx(0.75 * before.terms.expert)
    assert after.terms.data == before.terms.data
    assert after.memory_bytes < before.memory_bytes
    with pytest.raises(InputError, match="precision: must be bf16, as dgx-a100 has no FP8"):
        load_configuration(Path("gpt-146b"), {"precision": "fp8"})


@given(JOBS, st.lists(st.sampled_from(Freedom), min_size=1, max_size=3, unique=True))
@settings(max_examples=30, deadline=None)
def test_more_freedom_is_never_slower(job: Job, freedoms: list[Freedom]) -> None:
    bound, free = best(job), best(job, freedoms=freedoms)
    if bound is not None:
        assert free is not None
        assert free.iteration_s <= bound.iteration_s * (1 + 1e-9)


@given(JOBS)
@settings(max_examples=30, deadline=None)
def test_sharding_and_offload_need_less_memory_and_more_time(job: Job) -> None:
    every = strategies(job)
    ways_ = [replace(job, sharding=stage) for stage in (1, 2, 3)]
    memory, times = (
        [np.asarray(of(one, every)) for one in ways_]
        for of in (memory_bytes, lambda job, every: iteration(job, every).total)
    )
    for less, more in zip(memory[1:], memory, strict=False):
        assert (less <= more).all()
    for longer, shorter in zip(times[1:], times, strict=False):
        assert (longer >= shorter * (1 - 1e-9)).all()
    away = replace(job, offload=True)
    assert (memory_bytes(away, every) < memory[0]).all()
    assert (iteration(away, every).total >= times[0]).all()


@given(JOBS)
@settings(max_examples=30, deadline=None)
def test_overlap_hides_no_more_than_the_traffic(job: Job) -> None:
    every = strategies(job)
    plain, hidden = (iteration(replace(job, overlap=on), every) for on in (False, True))
    assert (hidden.data <= plain.data).all()
    assert (hidden.data * job.transformer.layers >= plain.data * (1 - 1e-9)).all()
    assert hidden.total - hidden.data == pytest.approx(plain.total - plain.data)


@given(JOBS, st.sampled_from([1, 2, 3]))
@settings(max_examples=30, deadline=None)
def test_faster_products_are_never_slower(job: Job, stage: int) -> None:
    """Compute hides all-to-alls, or gradients and weights, but not both at once."""
    model = replace(job.transformer, experts=Experts(every=1, count=16, top_k=8, width=256))
    job = replace(job, transformer=model, overlap=True, overlap_experts=True, sharding=stage)
    gpu = job.cluster.accelerator
    faster = replace(gpu, fastest_flops=2 * gpu.fastest_flops)
    other = replace(job, cluster=replace(job.cluster, accelerator=faster))
    every = strategies(job)
    before, after = (iteration(one, every).total for one in (job, other))
    assert (after <= before * (1 + 1e-9)).all()


def test_faster_products_are_never_slower_where_stages_have_unequal_experts() -> None:
    """What hides all-to-alls hides no weights, in the stage with the most layers of experts."""
    experts = Experts(every=2, count=16, top_k=2, dense_layers=3)
    model = Transformer(11, 1024, 4, 4096, 1000, experts, gated=True, tied=False)
    job = Job(model, 48, Recomputation.NONE, cluster_of("gb200-nvl72", 64, 4), fused_attention=True)
    job = replace(job, sharding=3, overlap=True, overlap_experts=True)
    gpu = job.cluster.accelerator
    faster = replace(gpu, fastest_flops=1.7 * gpu.fastest_flops)
    other = replace(job, cluster=replace(job.cluster, accelerator=faster))
    every = strategies(job, replace(ANY, context=None))
    before, after = (iteration(one, every).total for one in (job, other))
    assert (after <= before * (1 + 1e-9)).all()


@pytest.mark.parametrize(("stage", "more"), [(1, 3 / 2), (2, 3 / 2), (3, 4 / 3)])
def test_wide_gradients_are_reduced_by_twice_the_bytes(stage: int, more: float) -> None:
    """Weights are gathered as before: once, or with stage 3 twice for each microbatch."""
    job, strategy = job_of(SMALL, 16, 16), Strategy(1, 1, 16, 1, 1, 1, 1, 8)
    plain, wide = (
        iteration(replace(job, sharding=stage, wide_gradients=on), strategy).data
        for on in (False, True)
    )
    assert wide == pytest.approx(more * plain)


def test_context_parallel_ranks_share_a_sequence() -> None:
    """Half the tokens, activations and products of a GPU; as many gradients."""
    job = job_of(SMALL, 8, 16)
    alone, shared = Strategy(1, 1, 8, 1, 2, 1, 1, 8), Strategy(1, 1, 8, 1, 2, 1, 1, 8, 1, 2)
    before, after = (evaluate(job, one) for one in (alone, shared))
    assert layer_s(job, shared) == pytest.approx(layer_s(job, alone) / 2)
    assert after.terms.compute == pytest.approx(before.terms.compute)
    assert after.terms.data == before.terms.data
    assert after.terms.context > before.terms.context == 0
    assert after.memory_bytes < before.memory_bytes


@pytest.mark.parametrize(("heads", "ranks"), [(None, 8), (8, 8), (2, 2), (1, 1)])
def test_tensor_parallel_ranks_split_keys_and_values_by_whole_heads(
    heads: int | None, ranks: int
) -> None:
    model = replace(SMALL, key_value_heads=heads)
    whole, split = (context_bytes(model, Strategy(t, 1, 2, 1, 1, t, 1, 1, 1, 2)) for t in (1, 8))
    assert split == whole / ranks


def test_all_to_alls_hide_behind_another_microbatch() -> None:
    job, strategy = job_of(MIXTURE, 16, 64, domain_size=2), Strategy(1, 1, 16, 1, 1, 1, 1, 2, 4)
    hidden = replace(job, overlap_experts=True)
    whole, exposed = (float(iteration(one, strategy).expert) for one in (job, hidden))
    hideable = min(whole, 4 * 4 * float(layer_s(hidden, strategy)))
    # Of four microbatches, but not the first one's forward pass and the last one's backward pass.
    assert exposed == pytest.approx(whole - 3 / 4 * hideable)
    alone = replace(strategy, microbatch=4)
    assert iteration(hidden, alone).expert == iteration(job, alone).expert > 0
    assert product_flops(hidden, strategy) == pytest.approx(
        product_flops(job, strategy) * 112 / 132
    )


def pipeline_s(stages_s: list[tuple[float, float]], microbatches: int) -> float:
    """When a pipeline ends whose stages take so long for a forward and for a backward pass."""
    orders = [stage_order(stage, len(stages_s), microbatches) for stage in range(len(stages_s))]
    ends_s: dict[tuple[int, Any], float] = {}
    while any(orders):
        for stage, order in enumerate(orders):
            before = stage - 1 if order and order[0].forward else stage + 1
            is_first = before in (-1, len(orders))
            if order and (is_first or (before, order[0]) in ends_s):
                one = order.pop(0)
                free_s = max((end for (at, _), end in ends_s.items() if at == stage), default=0.0)
                starts_s = max(free_s, 0.0 if is_first else ends_s[before, one])
                ends_s[stage, one] = starts_s + stages_s[stage][not one.forward]
    return max(ends_s.values())


@given(st.integers(1, 5), st.integers(5, 17), st.integers(1, 6), st.integers(1, 200_000))
@settings(max_examples=60, deadline=None)
def test_the_bubble_is_a_microbatch_in_all_other_stages(
    stages: int, layers: int, microbatches: int, vocabulary: int
) -> None:
    """Exactly if the last stage is the slowest, else at most: the slowest one waits for less."""
    model = replace(SMALL, layers=layers, vocabulary=vocabulary)
    job = job_of(model, stages, microbatches, domain_size=1)
    strategy = Strategy(1, stages, 1, 1, 1, 1, 1, 1)
    more = layers % stages
    sizes = [layers // stages + (stage < more) for stage in range(stages)]
    forward_pass_s, both_s = float(forward_s(job, strategy)), float(layer_s(job, strategy))
    logits = float(logits_s(job, strategy))
    times_s = [(size * forward_pass_s, size * (both_s - forward_pass_s)) for size in sizes]
    times_s[-1] = times_s[-1][0] + logits / 3, times_s[-1][1] + 2 / 3 * logits
    terms = iteration(job, strategy)
    found = float(terms.compute + terms.bubble)
    simulated, slowest_s = pipeline_s(times_s, microbatches), max(map(sum, times_s))
    assert simulated <= found * (1 + 1e-9)
    assert found <= (microbatches + stages - 1) * slowest_s * (1 + 1e-9)
    if sum(times_s[-1]) == slowest_s:
        assert found == pytest.approx(simulated, rel=1e-9)


def test_no_other_microbatch_hides_all_to_alls_in_the_bubble() -> None:
    """1F1B's bubble is (p-1)(F+B), with F and B alone: DeepSeek-V3, arXiv 2412.19437, table 2."""
    job, strategy = job_of(MIXTURE, 32, 64, domain_size=2), Strategy(1, 2, 16, 1, 1, 1, 1, 2, 4)
    hidden = replace(job, overlap_experts=True)
    before, after = iteration(job, strategy), iteration(hidden, strategy)
    assert after.expert < before.expert
    slower_s = MIXTURE.layers / 2 * float(layer_s(hidden, strategy) - layer_s(job, strategy))
    assert after.bubble - before.bubble == pytest.approx(slower_s)


def test_all_microbatches_wait_for_the_stage_with_the_most_experts() -> None:
    """Of 3 layers of experts among 8, one of two stages has 2."""
    model = replace(SMALL, experts=Experts(every=2, count=4, top_k=1, dense_layers=2))
    job = job_of(model, 32, 64, domain_size=2)
    alone, split = Strategy(1, 1, 32, 1, 2, 1, 1, 2, 4), Strategy(1, 2, 16, 1, 2, 1, 1, 2, 4)
    layer_of_one_s = iteration(job, alone).expert / 3
    assert iteration(job, split).expert == pytest.approx(2 * 2 * layer_of_one_s)


def test_overlapped_experts_keep_a_microbatch_more_under_way() -> None:
    """DualPipe's activations are p + 1 (DeepSeek-V3, arXiv 2412.19437, table 2), at most m."""
    job, strategy = job_of(MIXTURE, 8, 64), Strategy(1, 4, 2, 1, 1, 1, 4, 2, 2)
    for batch, more in ((64, 1), (6, 0)):
        plain = replace(job, batch=batch)
        kept = (memory_bytes(replace(plain, overlap_experts=on), strategy) for on in (False, True))
        each = 2 * float(layer_activations(job, strategy))
        assert -np.subtract(*kept) == pytest.approx(more * each)


def test_experts_that_nobody_shares_leave_no_all_to_all_to_hide() -> None:
    job, alone = job_of(MIXTURE, 16, 64), Strategy(1, 1, 16, 1, 1, 1, 1, 8)
    assert iteration(replace(job, overlap_experts=True), alone) == iteration(job, alone)


@pytest.mark.parametrize("recomputation", Recomputation)
def test_fused_attention_computes_its_scores_twice(recomputation: Recomputation) -> None:
    """The first of attention's two products: in the backward pass, after any forward pass."""
    job = replace(job_of(SMALL, 8, 16), recomputation=recomputation, fused_attention=True)
    strategy = Strategy(2, 1, 4, 1, 2, 2, 1, 4)
    scores_s = SMALL.attention_flops(2) / 2 / strategy.tensor / product_flops(job, strategy)
    again = forward_s(job, strategy) if recomputation is Recomputation.FULL else 0.0
    assert again_s(job, strategy) == pytest.approx(again + scores_s)


def test_full_recomputation_is_a_third_more_work() -> None:
    """MegatronLM: 96 B s l h² (1 + s/(6h) + V/(16 l h)), arXiv 2104.04473, equation 3."""
    b, s, layers, h, v = 3, SMALL.sequence, SMALL.layers, SMALL.hidden, SMALL.vocabulary
    expected = 96 * b * s * layers * h**2 * (1 + s / (6 * h) + v / (16 * layers * h))
    assert SMALL.hardware_flops(b, Recomputation.FULL) == pytest.approx(expected)


def test_experts_hold_parameters_but_add_no_work() -> None:
    assert MIXTURE.parameters > 1.5 * SMALL.parameters
    assert MIXTURE.shared_parameters < SMALL.parameters
    router = 2 * 1024 * 4 * 4 * 3 * 8 * 1024
    assert MIXTURE.model_flops(8) == pytest.approx(SMALL.model_flops(8) + router)
    every = replace(SMALL, experts=Experts(1, 1, 1))
    assert every.parameters == pytest.approx(SMALL.parameters + 8 * 1024)


def test_padding_of_experts_is_computed_but_not_needed() -> None:
    experts = Experts(1, 4, 2)
    plain, padded = (
        replace(SMALL, experts=replace(experts, capacity=capacity)) for capacity in (1.0, 1.25)
    )
    assert padded.model_flops(8) == plain.model_flops(8)
    none = Recomputation.NONE
    assert padded.hardware_flops(8, none) > plain.hardware_flops(8, none) == plain.model_flops(8)


@given(JOBS)
@settings(max_examples=60, deadline=None)
def test_every_strategy_divides_the_job(job: Job) -> None:
    found = strategies(job)
    transformer, cluster = job.transformer, job.cluster
    assert (found.tensor * found.pipeline * found.data == cluster.gpus).all()
    assert (job.batch % (found.data * found.microbatch) == 0).all()
    stage = -(-transformer.layers // found.pipeline)
    assert (found.pipeline <= transformer.layers).all()
    assert (stage % found.interleave == 0).all()
    assert (transformer.heads % found.tensor == 0).all()
    assert (transformer.sequence % found.tensor == 0).all()
    inside = found.tensor_inside * found.pipeline_inside * found.data_inside
    assert (used_of_domain(cluster.gpus, cluster.domain_size) % inside == 0).all()
    for degree in ("tensor", "pipeline", "data"):
        assert (getattr(found, degree) % getattr(found, f"{degree}_inside") == 0).all()


@pytest.mark.parametrize(
    ("changes", "parallel", "degrees"),
    [
        ({"key_value_heads": 3}, False, {1, 3, 6, 12}),
        ({"key_value_heads": 4}, False, {1, 2, 4, 12}),
        (
            {"key_value_heads": 4, "latent": Latent(0, 512, 128, 64, 128)},
            False,
            {1, 2, 3, 4, 6, 12},
        ),
        ({}, False, {1, 2, 3, 4, 6, 12}),
        ({}, True, {1, 2, 4}),
    ],
)
def test_tensor_parallel_ranks_are_alike(
    changes: dict[str, Any], *, parallel: bool, degrees: set[int]
) -> None:
    """In heads of keys and values, and in tokens outside products."""
    model = replace(SMALL, hidden=1536, heads=12, **changes)
    job = replace(job_of(model, 12, 12), sequence_parallel=parallel)
    assert set(strategies(job).tensor.tolist()) == degrees


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("pipeline", [1, 3, 4])
def test_the_most_loaded_gpu_is_the_one_of_megatron_lm(pipeline: int, *, tied: bool) -> None:
    """Parameters and logits by its `theoretical_memory_usage.py`, but with unequal stages."""
    model, tensor, data = replace(SMALL, tied=tied), 2, 4
    job = job_of(model, tensor * pipeline * data, 96)
    strategy = Strategy(tensor, pipeline, data, 1, 2, 2, 1, 4)
    s, h, v, largest = model.sequence, model.hidden, model.vocabulary, {1: 8, 3: 3, 4: 2}[pipeline]
    block = 12 * h**2 + 13 * h
    embeddings = (v + s) * h + (v * h if pipeline == 1 and not tied else 0)
    parameters = (largest * block + embeddings) / tensor
    logits = 4 * s * 2 * h * (1 + v / h) / tensor if pipeline == 1 else 0
    layers = largest * pipeline * float(layer_activations(job, strategy))
    assert memory_bytes(job, strategy) == pytest.approx(
        parameters * (6 + 12 / data) + layers + logits
    )


@given(JOBS)
@settings(max_examples=60, deadline=None)
def test_no_gpu_holds_fewer_parameters_than_the_mean(job: Job) -> None:
    every = strategies(job)
    held, mean = (
        np.sum(of(job.transformer, every), axis=0) for of in (held_parameters, gpu_parameters)
    )
    alone = np.asarray(every.pipeline) == 1
    assert held[alone] == pytest.approx(mean[alone])
    assert (held >= mean * (1 - 1e-9)).all()


@given(JOBS)
@settings(max_examples=60, deadline=None)
def test_arrays_give_what_single_strategies_give(job: Job) -> None:
    every = strategies(job)
    times, memory = iteration(job, every).total, memory_bytes(job, every)
    for index in range(0, len(every.tensor), max(1, len(every.tensor) // 5)):
        alone = evaluate(job, every.at(index))
        assert alone.iteration_s == pytest.approx(times[index])
        assert alone.memory_bytes == pytest.approx(memory[index])


@given(JOBS)
@settings(max_examples=60, deadline=None)
def test_the_best_strategy_is_the_fastest_that_fits(job: Job) -> None:
    every, found = strategies(job), best(job)
    fits = memory_bytes(job, every) <= job.cluster.accelerator.memory_bytes
    times = np.where(fits, iteration(job, every).total, inf)
    fastest = times.min(initial=inf)
    assert (inf if found is None else found.iteration_s) == pytest.approx(fastest)


@given(
    JOBS,
    st.sampled_from([None, Experts(every=1, count=8, top_k=2)]),
    st.sampled_from(FabricKind),
    st.sampled_from([1e-3, 0.1, 1.0, inf]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_the_search_finds_the_fastest_of_all(
    job: Job, experts: Experts | None, kind: FabricKind, memory: float, fused: bool
) -> None:
    """Every choice with every strategy, also those that the search leaves out; in less memory."""
    gpu = job.cluster.accelerator
    gpu = replace(gpu, memory_bytes=memory * gpu.memory_bytes)
    cluster = replace(job.cluster, accelerator=gpu, kind=kind)
    model = replace(job.transformer, experts=experts)
    job = replace(job, transformer=model, cluster=cluster, fused_attention=fused)
    fastest = inf
    for chosen in product(*ALL_CHOICES.values()):
        way = replace(job, **dict(zip(ALL_CHOICES, chosen, strict=True)))
        every = strategies(way, replace(ANY, context=None))
        fits = memory_bytes(way, every) <= gpu.memory_bytes
        fastest = np.where(fits, iteration(way, every).total, inf).min(initial=fastest)
    found = best(job, freedoms=Freedom)
    assert (inf if found is None else found.iteration_s) == pytest.approx(fastest, rel=1e-6)


def test_a_host_keeps_no_more_than_its_memory() -> None:
    """14 bytes a parameter (ZeRO-Offload): 405.9 billion on 16 MI300X need 355 GB, of 24, 237."""
    asked = [Freedom.OFFLOAD, Freedom.SHARDING, Freedom.RECOMPUTATION]
    job = load_configuration(Path("llama-3-405b"), {"platform": "mi300x", "batch": 48}).job
    few, many = (
        best(replace(job, cluster=cluster_of("mi300x", gpus)), freedoms=asked) for gpus in (16, 24)
    )
    assert few is None
    assert many is not None
    assert many.host_memory_bytes == pytest.approx(14 * 405.9e9 / 24, rel=0.05)
    assert many.job.offload
    assert many.fits
    small = replace(many.job.cluster.accelerator, host_memory_bytes=1e9)
    away = replace(many.job, cluster=replace(many.job.cluster, accelerator=small))
    assert not evaluate(away, many.strategy).fits


def test_a_host_steps_more_slowly_than_its_gpu() -> None:
    """So that the search offloads only what does not fit."""
    for gpu in ACCELERATORS.values():
        assert gpu.host_memory_bandwidth < gpu.streaming_bandwidth


def test_few_of_the_strategies_are_placed_in_domains(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def counted(job: Job, strategy: Strategy) -> Terms:
        tried.append(np.size(strategy.tensor))
        return iteration(job, strategy)

    monkeypatch.setattr(search, "iteration", counted)
    job = configured("qwen-3-235b-a22b")
    assert best(job, freedoms=Freedom) is not None
    count = len(strategies(job, replace(ANY, context=None)).tensor)
    assert sum(tried) < 144 * count / 10


@given(JOBS)
@settings(max_examples=60, deadline=None)
def test_terms_are_times_and_utilization_is_below_one(job: Job) -> None:
    found = best(job, must_fit=False)
    if found is not None:
        terms = [float(getattr(found.terms, term.name)) for term in fields(found.terms)]
        assert min(terms) >= 0
        assert 0 < found.mfu <= found.hfu < 1


@given(JOBS, st.sampled_from(["hb", "nic"]))
@settings(max_examples=60, deadline=None)
def test_no_bandwidth_makes_it_slower(job: Job, which: str) -> None:
    faster = replace(job.cluster, **{which: 2 * getattr(job.cluster, which)})
    before, after = best(job), best(replace(job, cluster=faster))
    assert (before is None) == (after is None)
    if before is not None and after is not None:
        assert after.iteration_s <= before.iteration_s * (1 + 1e-9)


@given(JOBS)
@settings(max_examples=60, deadline=None)
def test_the_ideal_network_is_never_slower(job: Job) -> None:
    """One HB domain of all GPUs: the paper's ideal network."""
    ideal = replace(job, cluster=replace(job.cluster, domain_size=job.cluster.gpus))
    ours, best_possible = best(job), best(ideal)
    if ours is not None and best_possible is not None:
        assert best_possible.iteration_s <= ours.iteration_s * (1 + 1e-9)


def test_a_hierarchical_gather_is_the_papers_formula() -> None:
    """(y-1)D/(xy C_S) + (x-1)D/(x C_F), x=32 and y=2 give 98 % in HB domains (section III-B)."""
    cluster = cluster_of("gh200", 512)
    equal = replace(cluster, hb=1.0, nic=1.0)
    inside = gather_s(replace(equal, nic=inf), 1.0, 64, 32)
    assert inside / gather_s(equal, 1.0, 64, 32) == pytest.approx(0.984, abs=0.001)


def test_experts_cost_more_on_rails_alone() -> None:
    job = job_of(MIXTURE, 16, 64, domain_size=2)
    strategy = Strategy(1, 1, 16, 1, 1, 1, 1, 2, expert=4)
    clos = replace(job, cluster=replace(job.cluster, kind=FabricKind.RAIL_OPTIMIZED))
    slowdown = iteration(job, strategy).expert / iteration(clos, strategy).expert
    x, y, ratio = 2, 2, job.cluster.nic / job.cluster.hb
    assert slowdown == pytest.approx(1 + y * (x - 1) / (x * (y - 1)) * ratio)


def test_interleaving_shortens_the_bubble_and_stores_more() -> None:
    job = job_of(SMALL, 8, 64)
    plain, woven = (evaluate(job, Strategy(1, 4, 2, v, 1, 1, 4, 2)) for v in (1, 2))
    assert woven.terms.bubble == pytest.approx(plain.terms.bubble / 2)
    # By the order of a first stage's passes: the most microbatches that have not come back.
    passes = [stage_order(0, 4, 32, v) for v in (1, 2)]
    most = [max(np.cumsum([1 if one.forward else -1 for one in order])) for order in passes]
    stored = SMALL.layers / 4 * layer_activations(job, plain.strategy) * (most[1] / 2 - most[0])
    assert woven.memory_bytes - plain.memory_bytes == pytest.approx(stored)


def test_full_recomputation_stores_the_input_of_each_layer() -> None:
    """2sbh bytes (arXiv 2205.05198, section 5)."""
    job = replace(job_of(SMALL, 8, 64), recomputation=Recomputation.FULL)
    stored = layer_activations(job, Strategy(1, 4, 2, 1, 1, 1, 4, 2))
    assert stored == 2 * SMALL.sequence * SMALL.hidden


@pytest.mark.parametrize("name", names())
def test_every_shipped_configuration_has_an_iteration(name: str) -> None:
    found = evaluated(name, load_configuration(Path(name)))
    assert 0.2 < found.hfu < 0.6


def test_a_search_may_beat_the_given_strategy() -> None:
    configuration = load_configuration(Path("gpt-146b"))
    given_s = evaluated("gpt-146b", configuration).iteration_s
    assert evaluated("gpt-146b", configuration, search=True).iteration_s < given_s


def test_a_search_keeps_the_parts_of_long_sequences(tmp_path: Path) -> None:
    """Without context, no strategy divides a batch of four over so many GPUs."""
    path = tmp_path / "long.yaml"
    path.write_text(
        "{layers: 8, hidden: 4096, heads: 8, sequence: 131072, vocabulary: 32000, batch: 4, "
        "gpus: 512, platform: dgx-h100, fused_attention: true, strategy: {context: 16}}"
    )
    configuration = load_configuration(path)
    assert evaluated("long", configuration, search=True).strategy.context == 16
    weighs = configuration.model_copy(update={"weigh": (Freedom.CONTEXT,)})
    found = evaluated("long", weighs, search=True)
    assert found.iteration_s <= evaluated("long", configuration, search=True).iteration_s


def test_more_degrees_than_memory_holds_are_refused() -> None:
    with (
        patch("model.training.strategy.MOST_DEGREES", 5),
        pytest.raises(InputError, match="more than 5"),
    ):
        strategies(load_configuration(Path("gpt-1t")).job, Wish(microbatch=2))


def test_more_stages_than_layers_are_refused() -> None:
    strategy = GivenStrategy(pipeline=128)
    configuration = load_configuration(Path("gpt-146b")).model_copy(update={"strategy": strategy})
    with pytest.raises(InputError, match="pipeline must be at most the 80 layers, got 128"):
        evaluated("gpt-146b", configuration)


def test_the_command_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    train(
        Path("gpt-1t"),
        gpus=65536,
        batch=4096,
        domain_size=256,
        platform="gh200",
        search=True,
        as_json=True,
    )
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["gpus"]) == ("railbed.train/1", 65536)
    assert sum(found["terms_s"].values()) == pytest.approx(found["iteration_s"])
    degrees = found["strategy"]
    assert degrees["tensor"] * degrees["pipeline"] * degrees["data"] == 65536
    assert found["fits"]


def test_the_network_is_named_and_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    """Between rails, all-to-alls of experts are forwarded by rail-only alone."""
    shown = dict[str, Any]()
    for fabric in ("rail-only", "rail-optimized"):
        train(Path("deepseek-v3"), fabric=fabric, as_json=True)
        shown[fabric] = json.loads(capsys.readouterr().out)
        assert shown[fabric]["fabric"] == fabric
        train(Path("deepseek-v3"), fabric=fabric)
        assert f"of a token), {fabric}, 2048 GPUs in HB domains" in capsys.readouterr().out
    whole_s, rails_s = (shown[name]["iteration_s"] for name in ("rail-optimized", "rail-only"))
    assert whole_s < rails_s
    train(Path("deepseek-v3"), as_json=True)
    assert json.loads(capsys.readouterr().out) == shown["rail-only"]


def test_degrees_within_degrees_fill_no_more_of_a_domain(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The ranks that share Mixtral's experts are data-parallel ranks of a domain."""
    train(Path("mixtral-8x7b"), platform="gb200-nvl72", domain_size=72)
    assert "of which the degrees fill 64, batch" in " ".join(capsys.readouterr().out.split())


@given(st.integers(1, 500), st.integers(1, 96), st.integers(1, 4), st.integers(1, 6))
def test_every_way_fills_what_is_in_use_of_a_domain(
    gpus: int, domain_size: int, tensor: int, pipeline: int
) -> None:
    gpus *= tensor * pipeline
    used = used_of_domain(gpus, domain_size)
    ways = insides(tensor, pipeline, gpus // (tensor * pipeline), used)
    assert ways
    assert all(inner * stages * copies == used for inner, stages, copies in ways)


def test_an_own_file_without_a_strategy_is_searched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.yaml"
    text = (SHIPPED / "gpt-1.7b.yaml").read_text()
    own.write_text("".join(line for line in text.splitlines(True) if "strategy" not in line))
    assert load_configuration(own).wish == replace(ANY, expert=1)
    train(own)
    assert "strategy: tensor" in capsys.readouterr().out


def test_an_option_adds_to_what_a_file_has_searched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text((SHIPPED / "gpt-1.7b.yaml").read_text() + "weigh: [overlap]\n")
    train(own, weigh=[Freedom.OFFLOAD])
    assert "overlap" in capsys.readouterr().out


def test_overlap_with_experts_needs_experts() -> None:
    with pytest.raises(InputError, match="--weigh: overlap-experts needs a model with experts"):
        train(Path("gpt-146b"), weigh=[Freedom.OVERLAP_EXPERTS])


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("gpt-1.7b", "layers: 24", "layers: 0", "own.yaml:2 layers: must be at least 1, got 0"),
        ("gpt-1.7b", "dgx-a100", "dgx-a10", "did you mean 'dgx-a100'?"),
        (
            "gpt-1.7b",
            "interleave:",
            "interleaf:",
            "unknown key 'interleaf' (did you mean 'interleave'?)",
        ),
        (
            "gpt-1.7b",
            "recomputation: full",
            "recomputation: some",
            "must be 'none', 'selective' or 'full'",
        ),
        (
            "moe-1.3b",
            "top_k: 1",
            "top_k: 200",
            "own.yaml:12 moe.top_k: must be at most experts, 128, got 200",
        ),
        ("moe-1.3b", "experts: 128", "experts: 3", "moe.experts: must be a multiple of expert_"),
        ("moe-1.3b", "experts: 128", "experts: 192", "moe.experts: must be a multiple of"),
        (
            "moe-1.3b",
            "every: 2",
            "dense_layers: 24",
            " moe: every and dense_layers must be at most",
        ),
        ("moe-1.3b", "every: 2", "every: 100", " moe: every must be at most layers, 24, got 100"),
        ("moe-1.3b", "capacity: 1.0", "capacity: 1.0e+308", "capacity: must be at most 1000000"),
        ("gpt-1.7b", "layers:", "sharding: 4\nlayers:", "sharding: must be at most 3, got 4"),
        ("gpt-1.7b", "layers:", "precision: fp4\nlayers:", "must be 'bf16' or 'fp8', got 'fp4'"),
        ("gpt-1.7b", "layers:", "tied: maybe\nlayers:", "must be true or false, got 'maybe'"),
    ],
)
def test_a_mistake_in_a_file_is_said_with_its_line(
    tmp_path: Path, name: str, old: str, new: str, expected: str
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text((SHIPPED / f"{name}.yaml").read_text().replace(old, new, 1))
    with pytest.raises(InputError) as error:
        load_configuration(own)
    assert expected in str(error.value)


def test_the_optimizer_of_an_expert_is_shared_by_its_copies() -> None:
    """With as many ranks as experts, nobody else holds an expert's parameters."""
    configuration = load_configuration(Path("moe-1.3b"))
    found = evaluated("moe-1.3b", configuration)
    parallel = found.strategy.expert
    model = configuration.transformer
    assert found.strategy.data == parallel
    own = model.expert_parameters / parallel
    assert optimized_parameters(model, found.strategy) == pytest.approx(
        own + model.shared_parameters / parallel
    )
    twice = replace(found.strategy, data=2 * parallel)
    assert optimized_parameters(model, twice) == pytest.approx(
        (own + model.shared_parameters / parallel) / 2
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"batch": 2**40}, "--batch: must be 1 to 16777216, got"),
        ({"platform": ""}, "--platform: unknown platform ''"),
        ({"platform": "h200"}, "did you mean 'dgx-h200'?"),
        ({"gpus": 100}, "no strategy with tensor 8, pipeline 64"),
        ({"gpus": 0, "platform": "gh20"}, "--gpus: must be 1 to 1048576, got 0"),
        ({"gpus": 8, "domain_size": 9}, "--domain-size: must be at most 8, the number of GPUs"),
        ({"gpus": 8, "batch": 8, "search": True}, "no strategy fits the 80 GB of a GPU"),
    ],
)
def test_a_job_that_cannot_be_is_a_sentence(options: dict[str, object], expected: str) -> None:
    with pytest.raises(InputError) as error:
        train(Path("gpt-1t"), **options)  # type: ignore[arg-type]
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("tensor: 1", "context: 3, tensor: 1", "with tensor and context that divide 2048 tokens"),
        ("tensor: 1", "tensor: 2", "with sequence_parallel, as experts with tensor parallelism"),
    ],
)
def test_what_a_strategy_misses_is_named(tmp_path: Path, old: str, new: str, expected: str) -> None:
    own = tmp_path / "own.yaml"
    text = (SHIPPED / "moe-1.3b.yaml").read_text() + "sequence_parallel: false\n"
    own.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=expected):
        train(own)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("sequence: 2044", "with tensor that divides 2044 tokens, as sequence_parallel needs"),
        ("sequence: 2048\nkey_value_heads: 12", "nor 12 heads of keys and values"),
    ],
)
def test_what_tensor_parallel_ranks_cannot_share_is_named(
    tmp_path: Path, model: str, expected: str
) -> None:
    own = tmp_path / "own.yaml"
    text = (SHIPPED / "gpt-3-175b.yaml").read_text()
    own.write_text(text.replace("sequence: 2048", model))
    with pytest.raises(InputError, match=expected):
        train(own)


def test_an_unknown_name_has_a_hint() -> None:
    with pytest.raises(InputError, match="did you mean 'gpt-146b'"):
        load_configuration(Path("gpt-147b"))


def test_latent_attention_is_stored_narrow_and_widened_again() -> None:
    """Selective recomputation, as DeepSeek-V3's (arXiv 2412.19437, section 3.2.3)."""
    configuration = load_configuration(Path("deepseek-v3"))
    stored, again = (
        replace(configuration.job, recomputation=one)
        for one in (Recomputation.NONE, Recomputation.SELECTIVE)
    )
    strategy = evaluated("deepseek-v3", configuration).strategy
    model, tokens = stored.transformer, strategy.microbatch * stored.transformer.sequence
    narrower = model.query_width + model.key_value_width - model.narrow_width
    assert model.narrow_width == 1536 + 512 + 64
    assert layer_activations(stored, strategy) - layer_activations(again, strategy) == (
        pytest.approx(2 * tokens * narrower)
    )
    longer_s = layer_s(again, strategy) - layer_s(stored, strategy)
    assert longer_s == pytest.approx(model.widening_flops(1) / product_flops(again, strategy))


def test_the_loss_and_the_optimizer_stream_through_memory() -> None:
    job, strategy = job_of(SMALL, 8, 16), Strategy(1, 1, 8, 1, 2, 1, 1, 8)
    gpu = job.cluster.accelerator
    streaming = replace(gpu, memory_bandwidth=2 * gpu.memory_bandwidth)
    faster = replace(job, cluster=replace(job.cluster, accelerator=streaming))
    logits = 2 * SMALL.sequence * SMALL.vocabulary
    saved_s = logits_s(job, strategy) - logits_s(faster, strategy)
    assert saved_s == pytest.approx(52 * logits / gpu.streaming_bandwidth / 2)
    assert optimizer_s(faster, strategy) == pytest.approx(optimizer_s(job, strategy) / 2)
    alone = Strategy(1, 1, 1, 1, 2, 1, 1, 1)
    moved = 42 * SMALL.parameters / gpu.streaming_bandwidth
    assert optimizer_s(job, alone) == pytest.approx(moved)
    # Gradients and weights of 16 bits to the host and back; gradients become zero on the GPU.
    host_s = 38 / gpu.host_memory_bandwidth + (2 + 2) / gpu.host_link + 4 / gpu.streaming_bandwidth
    offloaded_s = optimizer_s(replace(job, offload=True), alone)
    assert offloaded_s == pytest.approx(SMALL.parameters * host_s)


def test_a_strategy_without_recomputation_is_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    train(Path("llama-3-405b"))
    assert ", no recomputation, " in capsys.readouterr().out


def test_a_memory_that_is_hardly_too_small_has_three_digits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, given = tmp_path / "own.yaml", "tensor: 1, pipeline: 16, interleave: 1, microbatch: 1"
    text = (SHIPPED / "qwen-3-32b.yaml").read_text()
    own.write_text(f"{text}recomputation: none\nstrategy: {{{given}}}\n")
    train(own)
    assert "memory 80.2 GB a GPU: too much" in capsys.readouterr().out


def test_idle_gpus_that_make_a_job_faster_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A batch of a power of two on domains of 72: with 64 GPUs of each, or a hint at these."""

    def searched(batch: int, gpus: int = 576) -> dict[str, Any]:
        model, platform = Path("llama-3-70b"), "gb200-nvl72"
        train(model, gpus, batch, platform=platform, search=True, as_json=True)
        return dict(json.loads(capsys.readouterr().out))

    idle, fewer = searched(512), searched(512, 512)
    assert idle["iteration_s"] > fewer["iteration_s"]
    what = f"512 of the 576 GPUs, 64 of each HB domain, would take {fewer['iteration_s']:.4f} s"
    assert idle["left_out"] == [what]
    assert searched(576)["left_out"] == fewer["left_out"] == []
    with pytest.raises(InputError, match="use other GPUs, such as 512, another batch"):
        train(Path("gpt-146b"), gpus=576, batch=512, platform="gb200-nvl72")
