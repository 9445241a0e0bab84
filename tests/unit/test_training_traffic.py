"""The traffic of a training iteration: against closed forms, the paper, and its own command."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands.decide import decide
from commands.traffic import traffic as traffic_command
from commands.train import train as train_command
from model.errors import InputError
from model.training.job import Job, cluster_of
from model.training.search import best
from model.training.strategy import Wish
from model.training.traffic import Dimension, Flows, Traffic, traffic
from model.training.transformer import Experts, Recomputation, Transformer
from results.figures.kit import drawing
from results.figures.paper import draw_heat_map, draw_pairs
from results.sections.section import human_bytes
from scenarios.format.training import evaluated, load_configuration


def traffic_of(name: str) -> Traffic:
    configuration = load_configuration(Path(name))
    return traffic(configuration.job, evaluated(name, configuration).strategy)


@st.composite
def jobs(draw: st.DrawFn, *, dense: bool = False) -> tuple[Job, Traffic]:
    """A job with its traffic; a dense one has no experts and no interleaving."""
    experts = None if dense else draw(st.sampled_from([None, Experts(2, 4, 2)]))
    transformer = Transformer(8, 512, 8, 512, 32000, experts)
    gpus, domain_size = draw(st.sampled_from([16, 32, 64])), draw(st.sampled_from([2, 4, 8]))
    cluster = cluster_of("dgx-h100", gpus, domain_size)
    job = Job(transformer, 64, draw(st.sampled_from(list(Recomputation))), cluster)
    degrees = st.sampled_from([1, 2]) if experts else st.sampled_from([1, 2, 4])
    interleave = 1 if dense else None
    found = best(job, Wish(draw(degrees), draw(degrees), interleave, expert=4 if experts else 1))
    assert found is not None
    return job, traffic(job, found.strategy)


@given(jobs())
@settings(max_examples=60, deadline=None)
def test_bytes_are_conserved(made: tuple[Job, Traffic]) -> None:
    job, found = made
    total = sum(flows.total for flows in found.flows.values())
    assert found.hb_bytes() + found.nic_bytes() == pytest.approx(total)
    assert found.cross_rail_bytes() <= found.nic_bytes()
    matrix = found.matrix()
    assert matrix.shape == (job.cluster.gpus, job.cluster.gpus)
    assert matrix.sum() == pytest.approx(total)
    assert not np.diagonal(matrix).any()
    assert (matrix > 0).sum() == found.pairs_with_traffic(*Dimension)


@given(jobs())
@settings(max_examples=60, deadline=None)
def test_no_ring_of_gradients_leaves_its_rail(made: tuple[Job, Traffic]) -> None:
    job, found = made
    of_data = {Dimension.DATA: found.flows[Dimension.DATA]}
    rings = Traffic(job.cluster.gpus, job.cluster.domain_size, of_data)
    assert rings.cross_rail_bytes() == 0


@given(jobs(), st.integers(1, 64))
@settings(max_examples=30, deadline=None)
def test_the_first_gpus_are_a_corner_of_the_matrix(made: tuple[Job, Traffic], first: int) -> None:
    _, found = made
    shown = min(first, found.gpus)
    assert np.array_equal(found.matrix(1, shown), found.matrix()[:shown, :shown])


@given(jobs())
@settings(max_examples=60, deadline=None)
def test_every_gpu_sends_what_it_receives(made: tuple[Job, Traffic]) -> None:
    _, found = made
    matrix = found.matrix()
    assert matrix.sum(axis=0) == pytest.approx(matrix.sum(axis=1))


@given(jobs(dense=True))
@settings(max_examples=60, deadline=None)
def test_dense_models_do_not_leave_their_rails(made: tuple[Job, Traffic]) -> None:
    assert made[1].cross_rail_bytes() == 0


def test_gpt_1t_has_the_papers_volumes() -> None:
    """Figure 3: about 6 GB a GPU of gradients; the pipeline sends 6.6 GB in each direction."""
    found = traffic_of("gpt-1t")
    each = {dimension: flows.total / found.gpus for dimension, flows in found.flows.items()}
    assert each[Dimension.DATA] == pytest.approx(6.56e9, rel=0.001)
    assert each[Dimension.PIPELINE] / 2 == pytest.approx(63 / 64 * 512 * 2 * 2048 * 25600 / 8)
    assert found.cross_rail_bytes() == 0


@pytest.mark.parametrize("name", ["gpt-146b", "gpt-310b", "gpt-530b", "gpt-1t"])
def test_almost_all_pairs_are_idle(name: str) -> None:
    """Figure 2: 99 % of the pairs without traffic, 75 % of the bytes tensor-parallel."""
    found = traffic_of(name)
    assert found.pairs_with_traffic(*Dimension) < 0.01 * found.pairs
    assert found.flows[Dimension.TENSOR].total > 0.75 * found.every.total


def test_tensor_parallel_rings_have_one_pair_a_gpu() -> None:
    found = traffic_of("gpt-1t")
    assert found.pairs_with_traffic(Dimension.TENSOR) == found.gpus


def test_experts_send_to_every_peer() -> None:
    found = traffic_of("moe-1.3b")
    assert found.pairs_with_traffic(Dimension.EXPERT) == found.pairs == 128 * 127
    tokens, once = 512 / 128 * 2048, 2 * 2048
    expected = 128 * 12 * 4 * tokens * once * 127 / 128
    assert found.flows[Dimension.EXPERT].total == pytest.approx(expected)


def test_the_command_prints_one_object_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traffic_command(Path("moe-1.3b"), figure=tmp_path / "map", as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "railbed.traffic/1"
    assert set(found["bytes"]) == {"tensor", "context", "data", "pipeline", "expert"}
    assert (found["pairs"], found["idle_pairs"]) == (128 * 127, 0)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert "HB domains" in (tmp_path / "map.svg").read_text()


def test_the_command_says_of_which_strategy_the_bytes_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    traffic_command(Path("gpt-146b"), batch=1152)
    said = capsys.readouterr().out.splitlines()
    train_command(Path("gpt-146b"), batch=1152)
    (strategy,) = (line for line in capsys.readouterr().out.splitlines() if "strategy:" in line)
    assert strategy in said
    assert "batch 1152 of 2048 tokens" in said


def test_a_large_domain_is_drawn_in_part(tmp_path: Path) -> None:
    """All pairs of the ideal network, one domain, take memory and cannot be seen."""
    one = np.zeros(1, int)
    ideal = Traffic(4096, 4096, {Dimension.DATA: Flows(one, one + 4095, one + 1.0)})
    draw_heat_map(ideal, "ideal", tmp_path / "map")
    drawn = (tmp_path / "map.svg").read_text()
    assert "ideal: all 4096 GPUs" in drawn
    assert "the first 512; lines: HB domains, dots: rails" in drawn


@pytest.mark.parametrize("times", [1, 1.03, 1.07, 1.9, 2, 1000])
def test_labels_of_a_colour_bar_are_apart(times: float) -> None:
    with drawing(3, 7) as figure:
        for place in (121, 122):
            sizes = np.array([[0, 938e3], [938e3 * times, 0]])
            draw_pairs(figure.add_subplot(place), sizes, 2, (), "Greys")
        figure.draw_without_rendering()
        bars = figure.axes[1::2]
        assert len(bars) == 2
        for bar in bars:
            labels = [one for one in bar.get_yticklabels() if one.get_text()]
            boxes = sorted((one.get_window_extent() for one in labels), key=lambda box: box.y0)
            assert all(low.y1 < high.y0 for low, high in pairwise(boxes))
            assert labels[0].get_text().startswith("938 kB")
            assert labels[-1].get_text().endswith(human_bytes(938e3 * times))


def test_the_part_of_a_domain_that_degrees_fill_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As `train` tells it: 72 does not divide 1536 GPUs, 64 does."""
    traffic_command(Path("gpt-146b"), domain_size=72, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["domain_size"], found["used_of_domain"]) == (72, 64)
    for of_command in (train_command, traffic_command):
        of_command(Path("gpt-146b"), domain_size=72)
        assert "1536 GPUs in HB domains of 72, of which the degrees fill 64" in " ".join(
            capsys.readouterr().out.split()
        )


def test_one_gpu_is_no_gpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = "{layers: 1, hidden: 64, heads: 1, sequence: 64, vocabulary: 64, batch: 1, gpus: 1"
    (tmp_path / "own.yaml").write_text(f"{small}, platform: dgx-h100}}")
    traffic_command(tmp_path / "own.yaml")
    assert "\n1 GPU in HB domains of 1\n" in capsys.readouterr().out
    (tmp_path / "own.yaml").write_text(f"{small}, platform: dgx-h100, strategy: {{tensor: 2}}}}")
    with pytest.raises(InputError, match="1 GPU, 1 layer, 1 head and a batch of 1 sequence evenly"):
        traffic_command(tmp_path / "own.yaml")
    (tmp_path / "cluster.yaml").write_text(
        "{gpus: 1, platform: dgx-h100, radix: 4, models: [{configuration: gpt-1.7b, batch: 1}]}"
    )
    decide(tmp_path / "cluster.yaml")
    assert "With HB domains of 1 GPU, no network costs less" in capsys.readouterr().out


def test_too_many_pairs_are_refused_before_they_take_memory() -> None:
    with pytest.raises(InputError, match="pairs of GPUs in all-to-alls, got 134217728"):
        traffic_command(Path("moe-1.3b"), gpus=2**20, batch=2**22)


@pytest.mark.parametrize("name", ["gpt-1t", "moe-1.3b"])
def test_gpus_that_share_a_nic_have_their_part_of_its_rate(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """As if all NICs were slower; `decide` counts them so, too."""
    found = list[dict[str, Any]]()
    for shared in (1, 2):
        train_command(Path(name), gpus_per_nic=shared, as_json=True)
        found.append(json.loads(capsys.readouterr().out))
    job = load_configuration(Path(name), {}).job
    slower = replace(job, cluster=replace(job.cluster, nic=job.cluster.nic / 2))
    expected = evaluated(name, load_configuration(Path(name), {}), job=slower)
    assert found[1]["iteration_s"] == pytest.approx(expected.iteration_s)
    assert found[1]["iteration_s"] > found[0]["iteration_s"]
    assert [one["gpus_per_nic"] for one in found] == [1, 2]


@given(jobs(), st.integers(0, 3))
def test_rails_that_share_nics_are_crossed_by_less(made: tuple[Job, Traffic], power: int) -> None:
    """None is crossed if a domain has one NIC."""
    found, shared = made[1], 2**power
    assert found.cross_rail_bytes(2 * shared) <= found.cross_rail_bytes(shared) * (1 + 1e-9)
    assert found.cross_rail_bytes(found.domain_size) == 0


@pytest.mark.parametrize("command", [train_command, traffic_command])
def test_gpus_that_share_a_nic_are_of_one_domain(command: Callable[..., None]) -> None:
    message = "--gpus-per-nic: must divide the 8 GPUs of an HB domain, got 3"
    with pytest.raises(InputError, match=message):
        command(Path("gpt-1t"), gpus_per_nic=3)
    with pytest.raises(InputError, match="--run: cannot be combined"):
        traffic_command(run="latest", gpus_per_nic=2)


def test_a_table_of_traffic_says_how_many_gpus_share_a_nic(
    capsys: pytest.CaptureFixture[str],
) -> None:
    traffic_command(Path("gpt-1t"), gpus_per_nic=2)
    assert "3072 GPUs in HB domains of 8, 2 a NIC\n" in capsys.readouterr().out
