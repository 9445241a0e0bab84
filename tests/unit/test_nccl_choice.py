"""NCCL's choice of an algorithm, and algorithms that are only modeled."""

import json
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from commands.app import app
from model.errors import InputError
from model.fabric.spec import FabricKind
from model.prediction.closed_forms import (
    DOUBLE_TREE,
    NVLS,
    NVLS_SHARP,
    Grid,
)
from model.prediction.nccl_tuning import KNOWN, estimates
from scenarios.library_files import scenario_file
from scenarios.load import load

WORK = "{collective: all-reduce, algorithm: %s, size: %s}"
CHOSEN = f"workloads=[{WORK % ('nccl', '%s')}]"
JOB = "workloads=[{jobs: [{name: a, collective: all-reduce, algorithm: nvls, size: 1 MB}]}]"
A100, MIB = "fabric.platform=dgx-a100", 2**20
# By hand from NCCL's formulas, in us: latency and bytes over bandwidth.
RING_LL128 = (14 + 224 * 1.9 + 30 * 4) + 128 * MIB / (293.6e3 * 128 / 254)
TREE_SIMPLE = (8.4 + 2 * (7 * 4 + 4 * 14)) + 128 * MIB / (0.9 * 288e3 / 2)
NVLS_TREE = (25 + 2 * 4 * 20.9) + 128 * MIB / (8 * 45.5e3 * 128 / 254)
RING_SIMPLE = 1.4 * (8.4 + 28 * 6 + 2 * 14) + 1024 * MIB / (192e3 * 16 / 30)


def test_the_tuning_model_is_that_of_nccl() -> None:
    found = estimates("dgx-h100", 16 * [8], 128 * MIB)
    assert [(one.algorithm, one.protocol) for one in found] == [
        ("NVLS", "Simple"),
        ("tree", "Simple"),
        ("ring", "LL128"),
    ]
    times_us = [one.time_us for one in found]
    assert times_us == pytest.approx([NVLS_TREE, TREE_SIMPLE, RING_LL128])
    assert estimates("dgx-h200", 16 * [8], 128 * MIB) == found
    best = estimates("dgx-a100", [8, 8], 1024 * MIB)[0]
    assert (best.algorithm, best.protocol) == ("ring", "Simple")
    assert best.time_us == pytest.approx(RING_SIMPLE)


@pytest.mark.parametrize(
    ("platform", "gpus", "algorithm", "time_us"),
    [
        # 12 rings of 30: the log of an H100 node (NCCL issue 1367). Each GPU's NVLinks, 370.8, are
        # for 9 of 40; NVLS has 2 x 0.85 x 7/8 of that.
        ("dgx-h100", [8], "NVLS", 25 + 1024 * MIB / (476e3 * 8 / 14)),
        ("dgx-h100", [8], "ring", 8.4 + 14 * 3.4 + 1024 * MIB / (360e3 * 8 / 14)),
        ("dgx-h100", [8], "tree", 8.4 + 14 * 4 + 1024 * MIB / (12 * 27.6e3 / 2)),
        ("dgx-h100", [4], "NVLS", 25 + 1024 * MIB / (240e3 * 4 / 6)),
        ("dgx-h100", [2], "NVLS", 25 + 1024 * MIB / 102e3),
        ("dgx-a100", [8], "tree", 8.4 + 14 * 4 + 1024 * MIB / (12 * 18.4e3 / 2)),
        # Eight rings of 24 on four NICs: less than what LL128 allows.
        (
            "dgx-h100", 4 * [4], "ring",
            min(
                14 + 24 * 1.9 + 6 * 4 + 1024 * MIB / (0.92 * 192e3 * 16 / 30),
                1.4 * (8.4 + 24 * 3.4 + 6 * 14) + 1024 * MIB / (192e3 * 16 / 30),
            ),
        ),
        ("dgx-a100", [8, 8], "tree", 8.4 + 2 * (7 * 4 + 14) + 1024 * MIB / (8 * 23.6e3 / 2)),
        # A rate of 24 is too low to cut few channels in two.
        ("dgx-a100", [4, 4], "tree", 8.4 + 2 * (3 * 4 + 14) + 1024 * MIB / (4 * 23.6e3 / 2)),
        # One GPU has two channels of 24 to other nodes; all of them use as many.
        ("dgx-h100", [8, 8, 8, 1], "ring",
            1.4 * (8.4 + 42 * 3.4 + 6 * 14) + 1024 * MIB / (48e3 * 25 / 48)),
        ("dgx-h100", [8, 8, 8, 1], "tree",
            8.4 + 2 * (5 * 4 + 2 * 14) + 1024 * MIB / (0.85 * 0.92 * 48e3 / 2)),
        # Of five channels of 48 and eight of 24, the fewest and the lowest rate.
        ("dgx-h100", [5, 4], "ring",
            1.4 * (8.4 + 14 * 3.4 + 2 * 14) + 1024 * MIB / (120e3 * 9 / 16)),
        # Four channels, of which eight GPUs' NVLinks carry 40.
        ("dgx-h100", [8, 4], "NVLS", 25 + 2 * 20.9 + 1024 * MIB / (204e3 * 12 / 22)),
    ],
)  # fmt: skip
def test_channels_are_those_that_nccl_finds(
    platform: str, gpus: list[int], algorithm: str, time_us: float
) -> None:
    found = {one.algorithm: one.time_us for one in estimates(platform, gpus, 1024 * MIB)}
    assert found[algorithm] == pytest.approx(time_us)


@pytest.mark.parametrize(
    ("platform", "gpus", "size", "ring_us", "tree_us"),
    [
        # Within a node, no message has an overhead; a tree has 0.9 of its rate at 1 KiB.
        ("dgx-h100", [8], 1024, 6.6 + 14 * 0.6 + 1024 / (141e3 * 8 / 14),
            6.8 + 14 * 0.6 + 1024 / (0.9 * 12 * 27.6e3 / 3.8 / 2)),
        # Between nodes, 2 us of an AMD processor are longer than a step over NVLink, and its LL
        # carries 22.5 in all; a tree has 0.6 of that at 64 KiB.
        ("dgx-a100", [8, 8], MIB // 16, 6.6 + 28 * 2 + 2 * 2.7 + MIB / 16 / (22.5e3 * 16 / 30),
            6.8 + 2 * (7 * 0.6 + 5) + MIB / 16 / (0.6 * 22.5e3 / 2)),
    ],
)  # fmt: skip
def test_small_sizes_cost_latency_in_protocol_ll(
    platform: str, gpus: list[int], size: int, ring_us: float, tree_us: float
) -> None:
    found = {one.algorithm: one for one in estimates(platform, gpus, size)}
    assert (found["ring"].protocol, found["tree"].protocol) == ("LL", "LL")
    assert found["ring"].time_us == pytest.approx(ring_us)
    assert found["tree"].time_us == pytest.approx(tree_us)


@pytest.mark.parametrize(
    ("size", "protocol", "time_us"),
    [
        (MIB // 64, "LL", 6.8 + 8 * 5 + MIB / 64 / (0.85 * 0.7 * 44.16e3 / 3.8 / 2)),
        (MIB, "LL128", 14 + 8 * 8.5 + MIB / (0.85 * 0.6 * 41.4e3 / 2)),
        (1024 * MIB, "Simple", 8.4 + 8 * 14 + 1024 * MIB / (0.85 * 44.16e3 / 2)),
    ],
)
def test_a_tree_of_nodes_with_one_gpu_has_less_of_its_rate_in_each_protocol(
    size: int, protocol: str, time_us: float
) -> None:
    found = {one.algorithm: one for one in estimates("dgx-h100", 16 * [1], size)}
    assert found["tree"].protocol == protocol
    assert found["tree"].time_us == pytest.approx(time_us)


@given(
    st.sampled_from(sorted(KNOWN)),
    st.integers(1, 512),
    st.lists(st.integers(1, 8), min_size=1, max_size=4),
    st.integers(1, 2**40),
)
def test_each_algorithm_is_estimated_once_and_nvls_where_switches_reduce(
    platform: str, count: int, gpus: list[int], size: int
) -> None:
    assume(count * sum(gpus) > 1)
    found = estimates(platform, count * gpus, size)
    assert found == sorted(found, key=lambda one: one.time_us)
    has_nvls = ["NVLS"] if platform != "dgx-a100" and min(gpus) > 1 else []
    assert sorted(one.algorithm for one in found) == [*has_nvls, "ring", "tree"]


def test_trees_serve_small_sizes_of_many_nodes_and_rings_large_ones() -> None:
    best = [estimates("dgx-a100", 16 * [8], size * MIB)[0].algorithm for size in (1, 16384)]
    assert best == ["tree", "ring"]


def test_the_choice_is_named_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    options = [word for value in (A100, CHOSEN % "1 GiB") for word in ("--set", value)]
    app(["predict", "quickstart", *options, "--json"], standalone_mode=False)
    case = json.loads(capsys.readouterr().out)["cases"][0]
    assert (case["case"], case["algorithm"]) == ("rail-only/all-reduce/nccl/rings", "rings")
    assert case["reason"].startswith("NCCL 2.30.7's tuning model chooses ring (Simple, ")
    app(["check", "quickstart", *options], standalone_mode=False)
    assert case["reason"] in " ".join(capsys.readouterr().out.split())


def test_every_size_of_a_range_has_its_own_choice(capsys: pytest.CaptureFixture[str]) -> None:
    """All of them are in NCCL's own table, beside those of algorithms that are named."""
    named = "double-binary-tree", "rings"
    works = ", ".join(WORK % (name, "1 MiB") for name in ("nccl", *named))
    options = ["--set", A100, "--set", f"workloads=[{works}]", "--set", "fabric.kinds=rail-only"]
    sizes = ["--like", "nccl-tests", "--begin", "1 MiB", "--end", "8 MiB"]
    app(["predict", "quickstart", *options, *sizes], standalone_mode=False)
    tables = capsys.readouterr().out.split("# Railbed: rail-only/all-reduce/")[1:]
    chosen, tree, rings = (
        [line.split()[5] for line in table.splitlines() if line.startswith(" ")] for table in tables
    )
    assert len(chosen) == 4
    assert chosen[0] == tree[0] != rings[0]
    assert chosen[3] == rings[3] != tree[3]
    told = [line for line in tables[0].splitlines() if "tuning model chooses" in line]
    assert told[0].startswith("# 1048576 B: NCCL 2.30.7's tuning model chooses tree ")
    assert told[3].startswith("# 8388608 B: NCCL 2.30.7's tuning model chooses ring ")
    assert "chooses" not in tables[1] + tables[2]


@pytest.mark.parametrize("options", [[], ["--like", "nccl-tests", "--end", "8 MiB"]])
def test_what_no_fabric_can_execute_is_marked(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    works = ", ".join(WORK % (name, "1 GiB") for name in ("nvls-sharp", "rings"))
    changes = ["--set", f"workloads=[{works}]", "--set", "fabric.kinds=rail-only"]
    app(["predict", "quickstart", *changes, *options], standalone_mode=False)
    said = capsys.readouterr().out
    told = (
        "rail-only/all-reduce/nvls-sharp: only modeled: switches reduce, which cannot be emulated"
    )
    assert said.count("only modeled") == said.count(told) == 1


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ([CHOSEN % "128 MiB"], "nvls is only modeled: switches reduce, .*chooses NVLS"),
        ([(CHOSEN % "1 MB").replace("nccl", "nvls-sharp")], "nvls-sharp is only modeled"),
        ([CHOSEN % "1 MB", "fabric.platform=mi300x"], "needs platform dgx-a100 or dgx-h100"),
        ([CHOSEN % "1 MB", "fabric.nics_per_domain=2"], "needs one NIC for each GPU, got 2 for 4"),
        ([CHOSEN % "1 MB", "fabric.nics_per_domain=8"], "needs one NIC for each GPU, got 8 for 4"),
        ([CHOSEN % "1 MB", "fabric.domain_size=9"], "needs at most 8 GPUs in a domain, got 9"),
        ([CHOSEN % "1 MB, communicator: rails"], "nccl needs all GPUs"),
        ([JOB], "algorithm: must be ring or"),
    ],
)
def test_what_cannot_be_executed_or_chosen_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        load(scenario_file(Path("quickstart")), overrides)


@given(st.integers(4, 72), st.integers(2, 256), st.floats(1e6, 1e11))
def test_a_switch_that_reduces_saves_bytes(x: int, y: int, size: float) -> None:
    grid = Grid(x, y, hb=450e9, nic=50e9, slices=16)
    by_gpus, by_hb, by_all = (
        form.completion_s(FabricKind.RAIL_ONLY, grid, size)
        for form in (DOUBLE_TREE, NVLS, NVLS_SHARP)
    )
    assert by_all <= by_hb * (1 + 1e-9)
    assert by_hb <= by_gpus * (1 + 1e-9)
    # A GPU sends everything once; along the rail, its part of it once instead of 2(y-1)/y times.
    assert by_all >= max((1 + 1 / x) * size / grid.hb, size / x / grid.nic)


@given(st.integers(3, 72), st.integers(2, 512), st.floats(1e3, 1e11))
def test_nvls_between_domains_is_never_slower_than_the_tree_alone(
    x: int, y: int, size: float
) -> None:
    """As NCCL's model says: switches spare the domains' steps, and the trees are the same."""
    grid = Grid(x, y, hb=450e9, nic=50e9, slices=16, hb_s=5e-8, nic_s=1e-6)
    tree, nvls = (
        form.completion_s(FabricKind.RAIL_ONLY, grid, size) for form in (DOUBLE_TREE, NVLS)
    )
    assert nvls <= tree * (1 + 1e-9)


def test_communicators_of_modeled_algorithms_are_checked() -> None:
    """Domains of one GPU each have no communicators."""
    domains = (CHOSEN % "1 MB, communicator: domains").replace("nccl", "nvls")
    single = "fabric.domain_size=1"
    with pytest.raises(InputError, match="communicator: must have two GPUs or more"):
        load(scenario_file(Path("quickstart")), [domains, single], on_paper=True)


def test_modeled_algorithms_have_no_times_on_other_fabrics() -> None:
    nvls = (CHOSEN % "1 MB").replace("nccl", "nvls")
    with pytest.raises(InputError, match="has no closed form on such a fabric"):
        app(
            ["predict", "quickstart", "--set", nvls, "--set", "fabric.oversubscription=2"],
            standalone_mode=False,
        )
