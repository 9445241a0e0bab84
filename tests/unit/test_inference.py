"""Request loads of inference: arrivals, bytes, rails, proof, latencies, mistakes in scenarios."""

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from model.errors import InputError
from model.fabric.build import build_topology
from model.fabric.health import Epoch
from model.fabric.shaping import wire_bytes
from model.fabric.spec import COMPARED, FabricKind
from model.fabric.topology import Topology
from model.measurement.records import CaseExecutions, Repeat, TransferRecord
from model.prediction.fluid import Prediction, path_class, predict
from model.workload.schedule import RequestSteps, Steps
from model.workload.transfers.columns import Rows
from model.workload.transfers.proof import ScheduleError
from results.render.terminal import print_sections
from results.sections.run import run_sections
from results.store.records import plain
from results.verdicts.breakdown import request_result
from results.verdicts.model_comparison import Measured, compare
from results.verdicts.run import RunResult
from results.verdicts.verdict import Thresholds
from scenarios.format.training import load_configuration
from scenarios.library_files import LIBRARY
from scenarios.load import load
from tests.unit.fabrics import spec, transfer_paths
from traffic_gen.workloads.inference import Arrivals, RequestLoad

HEAD = "fabric: {domains: 2, domain_size: 4, platform: dgx-a100, bandwidth_scale: 10000}\n"
LATENCY_S = 1e-3


@st.composite
def loads(draw: st.DrawFn) -> RequestLoad:
    """Small loads of all shapes."""
    tensor, replicas = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    arrivals = Arrivals(
        requests=draw(st.integers(1, 40)),
        rate=draw(st.floats(0.1, 1e4)),
        prompt=draw(st.integers(1, 5000)),
        prompt_variation=draw(st.sampled_from([0.0, 0.5, 3.0])),
        seed=draw(st.integers(0, 100)),
    )
    domains = draw(st.integers(2, 4))
    return RequestLoad("some", arrivals, 1e4, tensor, tensor, domains, tensor * replicas)


@given(loads())
@settings(deadline=None)
def test_every_domain_serves_equally_many_requests_and_shards_stay_on_their_rails(
    load: RequestLoad,
) -> None:
    steps = load.steps()
    transfers, size = steps.transfers, load.domain_size
    sends = ~transfers.is_compute
    source, to = transfers.source[sends], transfers.destination[sends]
    assert (source % size == to % size).all()
    assert (source // size != to // size).all()
    prefills = Counter((source // size).tolist())
    counts = [prefills[domain] / load.tensor for domain in range(load.domains)]
    assert max(counts) - min(counts) <= 1
    shards = Counter(steps.request[sends].tolist())
    assert shards == dict.fromkeys(range(load.arrivals.requests), load.tensor)


@given(loads(), st.floats(1, 1e3), st.floats(0.1, 100))
@settings(deadline=None)
def test_bytes_and_arrivals_are_the_real_ones_by_their_scales(
    load: RequestLoad, size_scale: float, dilation: float
) -> None:
    real, scaled = load.steps(), load.steps(size_scale, dilation)
    shards = load.arrivals.requests * load.tensor
    assert real.size_bytes == pytest.approx(load.size_bytes, abs=shards)
    assert scaled.size_bytes == pytest.approx(load.size_bytes / size_scale, abs=shards)
    assert scaled.arrival_ns == pytest.approx(
        real.arrival_ns * dilation, rel=1e-6, abs=1 + dilation
    )
    assert (np.diff(scaled.arrival_ns) >= 0).all()
    assert real.transfers.size_bytes.max() <= load.largest_bytes + 1


def test_a_seed_draws_the_same_load_and_another_one_another() -> None:
    arrivals = Arrivals(30, 10.0, 1000, 0.5, 1)
    load = RequestLoad("some", arrivals, 1e4, 2, 2, 3, 2)
    assert load.steps().digest == replace(load).steps().digest
    other = replace(load, arrivals=replace(arrivals, seed=2))
    assert load.steps().digest != other.steps().digest


def test_means_are_those_that_are_asked_for() -> None:
    """10 000 requests: the standard error of both means is 1 % or less."""
    arrival_s, tokens, others = Arrivals(10_000, 50.0, 1000, 0.5, 0).drawn(3)
    assert arrival_s[-1] / 10_000 == pytest.approx(1 / 50, rel=0.05)
    assert tokens.mean() == pytest.approx(1000, rel=0.05)
    assert tokens.std() / tokens.mean() == pytest.approx(0.5, rel=0.1)
    assert np.bincount(others) == pytest.approx(10_000 / 3, rel=0.05)


def predicted(steps: Steps, topology: Topology) -> Prediction:
    """Predict with the same latency of all paths."""
    paths = transfer_paths(steps.transfers, Epoch(topology), topology.job_gpus)
    latency = {path_class(hops): LATENCY_S for hops in paths if hops}
    return predict(steps, [Epoch(topology)], latency)


def load_of_four(rate: float) -> RequestSteps:
    """Return two requests of each of two domains, with shards of 1 MB."""
    return RequestLoad("some", Arrivals(4, rate, 100, 0.0, 0), 2e4, 2, 2, 2, 2).steps()


def test_a_wrong_load_cannot_be_built() -> None:
    steps = load_of_four(1.0)
    transfers = steps.transfers
    none = Rows(transfers.after.values[:0], np.zeros(len(transfers) + 1, np.int64))
    with pytest.raises(ScheduleError, match="does not wait for the arrival of its request"):
        replace(steps, transfers=replace(transfers, after=none))
    with pytest.raises(ScheduleError, match="does not arrive at its time"):
        replace(steps, arrival_ns=steps.arrival_ns + 1)
    with pytest.raises(ScheduleError, match="a request has no transfer"):
        replace(steps, arrival_ns=np.append(steps.arrival_ns, 1))


@pytest.mark.parametrize("kind", COMPARED)
def test_requests_that_meet_no_others_take_as_long_as_their_shards(kind: FabricKind) -> None:
    """At one request in a thousand seconds, each has the links for itself, but for their burst."""
    topology = build_topology(spec(kind, 2, 2))
    steps = load_of_four(1e-3)
    found = steps.latencies_s(np.array(predicted(steps, topology).arrival_s))
    nic = next(link for link in topology.links if link.name.startswith("d0g0--rail0"))
    shard_s = wire_bytes(1_000_000) * 8 / nic.rate_bps
    assert (found <= shard_s + LATENCY_S + 1e-6).all()
    assert (found >= shard_s - 2 * nic.depth_s).all()


def test_requests_that_come_at_once_wait_for_each_other() -> None:
    """Requests 0 and 2 have the same pairs of GPUs: the second one comes when the first is done."""
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 2))
    steps = load_of_four(1e9)
    found = steps.latencies_s(np.array(predicted(steps, topology).arrival_s))
    assert 2 * found[0] <= found[2] <= 2 * (found[0] + topology.least_depth_s + LATENCY_S)


ENTRY = "{inference: gpt-1.7b, requests: 5, rate: 100, time_dilation: 20"


@pytest.mark.parametrize(
    ("entry", "more", "message"),
    [
        (
            f"{ENTRY}, tensor: 3}}",
            "",
            "x.yaml:3 workloads.0.tensor: must divide domain_size, 4, got 3 (use a divisor of 4)",
        ),
        (
            f"{ENTRY}, promt: 3}}",
            "",
            "x.yaml:3 workloads.0.promt: unknown key 'promt' (did you mean 'prompt'?)",
        ),
        (
            "{inference: gpt-1.7c, rate: 100, time_dilation: 20}",
            "",
            "x.yaml:3 workloads.0.inference: gpt-1.7c: not found, and no shipped "
            "configuration of this name (did you mean 'gpt-1.7b'?)",
        ),
        (
            "{inference: gpt-1.7b, rate: 0, time_dilation: 20}",
            "",
            "x.yaml:3 workloads.0.rate: must be more than 0, got 0",
        ),
        (
            f"{ENTRY}, token_size: 1000 GB, prompt: 10000}}",
            "",
            "x.yaml:3 workloads.0.requests: KV caches must have at most 1 PB, got 5e+16 bytes "
            "(use fewer, or shorter prompts)",
        ),
        (
            "{inference: gpt-1.7b, requests: 10000, rate: 100, tensor: 4, time_dilation: 1e9}",
            "",
            "x.yaml:3 workloads.0.rate: last request must arrive within a day, got 9.93e+10 s "
            "(use a higher one, or fewer requests)",
        ),
        (
            f"{ENTRY}}}",
            "check_data: true\n",
            "x.yaml:4 check_data: cannot be combined with inference, which has no result to check "
            "(leave it out)",
        ),
    ],
)
def test_mistakes_of_a_request_load_are_named(
    file: Path, entry: str, more: str, message: str
) -> None:
    file.write_text(f"{HEAD}workloads:\n  - {entry}\n{more}")
    with pytest.raises(InputError) as caught:
        load(file)
    assert [str(problem) for problem in caught.value.problems] == [message]


def test_one_hb_domain_has_no_other_that_answers(file: Path) -> None:
    file.write_text(f"{HEAD.replace('domains: 2', 'domains: 1')}workloads:\n  - {ENTRY}}}\n")
    with pytest.raises(InputError) as caught:
        load(file)
    assert [str(problem) for problem in caught.value.problems] == [
        "x.yaml:1 fabric.domains: must be at least 2 for inference, got 1 (answers come from "
        "another HB domain)"
    ]


def test_a_token_has_keys_and_values_of_all_layers_unless_its_size_is_given(file: Path) -> None:
    given = f"{ENTRY}, token_size: 320 kB, kinds: rail-only}}"
    file.write_text(f"{HEAD}workloads:\n  - {ENTRY}, seed: 1, kinds: rail-only}}\n  - {given}\n")
    cases = load(file).cases
    model = load_configuration(Path("gpt-1.7b"))
    token_bytes = 2 * 2 * model.layers * model.hidden
    assert [case.task.size_bytes for case in cases] == pytest.approx(
        [5 * 1024 * token_bytes, 5 * 1024 * 320e3]
    )
    assert [case.name for case in cases] == [
        "rail-only/inference/gpt-1.7b/100-a-second-t4-seed1",
        "rail-only/inference/gpt-1.7b/100-a-second-t4-seed0",
    ]


def late_repeat(
    steps: RequestSteps, end_s: Sequence[float], factor: float, complete: bool = True
) -> Repeat:
    """An execution whose requests took `factor` times as long as modeled."""
    arrival_s = steps.arrival_ns[steps.request] / 1e9
    ends = arrival_s + (np.array(end_s) - arrival_s) * factor
    records = tuple(
        TransferRecord(0, step.id, step.source, step.destination, step.size_bytes, 0, end, end, end)
        for step, end in zip(steps.transfers, np.rint(ends * 1e9).astype(int).tolist(), strict=True)
    )
    return Repeat(0, complete, float(ends.max()), 0.0, 0.0, (), (), records)


def test_latencies_are_in_the_result_the_table_and_the_report(file: Path) -> None:
    file.write_text(f"{HEAD}workloads:\n  - {ENTRY}, kinds: rail-only}}\n")
    scenario = load(file)
    case, topology = scenario.cases[0], build_topology(scenario.fabrics[0])
    steps = case.schedule(scenario.fabrics[0])
    assert isinstance(steps, RequestSteps)
    prediction = predicted(steps, topology)
    late = late_repeat(steps, prediction.arrival_s, 1.25)
    measured = Measured(topology, steps, CaseExecutions((late,)))
    found = compare(case.name, measured, prediction, case.size_scale, Thresholds(0.02, 0.05))
    result = plain(RunResult("id", "some", Path("runs/id"), [found]))
    shown = result["cases"][0]["inference"]
    assert shown["count"] == 5
    for value in shown["latency_s"].values():
        assert value["measured"] == pytest.approx(1.25 * value["modeled"], rel=1e-6)
    (section,) = (one for one in run_sections(result) if one.title.startswith("Requests"))
    assert [row[0] for row in section.rows[1:]] == ["p50", "p90", "p99"]
    out = io.StringIO()
    print_sections(run_sections(result), Console(file=out, width=120))
    assert "5 requests" in out.getvalue()
    assert "1.250" in out.getvalue()


def test_percentiles_are_of_all_requests_of_whole_executions() -> None:
    """By the nearest rank; the load is offered until the last request arrives."""
    steps, topology = load_of_four(20.0), build_topology(spec(FabricKind.RAIL_ONLY, 2, 2))
    prediction = predicted(steps, topology)
    executions = [(3.0, True), (9.0, False), (1.25, True)]
    repeats = [late_repeat(steps, prediction.arrival_s, *one) for one in executions]
    found = request_result(steps, topology, repeats, prediction)
    modeled_s = steps.latencies_s(np.array(prediction.arrival_s))
    ordered = sorted([*(1.25 * modeled_s), *(3.0 * modeled_s)])
    assert len(ordered) == 8
    for name, rank in (("p50", 4), ("p90", 8), ("p99", 8)):
        assert found.latency_s[name].measured == pytest.approx(ordered[rank - 1], rel=1e-6)
    nics_bps = len(topology.gpus) * topology.spec.emulated_nic_bps
    needed_s = 8 * wire_bytes(steps.size_bytes) / nics_bps
    assert found.offered_load == pytest.approx(needed_s / (steps.arrival_ns.max() / 1e9))


def test_the_load_of_the_library_takes_half_of_the_nics_rate() -> None:
    scenario = load(LIBRARY / "inference.yaml")
    case, fabric = scenario.cases[0], scenario.fabrics[0]
    topology = build_topology(fabric)
    steps = case.schedule(fabric)
    assert isinstance(steps, RequestSteps)
    found = request_result(steps, topology, (), predicted(steps, topology))
    assert found.offered_load == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("model", "tensor", "shards"),
    [
        ("gpt-146b", 8, 8),
        ("qwen-3-235b-a22b", 2, 2),
        ("qwen-3-235b-a22b", 8, 4),
        ("deepseek-v3", 8, 1),
    ],
)
def test_a_gpu_sends_its_heads_whole(tmp_path: Path, model: str, tensor: int, shards: int) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(
        "fabric: {domains: 2, domain_size: 8, platform: dgx-h100, bandwidth_scale: 20000}\n"
        f"workloads: [{{inference: {model}, requests: 1, rate: 1, time_dilation: 20000, "
        f"tensor: {tensor}}}]\n"
    )
    task = load(path).cases[0].task
    assert isinstance(task, RequestLoad)
    assert task.largest_bytes == pytest.approx(1024 * task.token_bytes / shards)
    assert task.size_bytes == pytest.approx(tensor * task.largest_bytes)


def test_a_replica_has_equally_many_heads_on_each_gpu(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(
        "fabric: {domains: 2, domain_size: 10, platform: dgx-h100, bandwidth_scale: 20000}\n"
        "workloads: [{inference: gpt-18.4b, rate: 1, time_dilation: 20000, tensor: 5}]\n"
    )
    with pytest.raises(InputError, match=r"tensor: must divide the 48 heads of gpt-18\.4b, got 5"):
        load(path)
