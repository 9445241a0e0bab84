"""The benchmarks' own arithmetic; their measurements need a fabric."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer import Exit

from model.errors import EmulationError, OutOfTolerance
from scenarios.benchmarks.common.rows import FAILED, SIXTEEN, Row, part, sized
from scenarios.benchmarks.common.seen import is_judged_right
from scenarios.benchmarks.growth import exchange_size
from scenarios.cli.bench import bench
from scenarios.library import LIBRARY
from scenarios.loader import load
from traffic_gen.agents.program import programs_of
from traffic_gen.workloads.point_to_point import streams

sizes = st.tuples(st.integers(2, 32), st.integers(2, 8))


@pytest.mark.parametrize(
    ("error", "right"),
    [
        (0.01, {"pass", "warn"}),
        (0.019, {"pass", "warn"}),
        (0.02, {"pass", "warn", "fail"}),
        (0.03, {"pass", "warn", "fail"}),
        (0.031, {"warn", "fail"}),
        (0.08, {"warn", "fail"}),
        (0.081, {"fail"}),
        (3.0, {"fail"}),
    ],
)
def test_a_verdict_is_right_if_it_turns_in_time_and_not_too_early(
    error: float, right: set[str]
) -> None:
    verdicts = ("pass", "warn", "fail")
    assert {verdict for verdict in verdicts if is_judged_right(error, verdict)} == right


def test_a_part_that_ends_early_is_a_row_that_says_so() -> None:
    def rows() -> Iterator[Row]:
        yield {"case": "first"}
        raise OutOfTolerance("a link is slow\nwhat to do")

    assert list(part(rows(), gpus=16)) == [
        {"gpus": 16, "case": "first"},
        {"gpus": 16, FAILED: "a link is slow"},
    ]
    assert issubclass(OutOfTolerance, EmulationError)


@given(sizes)
def test_fabrics_of_all_sizes_have_the_same_sum_of_links(size: tuple[int, int]) -> None:
    spec = sized(*size)
    total = SIXTEEN.emulated_nic_bps * SIXTEEN.gpus
    assert spec.gpus == size[0] * size[1]
    assert spec.emulated_nic_bps * spec.gpus == pytest.approx(total, rel=1e-4)


@given(sizes)
def test_the_growth_benchmark_keeps_nics_busy_for_as_long_in_every_size(
    size: tuple[int, int],
) -> None:
    spec = sized(*size)
    across = exchange_size(spec) * (spec.domains - 1) / spec.domains
    assert across * 8 * 1514 / 1448 / spec.emulated_nic_bps == pytest.approx(10, rel=1e-3)


def test_the_self_check_lasts_as_long_at_every_rate() -> None:
    slow = load(LIBRARY / "self-check.yaml")
    fast = load(LIBRARY / "self-check.yaml", ["fabric.bandwidth_scale=800"])
    for one, other in zip(slow.cases, fast.cases, strict=True):
        assert other.emulated_bytes == pytest.approx(25 * one.emulated_bytes, rel=1e-6)


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(8, 15)), unique=True), st.integers(1, 3))
def test_every_transfer_of_streams_is_sent_and_received_once(
    pairs: list[tuple[int, int]], rounds: int
) -> None:
    sent = streams([(source, destination, 1000) for source, destination in pairs], rounds)
    built = programs_of(range(16), sent, dict.fromkeys(pairs, "address"))
    begun = sorted(entry[0] for program in built.values() for entry in program["sends"])
    received = sorted(entry[0] for program in built.values() for entry in program["receives"])
    assert begun == received == list(range(len(pairs) * rounds))
    for rank, program in built.items():
        assert program["rank"] == rank
        assert set(program["peers"]) == {entry[1] for entry in program["sends"]}


@pytest.mark.parametrize(("judged", "exit_code"), [((True, True), 0), ((True, False), 1)])
def test_a_benchmark_with_a_wrong_verdict_fails(
    judged: tuple[bool, ...],
    exit_code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def routing(_store: Path) -> Iterator[Row]:
        yield from ({"judged_right": right} for right in judged)

    monkeypatch.setattr("scenarios.benchmarks.benchmarks", lambda *_: {"routing": routing})
    with pytest.raises(Exit) as left:
        bench("routing", store=tmp_path)
    assert left.value.exit_code == exit_code
    assert capsys.readouterr().out.count("judged_right") == len(judged)


def test_a_benchmark_of_another_size_is_the_same_platform() -> None:
    assert sized(4, 4) == SIXTEEN
