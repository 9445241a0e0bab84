"""Training iterations as steps: order, proof, bytes, time, reduction, and where the time goes."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from model.fabric.build import build_topology
from model.fabric.health import Epoch
from model.fabric.spec import COMPARED, FabricKind
from model.prediction.fluid import path_class, predict
from model.training.job import Job, cluster_of
from model.training.layer import layer_s, logits_s
from model.training.reduction import Change, NoReduction, ReducedIteration, Wanted, reduced
from model.training.steps import (
    COMPUTE,
    DIMENSIONS,
    IterationSteps,
    Pass,
    begins_s,
    exposure_s,
    stage_order,
)
from model.training.strategy import Strategy
from model.training.traffic import Dimension, RankGrid, traffic
from model.training.transformer import Experts, Recomputation, Transformer
from model.workload.transfers.columns import Rows, Transfers, starts_of
from model.workload.transfers.proof import ScheduleError
from scenarios.format.training import evaluated, load_configuration, names
from tests.unit.fabrics import spec, transfer_paths
from traffic_gen.workloads import training_iteration
from traffic_gen.workloads.training_iteration import Iteration

KIND = FabricKind.RAIL_OPTIMIZED
SECOND_NS = 10**9


@st.composite
def iterations(draw: st.DrawFn) -> ReducedIteration:
    """Small iterations of all kinds of strategies, with all kinds of traffic or without."""
    tensor, pipeline, data = (draw(st.integers(1, 3)) for _ in range(3))
    interleave = draw(st.integers(1, 2)) if pipeline > 1 else 1
    rounds = draw(st.integers(1, 4))
    degrees = tensor, pipeline, data
    of_tensor, of_pipeline, of_data = (draw(st.sampled_from([1, one])) for one in degrees)
    expert = draw(st.sampled_from([1, data, tensor, tensor * data]))
    others = expert, draw(st.sampled_from([1, data]))
    return ReducedIteration(
        strategy=Strategy(*degrees, interleave, 1, of_tensor, of_pipeline, of_data, *others),
        microbatches=rounds * pipeline if interleave > 1 else rounds,
        layers=draw(st.integers(1, 2)),
        forward_s=1.0,
        again_s=draw(st.sampled_from([0.0, 1.0])),
        backward_s=2.0,
        logits_s=0.0,
        optimizer_s=0.5,
        tensor_bytes=1e3,
        feed_forward_bytes=draw(st.sampled_from([0.0, 1e3])),
        context_bytes=1e3,
        hop_bytes=1e3,
        expert_bytes=1e3,
        gradient_bytes=1e3,
        expert_gradient_bytes=draw(st.sampled_from([0.0, 1e3])),
        weights_part=draw(st.sampled_from([0.5, 1.0])),
        sharding=draw(st.sampled_from([1, 2, 3])),
        overlap=draw(st.booleans()),
    )


@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 4))
def test_a_stage_does_every_pass_once_and_backward_after_forward(
    stages: int, interleave: int, rounds: int
) -> None:
    microbatches = rounds * stages
    for stage in range(stages):
        order = stage_order(stage, stages, microbatches, interleave)
        assert len(order) == len(set(order)) == 2 * microbatches * interleave
        for one in order:
            if not one.forward:
                assert order.index(replace(one, forward=True)) < order.index(one)


@given(st.integers(1, 6), st.integers(1, 12))
def test_1f1b_keeps_as_many_microbatches_as_there_are_stages_behind(
    stages: int, microbatches: int
) -> None:
    for stage in range(stages):
        kept = np.cumsum([1 if p.forward else -1 for p in stage_order(stage, stages, microbatches)])
        assert kept.max() == min(stages - stage, microbatches)
        assert kept[-1] == 0


def test_the_order_of_two_stages() -> None:
    def shown(order: list[Pass]) -> str:
        return " ".join(f"{'F' if p.forward else 'B'}{p.microbatch}" for p in order)

    assert shown(stage_order(0, 2, 3)) == "F0 F1 B0 F2 B1 B2"
    assert shown(stage_order(1, 2, 3)) == "F0 B0 F1 B1 F2 B2"


def ends_s(
    steps: IterationSteps, transfer_s: float = 0.0
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """When each step ends if all transfers take the same time, whatever their size."""
    ends: list[float] = []
    for step in steps.transfers:
        waits = step.after if step.ready is None else (*step.after, step.ready)
        took_s = step.compute_ns / 1e9 if step.is_compute else transfer_s
        ends.append(max((ends[earlier] for earlier in waits), default=0.0) + took_s)
    return np.array(ends)


@given(iterations(), st.sampled_from(COMPARED), st.booleans())
def test_without_traffic_the_time_is_that_of_the_pipeline(
    iteration: ReducedIteration, kind: FabricKind, zero: bool
) -> None:
    """Passes of all microbatches, the bubble (p-1)/v, the optimizer (MegatronLM, section 2.2)."""
    iteration = iteration if zero else replace(iteration, sharding=1)
    steps = Iteration("some", iteration, kind, zero).steps()
    strategy = iteration.strategy
    layer_s = iteration.forward_s + iteration.again_s + iteration.backward_s
    stage_s = strategy.interleave * iteration.layers * layer_s
    passes = iteration.microbatches + (strategy.pipeline - 1) / strategy.interleave
    assert ends_s(steps).max() == pytest.approx(passes * stage_s + iteration.optimizer_s)


@given(iterations())
@settings(max_examples=15)
def test_the_last_stage_computes_the_logits_of_each_microbatch(iteration: ReducedIteration) -> None:
    """A third of the time forward, the rest backward."""
    steps = Iteration("some", replace(iteration, logits_s=0.3), KIND).steps().transfers
    last = RankGrid(iteration.strategy).stages()[-1].ravel().tolist()
    for part_ns in (10**8, 2 * 10**8):
        found = Counter(steps.source[steps.compute_ns == part_ns].tolist())
        assert found == dict.fromkeys(last, iteration.microbatches)


@pytest.mark.parametrize("vocabulary", [1_000, 100_000])
def test_the_last_stage_computes_the_logits_instead_of_the_layer_that_it_lacks(
    vocabulary: int,
) -> None:
    """Five layers in stages of three and two."""
    whole = replace(job(), transformer=replace(job().transformer, layers=5, vocabulary=vocabulary))
    strategy = Strategy(1, 2, 8, 1, 1, 1, 1, 4)
    steps = Iteration("some", reduced(whole, strategy, 4, 4, Wanted()), KIND).steps().transfers
    computed_s = np.bincount(steps.source, steps.compute_ns / SECOND_NS)
    first_s, last_s = (computed_s[ranks].mean() for ranks in RankGrid(strategy).stages())
    each_s, microbatches = layer_s(whole, strategy), whole.batch // strategy.data
    behind_s = max(0.0, logits_s(whole, strategy) - each_s)
    assert last_s - first_s == pytest.approx(microbatches * behind_s, abs=1e-6)
    assert (behind_s > 0) == (vocabulary == 100_000)


@given(iterations(), st.sampled_from(COMPARED))
@settings(max_examples=30)
def test_the_parts_of_the_time_sum_up_to_it(iteration: ReducedIteration, kind: FabricKind) -> None:
    """On any fabric, whatever the placement; compute takes what it was told to take."""
    steps = Iteration("some", iteration, kind).steps(1.0, 0.01)
    topology = build_topology(spec(kind, *_grid(iteration), spines=2))
    paths = transfer_paths(steps.transfers, Epoch(topology), topology.job_gpus)
    latency_s = {path_class(hops): 1e-4 for hops in paths if hops}
    prediction = predict(steps, [Epoch(topology)], latency_s)
    end_s = np.array(prediction.arrival_s)
    parts = exposure_s(steps, begins_s(steps, end_s), end_s)
    assert sum(parts.values()) == pytest.approx(prediction.completion_s)
    computed_s = steps.transfers.compute_ns.sum() / SECOND_NS / steps.gpus
    assert parts["compute"] == pytest.approx(computed_s)


def _grid(iteration: ReducedIteration) -> tuple[int, int]:
    strategy = iteration.strategy
    inside = strategy.tensor_inside * strategy.pipeline_inside * strategy.data_inside
    return iteration.gpus // inside, inside


def test_exposed_traffic_is_what_arrives_while_a_rank_does_not_compute() -> None:
    """Two stages, one microbatch: 1 s forward, 2 s backward, half a second for each hop."""
    iteration = two_stages()
    steps = Iteration("some", iteration, KIND).steps()
    end_s = ends_s(steps, 0.5)
    parts = exposure_s(steps, begins_s(steps, end_s), end_s)
    # The first stage: F 0-1, B 5-7. The second: F 1.5-2.5, B 2.5-4.5.
    assert end_s.max() == pytest.approx(7.0, abs=1e-6)
    assert parts["compute"] == pytest.approx(3.0, abs=1e-6)
    assert parts["pipeline"] == pytest.approx(0.5)
    assert parts["waiting"] == pytest.approx((3.5 + 3.5) / 2, abs=1e-6)


def two_stages() -> ReducedIteration:
    return ReducedIteration(
        strategy=Strategy(1, 2, 1, 1, 1, 1, 1, 1),
        microbatches=1,
        layers=1,
        forward_s=1.0,
        again_s=0.0,
        backward_s=2.0,
        logits_s=0.0,
        optimizer_s=0.0,
        tensor_bytes=0.0,
        feed_forward_bytes=0.0,
        context_bytes=0.0,
        hop_bytes=1e3,
        expert_bytes=0.0,
        gradient_bytes=0.0,
        expert_gradient_bytes=0.0,
    )


@given(iterations(), st.data())
def test_a_step_that_does_not_wait_for_what_it_uses_is_refused(
    iteration: ReducedIteration, data: st.DataObject
) -> None:
    steps = Iteration("some", iteration, KIND).steps()
    later, _ = steps.uses
    step = int(data.draw(st.sampled_from(later.tolist())))
    with pytest.raises(ScheduleError, match=f"step {step} does not wait for"):
        replace(steps, transfers=_without_waiting(steps.transfers, step))


def _without_waiting(transfers: Transfers, step: int) -> Transfers:
    """The same steps, of which one depends on nothing."""
    after = transfers.after
    kept = after.row != step
    lengths = np.bincount(after.row[kept], minlength=len(transfers))
    return replace(transfers, after=Rows(after.values[kept], starts_of(lengths)))


def test_compute_that_takes_no_time_is_refused() -> None:
    steps = Iteration("some", two_stages(), KIND).steps()
    none = np.zeros_like(steps.transfers.compute_ns)
    with pytest.raises(ScheduleError, match="step 0: is neither a transfer nor compute"):
        replace(steps, transfers=replace(steps.transfers, compute_ns=none))


def test_a_result_of_another_rank_is_refused() -> None:
    steps = Iteration("some", two_stages(), KIND).steps()
    elsewhere = np.flatnonzero(steps.transfers.source == 1)[[-1]], np.array([0])
    with pytest.raises(ScheduleError, match="which is at another rank"):
        replace(steps, uses=elsewhere)


def large(iteration: ReducedIteration) -> ReducedIteration:
    """The same with so many bytes that what is rounded up does not stand for a transfer."""
    sizes = [key for key, value in vars(iteration).items() if key.endswith("_bytes") and value]
    larger: dict[str, Any] = dict.fromkeys(sizes, 1e8)
    return replace(iteration, **larger)


@given(iterations(), st.data())
@settings(max_examples=40)
def test_a_transfer_without_its_bytes_is_refused(
    iteration: ReducedIteration, data: st.DataObject
) -> None:
    steps = Iteration("some", large(iteration), KIND).steps()
    moving = np.flatnonzero(steps.dimensions != COMPUTE).tolist()
    assume(moving)
    forgotten = data.draw(st.sampled_from(moving))
    sizes = steps.transfers.size_bytes.copy()
    sizes[forgotten] = 1
    dimension = DIMENSIONS[steps.dimensions[forgotten]]
    with pytest.raises(ScheduleError, match=f"^{dimension}-parallel ranks send [0-9]+ bytes, f"):
        replace(steps, transfers=replace(steps.transfers, size_bytes=sizes))


@pytest.mark.parametrize(
    ("method", "dimension"),
    [("tensor", "tensor"), ("context", "context"), ("experts", "expert"), ("exchange", "data")],
)
@pytest.mark.parametrize("zero", [True, False])
def test_a_builder_that_forgets_a_collective_is_found_out(
    method: str, dimension: str, zero: bool
) -> None:
    mixture = reduced(*WHOLE[-1], 4, 4, Wanted())
    assert Iteration("some", mixture, KIND, zero).steps().gpus == 16
    forget = patch.object(training_iteration._Build, method, lambda *_: None)
    with forget, pytest.raises(ScheduleError, match=f"{dimension}-parallel ranks send 0 bytes"):
        Iteration("some", mixture, KIND, zero).steps()


def job(experts: Experts | None = None, batch: int = 16) -> Job:
    transformer = Transformer(8, 1024, 8, 512, 1000, experts)
    return Job(transformer, batch, Recomputation.FULL, cluster_of("dgx-a100", 16, 4))


WHOLE = (
    (job(), Strategy(2, 2, 4, 1, 1, 2, 1, 2)),
    (job(), Strategy(2, 2, 4, 2, 1, 2, 2, 1)),
    (job(), Strategy(2, 1, 8, 1, 1, 2, 1, 2, context=4)),
    (job(Experts(2, 8, 1)), Strategy(2, 1, 8, 1, 2, 1, 1, 4, 4, 2)),
)
SHARDED = tuple(
    (replace(whole, sharding=stage, overlap=overlap, wide_gradients=wide), strategy)
    for whole, strategy in WHOLE
    for stage, overlap, wide in (
        (1, True, True),
        (2, False, False),
        (2, True, True),
        (3, False, True),
        (3, True, False),
    )
)


@pytest.mark.parametrize(("whole", "strategy"), WHOLE + SHARDED)
def test_what_is_not_reduced_sends_what_the_model_of_traffic_counts(
    whole: Job, strategy: Strategy
) -> None:
    """Bytes by dimension, over all GPUs, with all microbatches and all layers."""
    microbatches = whole.batch // (strategy.replicas * strategy.microbatch)
    layers = whole.transformer.layers // (strategy.pipeline * strategy.interleave)
    wanted = Wanted(strategy.tensor, strategy.pipeline, microbatches, layers)
    iteration = reduced(whole, strategy, 4, 4, wanted)
    changed = [change.what for change in iteration.changes if change.full != change.reduced]
    assert all(what.endswith(" across domains") for what in changed)
    steps, sent = Iteration("whole", iteration, KIND).steps(), Counter[int]()
    for step, dimension in zip(steps.transfers, steps.dimensions.tolist(), strict=True):
        sent[dimension] += step.size_bytes
    counted = traffic(whole, iteration.strategy)
    for number, dimension in enumerate(DIMENSIONS):
        assert sent[number] == pytest.approx(counted.flows[dimension].total, rel=1e-4)
    assert not sent[COMPUTE]


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("grid", [(4, 4), (2, 4)])
def test_a_reduced_gpu_computes_and_sends_as_much_for_a_microbatch(
    name: str, grid: tuple[int, int]
) -> None:
    configuration = load_configuration(Path(name))
    found = evaluated(name, configuration)
    full, job = found.strategy, found.job
    gpus = grid[0] * grid[1]
    if gpus > configuration.gpus:
        with pytest.raises(NoReduction, match="GPUs, fewer than the"):
            reduced(job, full, *grid, Wanted())
        return
    small = reduced(job, full, *grid, Wanted())
    assert small.gpus == gpus
    for degree in ("tensor", "pipeline", "data", "expert", "copies", "context"):
        assert (getattr(small.strategy, degree) == 1) == (getattr(full, degree) == 1)
    counted = traffic(job, full).flows
    # A GPU of the reduced iteration has the layers of the largest stage.
    uneven = -(-configuration.layers // full.pipeline) * full.pipeline / configuration.layers
    before = configuration.batch // (full.data * full.microbatch)
    sent = Counter[int]()
    steps = Iteration(name, small, KIND).steps()
    for step, number in zip(steps.transfers, steps.dimensions.tolist(), strict=True):
        sent[number] += step.size_bytes
    for dimension in (Dimension.TENSOR, Dimension.EXPERT, Dimension.DATA):
        a_gpu = sent[DIMENSIONS.index(dimension)] / gpus / small.microbatches
        must = counted[dimension].total / configuration.gpus / before
        if dimension is not Dimension.DATA:
            must *= uneven
        assert a_gpu == pytest.approx(must, rel=1e-3), dimension


@pytest.mark.parametrize("microbatches", [1, 3])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_overlapped_gradients_and_weights_hide_behind_passes(stage: int, microbatches: int) -> None:
    """Where passes take long, one block's of eight are exposed: the first's, or the last's.

    With ZeRO's stages 2 and 3 in each microbatch, as `train` counts them.
    """
    whole = replace(job(batch=16 * microbatches), sharding=stage), Strategy(1, 1, 16, 1, 1, 1, 1, 4)
    wanted = Wanted(layers=4, microbatches=microbatches)
    plain, hidden = (
        replace(reduced(replace(whole[0], overlap=on), whole[1], 4, 4, wanted), logits_s=0.0)
        for on in (False, True)
    )
    assert plain.size_bytes == hidden.size_bytes
    exposed_s, computed_s = zip(*map(data_and_compute_s, (plain, hidden)), strict=True)
    assert computed_s[0] == pytest.approx(computed_s[1])
    assert exposed_s[1] == pytest.approx(exposed_s[0] / 8, rel=0.25)


def data_and_compute_s(iteration: ReducedIteration) -> tuple[float, float]:
    """Seconds of exposed traffic of data parallelism, and of compute."""
    steps = Iteration("some", iteration, KIND).steps(1.0, 2e5)
    topology = build_topology(spec(KIND, 4, 4, spines=2))
    paths = transfer_paths(steps.transfers, Epoch(topology), topology.job_gpus)
    latency_s = {path_class(hops): 0.0 for hops in paths if hops}
    end_s = np.array(predict(steps, [Epoch(topology)], latency_s).arrival_s)
    parts = exposure_s(steps, begins_s(steps, end_s), end_s)
    return parts["data"], parts["compute"]


def test_without_zero_gradients_are_summed_once() -> None:
    """`zero: false` sets ZeRO's stage aside; the change is told."""
    whole = replace(job(), sharding=3), Strategy(1, 1, 16, 1, 1, 1, 1, 4)
    small = reduced(*whole, 4, 4, Wanted(zero=False))
    assert small.exchanges == 2
    assert Change("ZeRO's stage", 3, 0) in small.changes


def test_a_degree_may_be_asked_for() -> None:
    configuration = load_configuration(Path("gpt-146b"))
    full = evaluated("gpt-146b", configuration).strategy
    small = reduced(configuration.job, full, 4, 4, Wanted(tensor=4, pipeline=2, microbatches=5))
    strategy = small.strategy
    assert (strategy.tensor, strategy.pipeline, strategy.data) == (4, 2, 2)
    assert small.microbatches == 5
    alone = reduced(configuration.job, full, 4, 4, Wanted(pipeline=1))
    assert alone.strategy.pipeline == 1


def test_a_dimension_that_moves_into_the_domains_is_told() -> None:
    """A search may spread tensor-parallel ranks over domains; on a fabric, they share one."""
    model = Transformer(1, 1024, 8, 512, 1000)
    whole = Job(model, 4, Recomputation.NONE, cluster_of("dgx-h100", 16, 4))
    spread = Strategy(4, 1, 4, 1, 1, 2, 1, 2)
    small = reduced(whole, spread, 4, 4, Wanted())
    assert [one for one in small.changes if one.full != one.reduced] == [
        Change("tensor across domains", 1, 0)
    ]


def test_no_dimension_is_lost_unless_it_is_asked_for() -> None:
    configuration = load_configuration(Path("gpt-146b"))
    full = evaluated("gpt-146b", configuration).strategy
    with pytest.raises(
        NoReduction,
        match="with tensor 4 and pipeline 4 without losing a dimension: it needs 8 domains of 4",
    ):
        reduced(configuration.job, full, 4, 4, Wanted(tensor=4, pipeline=4))
    with pytest.raises(NoReduction, match="it needs 2 domains of 4 GPUs"):
        reduced(configuration.job, full, 1, 4, Wanted())


@pytest.mark.parametrize(("domain_size", "crosses"), [(8, False), (4, True)])
def test_experts_stay_on_the_same_side_of_the_domains(domain_size: int, crosses: bool) -> None:
    """Eight ranks share experts: inside of domains of 8, across domains of 4."""
    model = Transformer(8, 1024, 8, 512, 1000, Experts(1, 8, 2))
    cluster = cluster_of("dgx-h100", 128, domain_size)
    whole = Job(model, 128, Recomputation.SELECTIVE, cluster)
    full = Strategy(1, 1, 128, 1, 1, 1, 1, domain_size, expert=8)
    small = reduced(whole, full, 4, 4, Wanted())
    assert small.expert_bytes > 0
    assert small.expert_gradient_bytes > 0
    assert (small.strategy.expert > small.strategy.expert_inside) == crosses


@given(st.sampled_from([1, 2, 4]), st.sampled_from([2, 4, 8]), st.sampled_from([2, 4]), st.data())
def test_ranks_that_share_experts_are_a_rectangle(
    tensor: int, data: int, domain_size: int, draw: st.DataObject
) -> None:
    """Every rank is in one group, which has ranks of the same rails in each of its domains."""
    expert = draw.draw(st.sampled_from([n for n in (1, 2, 4, 8) if tensor * data % n == 0]))
    tensor_inside = min(tensor, domain_size)
    inside = tensor_inside, 1, min(data, domain_size // tensor_inside)
    strategy = Strategy(tensor, 2, data, 1, 1, *inside, expert=expert)
    groups = RankGrid(strategy).groups()
    assert sorted(groups.ravel().tolist()) == list(range(2 * tensor * data))
    size = int(strategy.in_domain)
    for group in groups.reshape(-1, *groups.shape[-2:]):
        assert (group // size == group[:, :1] // size).all()
        assert (group % size == group[:1] % size).all()


def test_a_pass_computed_again_is_a_forward_pass() -> None:
    """What fused attention computes again belongs to the backward pass."""
    whole, strategy = replace(WHOLE[0][0], fused_attention=True), WHOLE[0][1]
    small = reduced(whole, strategy, 4, 4, Wanted())
    assert small.again_s == small.forward_s
    assert small.backward_s > 2 * small.forward_s


def test_ranks_that_share_a_sequence_stay_as_many_rails() -> None:
    """Of 64 tokens' keys and values, a rank sends as many bytes as among more ranks."""
    model = Transformer(8, 1024, 8, 4096, 1000)
    whole = Job(model, 8, Recomputation.NONE, cluster_of("dgx-h100", 64, 8))
    small = reduced(whole, Strategy(2, 1, 32, 1, 1, 2, 1, 4, context=8), 4, 4, Wanted())
    assert (small.strategy.data, small.strategy.context) == (8, 2)
    with pytest.raises(NoReduction, match="data 2, context 2 cannot be reduced to 1 x 2 GPUs"):
        reduced(whole, Strategy(2, 1, 2, 1, 1, 2, 1, 2, context=2), 1, 2, Wanted())


def test_too_many_passes_are_refused() -> None:
    with pytest.raises(NoReduction, match="have 16000 layer passes; at most 10000"):
        reduced(*WHOLE[0], 4, 4, Wanted(microbatches=1000))


def test_interleaving_takes_whole_rounds() -> None:
    with pytest.raises(NoReduction, match="a multiple of 2 microbatches, got 3"):
        reduced(*WHOLE[1], 4, 4, Wanted(pipeline=2, microbatches=3))
