"""The platform's time on paper: closed forms, published framing, the command `predict`."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from commands.app import app
from commands.check import described
from model.errors import InputError
from model.fabric.build import build_topology
from model.fabric.spec import COMPARED, FabricKind
from model.fabric.topology import LinkKind
from model.fabric.transport import Roce, Transport
from model.prediction.platform_time import FRAMINGS, platform_time
from model.workload.transfers.collective import Collective
from model.workload.transfers.lanes import spread
from scenarios.library_files import LIBRARY, scenario_file
from scenarios.load import load, load_trace
from scenarios.planning import on_paper
from scenarios.planning.on_paper import CaseOnPaper, closed_time, usual_s
from scenarios.planning.plan import real_task
from tests.unit.fabrics import assume_accepted, spec
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS
from traffic_gen.workloads.sized_collective import Peers, SizedCollective

PEERS = st.sampled_from([1, 2, 3, 5, 8, "all"])
USUAL = FRAMINGS["roce"](4096)
SIZE = 128 * 2**20
NAMES, UNITS = ("time", "algbw", "busbw", "#wrong"), ("(us)", "(GB/s)", "(GB/s)")
RING = "workloads=[{collective: all-reduce, algorithm: ring, size: 128 MiB}]"
RATES = {"hb_rate": "3.6 Tbit/s", "nic_rate": "400 Gbit/s"}
# 2(n-1) steps of D/n at 50 Gbyte/s and two links of 0.5 us, in ms.
RINGS_MS = {16: 5.063, 64: 5.411, 256: 5.858, 1024: 7.409}


def predicted(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    app(["predict", *arguments, "--json"], prog_name="railbed", standalone_mode=False)
    return dict(json.loads(capsys.readouterr().out))


def cases(*overrides: str, link_s: float | None = None, framing: str = "none") -> list[CaseOnPaper]:
    scenario = load(scenario_file(Path("quickstart")), overrides, on_paper=True)
    found, problems = on_paper.on_paper(scenario, FRAMINGS[framing](4096), link_s)
    assert not problems
    return found


@given(
    named=st.sampled_from(list(ALGORITHMS)),
    kind=st.sampled_from(COMPARED),
    domains=st.integers(1, 6),
    size=st.integers(1, 6),
    link_s=st.floats(0, 1e-3),
    peers=PEERS,
    pxn=st.booleans(),
    queue_pairs=st.sampled_from([1, 16]),
    size_bytes=st.sampled_from([1, 1000, 2**16, 10**6, SIZE]),
    ports=st.sampled_from([1, 2]),
)
def test_a_closed_form_is_the_time_of_all_transfers_followed(
    named: tuple[Collective, str],
    kind: FabricKind,
    domains: int,
    size: int,
    link_s: float,
    peers: Peers,
    pxn: bool,
    queue_pairs: int,
    size_bytes: int,
    ports: int,
) -> None:
    assume(domains * size > 1)
    assume_accepted(named, domains, size)
    at_once = peers if ALGORITHMS[named].takes_peers else 1
    task = SizedCollective(*named, (domains, size), size_bytes, peers=at_once)
    on = spec(kind, domains, size, spines=domains, pxn=pxn and ports == 1, ports=ports)
    roce = Roce(queue_pairs=queue_pairs, split=queue_pairs > 1)
    real = real_task(task, replace(on, transport=Transport.ROCE, roce=roce))
    latencies, framing = dict.fromkeys(LinkKind, link_s), FRAMINGS["roce"](4096)
    topology = build_topology(real.spec)
    sent = spread(real.task.transfers(), real.spec)
    followed = platform_time(sent, topology, latencies, framing)
    closed = closed_time(real, latencies, framing)
    assert closed.completion_s == pytest.approx(followed.completion_s, rel=1e-4)
    assert closed.latency_s == pytest.approx(followed.latency_s, rel=1e-4, abs=1e-9)
    assert followed.lower_bound_s is not None
    assert followed.lower_bound_s <= followed.completion_s * (1 + 1e-9)


@given(
    named=st.sampled_from(list(ALGORITHMS)),
    domains=st.integers(1, 5),
    size=st.integers(1, 5),
    peers=PEERS,
    communicator=st.sampled_from(["all", "rails", "domains"]),
)
def test_loads_are_those_of_the_transfers(
    named: tuple[Collective, str], domains: int, size: int, peers: Peers, communicator: str
) -> None:
    assume({"all": domains * size, "rails": domains, "domains": size}[communicator] > 1)
    assume_accepted(named, domains, size)
    at_once = peers if ALGORITHMS[named].takes_peers else 1
    task = SizedCollective(*named, (domains, size), SIZE, communicator=communicator, peers=at_once)
    assume(task.is_accepted)
    loads, transfers = (
        sorted(np.stack([sent.source, sent.destination, sent.size_bytes], axis=1).tolist())
        for sent in (task.loads(), task.transfers())
    )
    assert loads == transfers


@pytest.mark.parametrize(("gpus", "milliseconds"), RINGS_MS.items())
def test_a_ring_costs_a_latency_a_step(
    gpus: int, milliseconds: float, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = [f"fabric.domains={gpus // 8}", "fabric.domain_size=8", "fabric.kinds=rail-only", RING]
    options = [word for value in grid for word in ("--set", value)]
    result = predicted(capsys, "quickstart", *options, "--latency", "0.5us", "--framing", "none")
    (case,) = result["cases"]
    assert case["completion_s"] * 1e3 == pytest.approx(milliseconds, rel=1e-3)
    assert case["latency_s"] == pytest.approx(2 * (gpus - 1) * 1e-6)
    assert case["busbw"] == pytest.approx(2 * (gpus - 1) / gpus * case["algbw"])
    assert case["busiest_link"] == "d0g7 -> rail7"


@pytest.mark.parametrize(
    ("algorithm", "gpus", "milliseconds"),
    [
        ("rings", 16, 0.629),  # 2(n-1)/n of the buffer over eight NICs
        ("rings", 1024, 0.670),
        ("hierarchical", 16, 0.858),
        ("hierarchical-pipelined", 16, 0.522),  # 2(x-1)/x over an HB link
        ("hierarchical-pipelined", 1024, 0.796),
    ],
)
def test_all_nics_and_slices_hide_what_they_can(
    algorithm: str, gpus: int, milliseconds: float
) -> None:
    grid = [f"fabric.domains={gpus // 8}", "fabric.domain_size=8", RING.replace("ring", algorithm)]
    for case in cases(*grid, link_s=0.5e-6):
        bare_s = case.completion_s - case.latency_s
        assert bare_s * 1e3 == pytest.approx(milliseconds, rel=2e-3), case.case


def test_each_part_of_a_transfer_is_a_message() -> None:
    """With 1 KiB for each of 16 queue pairs, instead of 16 KiB, in packets of up to 4 KiB."""
    ring = "workloads=[{collective: all-reduce, algorithm: ring, size: 256 KiB}]"
    roce = "{queue_pairs: %d, split_data: %s}"
    fabric = ["fabric.kinds=rail-only", "fabric.transport=roce", ring]
    one, several = (
        cases(*fabric, f"fabric.roce={roce % keys}", link_s=0.0, framing="roce")[0].completion_s
        for keys in ((1, "false"), (16, "true"))
    )
    packet = USUAL.header_bytes
    message_bytes = [
        2**14 + 4 * packet + USUAL.first_bytes,
        2**14 + 16 * (packet + USUAL.first_bytes),
    ]
    assert several / one == pytest.approx(message_bytes[1] / message_bytes[0])


def test_partners_at_once_hide_each_others_latencies() -> None:
    """All at once, 512 GPUs cost one latency; with 16 at once, 32, with one, one for each."""
    case = "workloads=[{collective: all-to-all, algorithm: direct, peers: %s, size: 128 MiB}]"
    grid = ["fabric.domains=64", "fabric.domain_size=8", "fabric.kinds=rail-only"]
    latencies_us = {"all": 2, 16: 32 * 2, 1: 63 + 441 * 2}
    for peers, latency_us in latencies_us.items():
        (found,) = cases(*grid, case % peers, link_s=0.5e-6)
        assert found.latency_s * 1e6 == pytest.approx(latency_us, rel=1e-6)
        assert found.completion_s - found.latency_s == pytest.approx(2.642e-3, rel=1e-3)


def test_a_packet_of_each_framing_has_its_published_headers() -> None:
    headers = {name: make(4096).header_bytes for name, make in FRAMINGS.items()}
    assert headers == {"roce": 82, "infiniband": 26, "tcp": 90, "none": 0}
    assert FRAMINGS["tcp"](1500).payload_bytes == 1448
    assert [make(4096).wire_bytes(0) for make in FRAMINGS.values()] == [0] * len(FRAMINGS)


def test_framing_takes_its_part_of_nic_links_alone() -> None:
    over_nics, within = [RING, "fabric.domain_size=1"], [RING, "fabric.domains=1"]
    for overrides, efficiency in ((over_nics, 4096 / 4178), (within, 1.0)):
        (bare, *_), (framed, *_) = (
            cases(*overrides, link_s=0.0, framing=framing) for framing in ("none", "roce")
        )
        assert bare.completion_s / framed.completion_s == pytest.approx(efficiency)


def test_the_platforms_latencies_are_those_of_its_links() -> None:
    (case, *_) = cases(RING, "fabric.domains=2", "fabric.domain_size=1")
    assert case.latency_s == pytest.approx(2 * 2 * 500e-9)
    (case, *_) = cases(RING, "fabric.domains=1", "fabric.domain_size=2")
    assert case.latency_s == pytest.approx(2 * 2 * 25e-9)


def test_beyond_what_can_be_followed_no_link_is_named() -> None:
    many = ["fabric.domains=8192", "fabric.domain_size=8"]
    case = cases(RING, *many)[0]
    assert (case.busiest_link, case.lower_bound_s, case.gpus) == (None, None, 65536)
    gather = "workloads=[{collective: gather, algorithm: direct, size: 64 MiB}]"
    assert cases(gather, *many)[0].busiest_link is None
    tree = RING.replace("ring", "double-binary-tree")
    assert cases(tree, "fabric.domains=2049", "fabric.domain_size=2")[0].busiest_link is None
    with pytest.raises(InputError, match="must have 2 to 65536 GPUs on paper"):
        cases(RING, "fabric.domains=8193", "fabric.domain_size=8")
    with pytest.raises(
        InputError, match="no closed form on such a fabric: must have at most 1024 GPUs"
    ):
        cases(RING, "fabric.oversubscription=2", "fabric.kinds=rail-optimized", *many)
    rings = RING.replace("algorithm: ring", "algorithm: rings")
    slow = "fabric.hb_rate=700 Gbit/s", "fabric.nic_rate=400 Gbit/s", "fabric.platform=null"
    spines = "fabric.oversubscription=2", "fabric.kinds=rail-optimized"
    for other in (spines, slow):
        with pytest.raises(InputError, match="must have at most 2097152 transfers, got 16760832"):
            cases(rings, *other, "fabric.domains=128", "fabric.domain_size=8")


@pytest.mark.parametrize(
    ("algorithm", "domains"), [("nvls", 4), ("rings", 256)], ids=["modeled", "large"]
)
@pytest.mark.parametrize("key", ["oversubscription=2", "spines=3", "spine_selection=hash"])
def test_keys_of_spines_take_no_closed_form_from_a_fabric_without_them(
    algorithm: str, domains: int, key: str
) -> None:
    grid = [f"fabric.domains={domains}", "fabric.domain_size=8", "fabric.kinds=rail-only"]
    work = RING.replace("ring", algorithm)
    (plain,), (keyed,) = cases(*grid, work), cases(*grid, work, f"fabric.{key}")
    assert keyed.completion_s == plain.completion_s


KEYED = """\
fabric:
  {platform: dgx-h100, domains: 2, domain_size: 4,
   oversubscription: 2}
workloads:
  - {collective: all-reduce, algorithm: rings, size: 1 GiB}
  - {collective: all-reduce, algorithm: nvls, size: 1 GiB}
"""


def test_a_case_without_a_time_leaves_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The problem is at the key of the fabric that takes the closed form away."""
    file = tmp_path / "own.yaml"
    file.write_text(KEYED)
    problem = (
        f"{file}:3 fabric.oversubscription: rail-optimized/all-reduce/nvls has no closed form on "
        "such a fabric: it is modeled, without transfers to follow; name another algorithm"
    )
    others = [
        "rail-only/all-reduce/rings",
        "rail-only/all-reduce/nvls",
        "rail-optimized/all-reduce/rings",
    ]
    for options in (["--json"], [], ["--like", "nccl-tests"]):
        with pytest.raises(InputError) as error:
            app(["predict", str(file), *options], standalone_mode=False)
        assert str(error.value) == problem
        said = capsys.readouterr().out
        if options == ["--json"]:
            result = json.loads(said)
            assert result["problems"] == [problem]
            assert [case["case"] for case in result["cases"]] == others
        assert "rail-only" in said
    kind = ["--set", "fabric.kinds=rail-optimized", "--set", "workloads.0.algorithm=nvls"]
    alone = ["predict", str(file), *kind, "--set", "workloads.0.size=2 GiB"]
    with pytest.raises(InputError, match=r":3 fabric.oversubscription: .*nvls.* no closed form"):
        app(alone, standalone_mode=False)
    assert not capsys.readouterr().out


@given(
    kind=st.sampled_from(COMPARED),
    keys=st.fixed_dictionaries(
        {},
        optional={
            "oversubscription": st.just(2),
            "spine_selection": st.just("hash"),
            "spines": st.just(3),
            "nics_per_domain": st.just(2),
            "hb_leaves": st.just(2),
        },
    ),
)
def test_the_keys_that_take_a_closed_form_away_are_named(
    kind: FabricKind, keys: dict[str, Any]
) -> None:
    fabric = [f"fabric.{key}={value}" for key, value in keys.items()]
    scenario = load(scenario_file(Path("quickstart")), [f"fabric.kinds={kind}", *fabric])
    with_effect = set(keys)
    if kind is FabricKind.RAIL_ONLY:
        with_effect -= {"oversubscription", "spine_selection", "spines"}
    assert set(scenario.fabrics[0].keys_without_forms) == with_effect


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ("kinds=rail-only rail_leaves=2", {"rail_leaves"}),
        (
            "kinds=rail-only rail_leaves=2 spines=3 oversubscription=2 spine_selection=hash",
            {"rail_leaves", "spines", "oversubscription", "spine_selection"},
        ),
        ("nic_ports=2 spread=hash", {"spread"}),
        ("domain_size=2 nics_per_domain=4", {"nics_per_domain"}),
        # An HB link carries the flows of two NICs, if data takes both networks.
        ("platform=null nic_rate=400Gbit/s hb_rate=799Gbit/s", {"hb_rate"}),
        ("platform=null nic_rate=400Gbit/s hb_rate=800Gbit/s", set()),
        ("platform=null nic_rate=400Gbit/s hb_rate=799Gbit/s domain_size=1", set()),
    ],
)
def test_leaves_lanes_and_slow_hb_links_take_a_closed_form_away(keys: str, named: set[str]) -> None:
    scenario = load(scenario_file(Path("quickstart")), [f"fabric.{key}" for key in keys.split()])
    for fabric in scenario.fabrics:
        assert set(fabric.keys_without_forms) == named
        assert fabric.has_whole_nics == named.isdisjoint({"spread", "nics_per_domain"})


def test_the_fabric_of_a_case_is_identified(capsys: pytest.CaptureFixture[str]) -> None:
    """Fabrics with other times have other objects."""
    keys = [
        *("nics_per_domain=2", "nic_ports=2", "oversubscription=2", "hb_leaves=2", "spines=3"),
        *("spine_selection=hash", "spare_domains=1", "domains=5", "roce={queue_pairs: 4}"),
    ]
    changes = [[f"fabric.{key}"] for key in keys]
    changes += [[], ["seed=3"], ["fabric.hb_leaves=2", "fabric.hb_oversubscription=2"]]
    seen = list[dict[str, Any]]()
    for changed in changes:
        options = ["fabric.kinds=rail-optimized", "fabric.transport=roce", RING, *changed]
        result = predicted(capsys, "quickstart", *(f"--set={option}" for option in options))
        seen.append(result["cases"][0]["fabric"])
    assert all(one not in seen[:number] for number, one in enumerate(seen))
    (rails,) = predicted(capsys, "quickstart", f"--set={RING}", "--set=fabric.kinds=rail-only")[
        "cases"
    ]
    assert [rails["fabric"][key] for key in ("spines", "oversubscription", "spine_selection")] == [
        None
    ] * 3
    custom, *_ = predicted(capsys, "fat-tree")["cases"]
    assert custom["fabric"]["kind"] == "custom"
    assert {len(link) for link in custom["fabric"]["links"]} == {5}


def test_a_request_load_has_latencies_and_the_load_that_it_offers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One request alone takes what its shard needs; four times the rate is four times the load."""
    file = tmp_path / "own.yaml"
    file.write_text(
        "fabric: {platform: dgx-h100, domains: 4, domain_size: 8, kinds: rail-only}\n"
        "workloads: [{inference: llama-3-70b, requests: 200, rate: 20, prompt: 8192, tensor: 8,\n"
        "              time_dilation: 200}]\n"
    )
    options = [str(file), "--framing", "none", "--latency", "0"]
    loads = list[dict[str, Any]]()
    for rate in (20, 80, 400):
        (case,) = predicted(capsys, *options, "--set", f"workloads.0.rate={rate}")["cases"]
        loads.append(case["inference"])
    slow, faster, much = loads
    each_s = 8192 * 80 * 2 * 8 * 128 * 2 / 8 / 50e9  # layers, K and V, heads, their size, BF16
    assert slow["count"] == 200
    assert slow["latency_s"]["p50"] == pytest.approx(each_s)
    assert slow["offered_load"] == pytest.approx(20 * each_s / 4, rel=0.2)
    assert faster["offered_load"] == pytest.approx(4 * slow["offered_load"])
    assert much["latency_s"]["p90"] > 2 * each_s
    app(["predict", *options], standalone_mode=False)
    said = capsys.readouterr().out
    assert f"rail-only/inference/llama-3-70b: 200 requests, {slow['offered_load']:.0%} of" in said
    assert "with all arrivals." in " ".join(said.split())
    app(["predict", *options, "--set", "workloads.0.requests=1"], standalone_mode=False)
    assert "rail-only/inference/llama-3-70b: 1 request, " in capsys.readouterr().out
    assert predicted(capsys, "quickstart")["cases"][0]["inference"] is None


def test_pairs_of_which_each_has_a_path_of_its_own_are_bounded() -> None:
    grid = ["fabric.domains=32", "fabric.domain_size=8", "fabric.kinds=rail-optimized"]
    (ring,) = cases(*grid, "fabric.spine_selection=hash", RING)
    assert ring.completion_s > 0
    pairs = RING.replace("all-reduce, algorithm: ring", "all-to-all, algorithm: direct")
    with pytest.raises(InputError, match=r"must have at most 16384 pairs .* by hash, got 65280"):
        cases(*grid, "fabric.spine_selection=hash", pairs)
    assert cases(*grid, pairs)


def test_what_is_emulated_alone_is_said_to_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    result = predicted(capsys, "nic-link-down")
    assert result["left_out"] == ["faults"]
    result = predicted(capsys, "quickstart", "--set", "fabric.nic_delay=0.001")
    assert result["left_out"] == ["delays and losses of links"]
    app(["predict", "nic-link-down"], standalone_mode=False)
    assert "\nleft out: faults\n" in capsys.readouterr().out


def test_columns_of_nccl_tests_have_a_row_for_each_size(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--like", "nccl-tests", "--begin", "1 MiB", "--end", "5 MiB"]
    app(["predict", "quickstart", "--set", RING, *sizes], standalone_mode=False)
    said = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in said if not line.startswith("#")]
    assert [int(row[0]) for row in rows] == [2**20, 2**21, 2**22] * 2
    assert all(float(row[7]) == pytest.approx(float(row[6]) * 30 / 16, rel=1e-2) for row in rows)


def test_a_table_has_the_layout_of_nccl_tests(capsys: pytest.CaptureFixture[str]) -> None:
    """Formats of src/util.cu in nccl-tests 2.19.6; the part of a rank is of whole 16 bytes."""
    preamble, body = "%12s  %12s  %8s  %6s  %6s", "  %7s  %6s  %6s  %6s"
    work = "workloads=[{collective: all-gather, algorithm: ring, size: 1 MB}]"
    grid = ["--set", "fabric.domains=3", "--set", "fabric.kinds=rail-only", "--set", work]
    sizes = ["--like", "nccl-tests", "--begin", "1100 B", "--end", "600 GB"]
    bare = ["--latency", "0", "--framing", "none"]
    app(["predict", "quickstart", *grid, *sizes, *bare], standalone_mode=False)
    _, places, names, units, *rows, _, _ = capsys.readouterr().out.splitlines()
    of_units = preamble % ("(B)", "(elements)", "", "", "") + 2 * body % (2 * (*UNITS, ""))
    of_names = preamble % ("size", "count", "type", "redop", "root") + 2 * body % (2 * NAMES)
    assert [names, units] == [f"#{of_names[1:]}", f"#{of_units[1:]}"]
    assert [places.index(place) for place in ("out-of-place", "in-place")] == [63, 98]
    assert {len(row) for row in rows} == {len(names)}
    assert rows[0].startswith(preamble % (960, 20, "float", "none", -1))
    # 11/12 of 1100 B, and of 2 to this power as much, at 50 GB/s.
    times = [rows[power].split()[5] for power in (0, 15, 20, 23, 29)]
    assert times == ["0.02", "660.82", "21146.3", "169170", "1.1e+07"]


@pytest.mark.parametrize("name", ["quickstart", "pipeline-schedules", "several-jobs", "traces"])
def test_the_column_of_a_run_is_what_predict_says(name: str) -> None:
    scenario = load(scenario_file(Path(name)))
    found, _ = on_paper.on_paper(scenario, USUAL)
    for case, told in zip(scenario.cases, found, strict=True):
        assert usual_s(case, scenario.spec_of(case.kind)) == told.completion_s


def test_the_column_of_a_run_has_closed_forms_beyond_what_can_be_followed() -> None:
    many = ["fabric.domains=256", "fabric.domain_size=8", "fabric.kinds=rail-only", RING]
    for more, is_known in ((), True), (("fabric.hb_leaves=2",), False):
        scenario = load(scenario_file(Path("quickstart")), [*many, *more], on_paper=True)
        (case,) = scenario.cases
        seconds = usual_s(case, scenario.spec_of(case.kind))
        if is_known:
            ((paper,), _) = on_paper.on_paper(scenario, USUAL)
            assert seconds == paper.completion_s
        else:
            assert seconds is None


def test_a_trace_has_the_times_of_its_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    expected = {case["algorithm"]: case for case in predicted(capsys, "traces")["cases"][5:]}
    for name, case in expected.items():
        size = ["--set", "workloads.0.size=64 MB"] if name.endswith(".xml") else []
        options = ["--domain-size", "2", "--fabric", "rail-optimized", *size]
        assert predicted(capsys, str(LIBRARY / "traces" / name), *options)["cases"] == [case]


@pytest.mark.parametrize(
    ("options", "grid"),
    [
        ([], (1, 4, "dgx-h100")),
        (["--domain-size", "3"], (2, 3, "dgx-h100")),
        (["--gpus", "16", "--platform", "dgx-a100"], (2, 8, "dgx-a100")),
    ],
)
def test_a_trace_fills_hb_domains(
    options: list[str], grid: tuple[int, int, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for trace in ("pipeline.goal", "layer"):
        for case in predicted(capsys, str(LIBRARY / "traces" / trace), *options)["cases"]:
            assert [case["fabric"][key] for key in ("domains", "domain_size", "platform")] == [
                *grid
            ]


def test_idle_spine_switches_are_in_the_notes(capsys: pytest.CaptureFixture[str]) -> None:
    fabric = "--set", "fabric.spines=64"
    crossed, note = predicted(capsys, "quickstart", *fabric)["notes"]
    assert crossed.startswith("rail-only/all-to-all/direct: 144 of 240 sending pairs of GPUs share")
    for options in ([], ["--like", "nccl-tests"]):
        app(["predict", "quickstart", *fabric, *options], standalone_mode=False)
        assert note in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", ["unequal-domains", "shared-nics", "contention"])
def test_the_notes_are_those_of_check_each_said_once(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    scenario = load(LIBRARY / f"{name}.yaml")
    notes, said = predicted(capsys, name)["notes"], list(described(scenario))
    assert set(notes) <= set(said)
    prices = [case.task.price(scenario.spec_of(case.kind)) for case in scenario.cases]
    for price in filter(None, prices):
        (note,) = (note for note in notes if note.endswith(f": {price}."))
        cases = [c for c, p in zip(scenario.cases, prices, strict=True) if p == price]
        assert note == f"{scenario.named(cases)}: {price}."
    told = [line.partition(": ")[2] for line in said if line.endswith(".")]
    assert len(told) == len(set(told)) > 0


def test_the_notes_say_how_many_gpus_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(LIBRARY / "traces" / "layer")
    app(["predict", trace, "--domain-size", "3"], standalone_mode=False)
    assert "on 6 GPUs in HB domains of 3" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(InputError, match="--gpus: must be a multiple of --domain-size, 3, got 8"):
        app(["predict", trace, "--gpus", "8", "--domain-size", "3"], standalone_mode=False)


def test_a_trace_of_one_rank_says_so(tmp_path: Path) -> None:
    (trace,) = LIBRARY.glob("traces/layer/*.0.et")
    one = tmp_path / "one.0.et"
    one.write_bytes(trace.read_bytes())
    for options in ([], ["--gpus", "4"]):
        with pytest.raises(InputError, match=r"one\.0\.et: has one rank.*name the folder"):
            app(["predict", str(one), *options], standalone_mode=False)


def test_what_a_trace_lacks_is_given_by_an_override(capsys: pytest.CaptureFixture[str]) -> None:
    """Each message names the override that the next call has."""
    trace, options = str(LIBRARY / "traces" / "ring-all-gather.xml"), list[str]()
    for said, override in (
        ("to `predict TRACE`, --set 'workloads.0.size=64 MB'", "workloads.0.size=64 MB"),
        ("or more GPUs: --set workloads.0.placement=wrap", "workloads.0.placement=wrap"),
    ):
        with pytest.raises(InputError) as error:
            app(["predict", trace, "--gpus", "2", *options], standalone_mode=False)
        assert str(error.value).endswith(f"{said})")
        options += ["--set", override]
    assert predicted(capsys, trace, "--gpus", "2", *options)["cases"]


def test_options_of_traces_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    app(["predict", "--help"], standalone_mode=False)
    said = " ".join(capsys.readouterr().out.split())
    for option in ("--gpus", "--domain-size", "--platform", "--fabric"):
        assert re.search(rf"{option} +\S+(?: \S+)? of a trace: ", said), option


@pytest.mark.parametrize("size", ["8 MB", '"8 MB"', " 8 MB"])
def test_the_ranks_of_a_trace_are_counted_with_the_size_that_it_is_given(
    size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    matrix = tmp_path / "parts.matrix"
    matrix.write_text("0 .5 .5\n.5 0 .5\n.5 .5 0\n")
    for case in predicted(capsys, str(matrix), "--set", f"workloads.0.size={size}")["cases"]:
        assert case["fabric"]["domains"] * case["fabric"]["domain_size"] == 3


def test_a_trace_is_named_by_what_its_files_begin_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in (LIBRARY / "traces" / "layer").iterdir():
        shutil.copy(file, tmp_path)
    one, other = (
        predicted(capsys, str(tmp_path / name))["cases"][0] for name in ("layer", "layer.2.et")
    )
    assert one["completion_s"] == other["completion_s"]


def test_an_operation_beyond_a_transfer_of_the_emulation_is_predicted(tmp_path: Path) -> None:
    trace = tmp_path / "large.matrix"
    trace.write_text(f"0 {2**40}\n{2**40} 0\n")
    ((case,), _) = on_paper.on_paper(
        load_trace(trace, {"kinds": "rail-only", "domains": 2, "domain_size": 1, **RATES}, []),
        FRAMINGS["none"](4096),
        0.0,
    )
    assert case.completion_s == pytest.approx(2**40 / 50e9)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--gpus", "8"], "--gpus: needs a trace"),
        (["--fabric", "rail-only"], "--fabric: needs a trace"),
        (["--latency", "5"], "--latency: needs a unit"),
        (["--latency", "1e9 ms"], "--latency: must be 0 ns to 1000 ms, got '1e9 ms'"),
        (["--latency=-1us"], "--latency: must be 0 ns to 1000 ms, got '-1us'"),
        (["--mtu", "256", "--framing", "none"], "--mtu: has no effect with --framing none"),
        (["--like", "nccl-tests", "--json"], "--like: cannot be combined with --json"),
        (
            ["--like", "nccl-tests", "--begin", "9 GiB"],
            "--end: must be at least --begin, 9 GiB, got 8 GiB",
        ),
        (["--begin", "1 MB"], "--begin: needs --like nccl-tests"),
        (["--end", "1 MB"], "--end: needs --like nccl-tests"),
    ],
)
def test_wrong_options_are_refused(options: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        app(["predict", "quickstart", *options], standalone_mode=False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--platform", "dgx-h100"],
            "--set fabric.platform=.*: cannot be combined with --platform",
        ),
        (["--fabric", "rail-only"], "--set fabric.kinds=.*: cannot be combined with --fabric"),
        (["--gpus", "4"], "--set fabric.domain_size=.*: cannot be combined with --gpus"),
        (["--domain-size", "2"], "--set fabric.domain_size=.*: cannot .* with --domain-size"),
    ],
)
def test_what_an_option_of_a_trace_determines_is_not_set_otherwise(
    tmp_path: Path, options: list[str], said: str
) -> None:
    trace = tmp_path / "matrix.txt"
    trace.write_text("0 8\n8 0\n")
    changes = ("platform=dgx-a100", "kinds=rail-optimized", "domain_size=1")
    set_ = [word for change in changes for word in ("--set", f"fabric.{change}")]
    with pytest.raises(InputError, match=said) as caught:
        app(["predict", str(trace), *options, *set_], standalone_mode=False)
    assert len(caught.value.problems) == 1


def test_a_communicator_in_each_of_many_domains_is_predicted_within_a_test_s_time() -> None:
    """Each of 8192 communicators listed all 65 536 GPUs: four minutes."""
    (of_domains, *_) = cases(
        "fabric.domains=8192", "fabric.domain_size=8", f"{RING[:-2]}, communicator: domains}}]"
    )
    assert of_domains.completion_s > of_domains.latency_s > 0


def test_only_collectives_have_columns_of_nccl_tests() -> None:
    options = ["--like", "nccl-tests"]
    with pytest.raises(InputError, match="needs a scenario with a collective"):
        app(["predict", "inference", *options], standalone_mode=False)


def on_wire(payload: int, mtu: int) -> int:
    """Frames of RoCEv2 with preamble and gap: 82 bytes a packet, an RETH in the first."""
    return payload + -(-payload // mtu) * (14 + 4 + 8 + 12 + 20 + 8 + 12 + 4) + 16


@pytest.mark.parametrize("mtu", [1024, 4096])
@pytest.mark.parametrize("size", [16, 4096, 8192, 2**16, 2**27])
def test_a_packet_is_as_short_as_its_payload(size: int, mtu: int) -> None:
    """A ring of four single GPUs: 2(n-1) messages of a quarter, one after the other."""
    grid = ["fabric.domains=4", "fabric.domain_size=1", RING.replace("128 MiB", f"{size} B")]
    scenario = load(scenario_file(Path("quickstart")), grid, on_paper=True)
    for case in on_paper.on_paper(scenario, FRAMINGS["roce"](mtu), 0.5e-6)[0]:
        chunk = -(-size // 4 // 8) * 8
        assert case.completion_s == pytest.approx(6 * (on_wire(chunk, mtu) / 50e9 + 1e-6))
        assert case.lower_bound_s == pytest.approx(6 * on_wire(chunk, mtu) / 50e9)


def test_short_packets_take_more_of_a_link() -> None:
    """1024 GPUs with 64 bytes for each other one: 162 on a NIC, followed or by the closed form."""
    case = "workloads=[{collective: all-to-all, algorithm: direct, peers: all, size: %s}]"
    for domains, size in ((16, "2 KiB"), (64, "64 KiB")):
        grid = [f"fabric.domains={domains}", f"fabric.domain_size={domains // 4}"]
        for found in cases(*grid, case % size, link_s=0.0, framing="roce"):
            others = domains // 4 * (domains - 1)
            each = int(found.bytes) // (domains * domains // 4)
            assert found.completion_s == pytest.approx(others * on_wire(each, 4096) / 50e9)


@pytest.mark.parametrize(
    "emulated",
    [
        ["fabric.bandwidth_scale=auto", "faults=[{what: nic-link}]"],
        ["fabric.grain=8", "fabric.switch_queue={buffer: 20 kB}"],
        ["fabric.transport=roce", "fabric.roce={timeout: 31}", "fabric.bandwidth_scale=100000"],
    ],
    ids=["late-fault", "short-buffer", "long-timeout"],
)
def test_what_is_emulated_alone_is_not_refused_on_paper(emulated: list[str]) -> None:
    assert cases(*emulated) == cases()


@pytest.mark.parametrize("framing", ["roce", "infiniband"])
def test_an_mtu_of_ethernet_is_refused_for_packets_of_infiniband(framing: str) -> None:
    with pytest.raises(InputError, match=r"must be one of 256, .*4096, got 9000"):
        app(["predict", "quickstart", "--framing", framing, "--mtu", "9000"], standalone_mode=False)


def test_packets_of_tcp_may_be_jumbo_frames(capsys: pytest.CaptureFixture[str]) -> None:
    options = "--framing", "tcp", "--mtu", "9000"
    assert predicted(capsys, "quickstart", *options)["framing"]["mtu"] == 9000


def test_the_mtu_is_that_of_the_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    by_roce = ["--set", "fabric.transport=roce", "--set", "fabric.roce={mtu: 1024}"]
    for options, mtu in (([], 4096), (by_roce, 1024), ([*by_roce, "--mtu", "2048"], 2048)):
        assert predicted(capsys, "quickstart", *options)["framing"]["mtu"] == mtu


def test_latencies_that_keep_flows_apart_have_their_part_of_the_time() -> None:
    """Flows of one NIC contend less out of step: without latencies, all would take longer."""
    grid = ["fabric.domains=8", "fabric.domain_size=4", "fabric.nics_per_domain=1"]
    reduce = "workloads=[{collective: reduce, algorithm: hierarchical, size: 100 MB}]"
    for case in cases(*grid, reduce, link_s=0.5e-6):
        bare = next(one for one in cases(*grid, reduce, link_s=0) if one.case == case.case)
        assert bare.completion_s > case.completion_s
        # Three transfers within domains, seven along rails.
        assert case.latency_s >= 10e-6


@pytest.mark.parametrize("text", ["0", "0us", "0 ns", "0.0 ms"])
def test_links_may_have_no_latency(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    for case in predicted(capsys, "quickstart", "--latency", text)["cases"]:
        assert case["latency_s"] == 0
        assert case["completion_s"] >= case["lower_bound_s"]


def test_what_files_say_and_paper_has_not_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = LIBRARY / "networks" / "two-hosts.yml"
    fabric = ["--set", f"fabric={{topology: {network}}}", "--set", RING]
    (what,) = predicted(capsys, "quickstart", *fabric)["left_out"]
    assert what.startswith("all but the rates of links in ")
    trace = tmp_path / "own.matrix"
    trace.write_text("8 8\n8 0\n")
    assert predicted(capsys, str(trace))["left_out"] == [
        "trace/own.matrix: 8 bytes of ranks to themselves"
    ]


def test_each_way_to_send_has_columns_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    entry = "{collective: all-to-all, algorithm: direct, peers: %s, size: %s}"
    works = [entry % work for work in (("1", "1 MB"), ("8", "1 MB"), ("8", "2 MB"))]
    iteration = "{iteration: gpt-146b}"
    workloads = f"workloads=[{', '.join([*works, iteration])}]"
    options = ["--set", workloads, "--set", "fabric.kinds=rail-only"]
    sizes = ["--like", "nccl-tests", "--begin", "1 MB", "--end", "2 MB"]
    app(["predict", "quickstart", *options, *sizes], standalone_mode=False)
    said = capsys.readouterr().out
    tables = [line for line in said.splitlines() if line.startswith("# Railbed")]
    assert tables == [
        "# Railbed: rail-only/all-to-all/direct, 16 ranks",
        "# Railbed: rail-only/all-to-all/direct/peers-8, 16 ranks",
    ]
    assert len([line for line in said.splitlines() if not line.startswith("#")]) == 4
    assert "# not predicted: rail-only/iteration/gpt-146b\n" in said
