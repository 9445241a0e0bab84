"""The decision about a cluster's network."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.decide import decide
from model.errors import InputError
from model.fabric.build import build_topology
from model.fabric.health import HEALTHY, Health, without
from model.fabric.network_cost import (
    Network,
    Prices,
    built_oversubscription,
    folded_clos,
    networks,
    oversubscribed_clos,
)
from model.fabric.spec import FabricKind
from model.fabric.topology import LinkKind, Topology
from model.routing.paths import Routing
from model.training.strategy import used_of_domain
from results.figures.paper import draw_decision
from results.sections.modeled import decision_sections
from scenarios.format.prices import DEFAULT, load_prices
from scenarios.format.training import SHIPPED
from studies.decision import decide_object, load_cluster, routed_shares
from tests.unit.fabrics import spec

LARGE = """
layers: 32
hidden: 8192
heads: 64
sequence: 2048
vocabulary: 32000
recomputation: none
batch: 64
gpus: 64
platform: dgx-h100
strategy: {tensor: 1, pipeline: 1, interleave: 1, microbatch: 1}
"""
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "decision.md"


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """The example of the guide."""
    file = tmp_path / "cluster.yaml"
    example = re.search(r"```\n(gpus:.*?)```", GUIDE.read_text(), re.DOTALL)
    assert example is not None
    file.write_text(example[1])
    return file


def decided(cluster: Path) -> dict[str, Any]:
    file = load_cluster(cluster)
    return decide_object(file, load_prices(Path(file.prices)).prices)


@pytest.fixture
def found(cluster: Path) -> dict[str, Any]:
    return decided(cluster)


def design(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in found["designs"] if one["design"] == name)


def test_figures_over_several_models_say_so(found: dict[str, Any]) -> None:
    models = [one["configuration"] for one in found["designs"][0]["models"]]
    assert f"(geometric mean of {len(models)} models)" in found["sentence"]
    leaves, short, domain, _ = found["spares"]
    assert {leaves["of_model"], short["of_model"]} <= set(models)
    assert domain["of_model"] is None
    told = " ".join(str(line) for one in decision_sections(found) for line in one.remarks)
    assert f"{short['spare']}: {short['of_model']}" in told


def test_a_decision_says_in_words_what_commands_measure(found: dict[str, Any]) -> None:
    told = "\n".join(str(line) for line in decision_sections(found)[-1].remarks)
    assert all(command in told for command in found["measured_by"].values())
    assert "_" not in told


def test_all_networks_are_compared(found: dict[str, Any]) -> None:
    assert [one["design"] for one in found["designs"]] == [
        "rail-optimized, K = 8",
        "rail-optimized, K = 8, spines 1.91:1",
        "rail-only, K = 8",
        "rail-only, K = 64",
        "rail-only, K = 256",
    ]
    assert found["answer"] == "rail-only, K = 8"
    assert (
        f"the network that costs the least for a trained token is {found['answer']}: it"
        in (found["sentence"])
    )


def test_dense_models_lose_nothing_on_rails_alone(found: dict[str, Any]) -> None:
    whole, rails = (design(found, f"{kind}, K = 8") for kind in ("rail-optimized", "rail-only"))
    assert whole["models"][0]["iteration_s"] == rails["models"][0]["iteration_s"]
    assert whole["models"][0]["all_to_all_slowdown_percent"] is None
    assert rails["usd"] < whole["usd"]


def test_experts_pay_for_missing_and_for_oversubscribed_spines(found: dict[str, Any]) -> None:
    names = ("rail-optimized, K = 8", "rail-only, K = 8", "rail-optimized, K = 8, spines 1.91:1")
    slower = [design(found, name)["models"][1]["all_to_all_slowdown_percent"] for name in names]
    assert slower == pytest.approx([0, 8.6, 90.9], abs=2)


def test_a_spare_costs_idle_gpus_and_their_network_and_saves_the_loss(
    found: dict[str, Any],
) -> None:
    leaves, short, domain, each = found["spares"]
    assert leaves["idle_gpus"] == short["idle_gpus"] == 0
    assert leaves["network_usd"] == short["network_usd"] == 0
    assert (domain["idle_gpus"], each["idle_gpus"]) == (8, found["gpus"] // 8)
    assert 0 < domain["network_usd"] < each["network_usd"]
    assert domain["lost_gpu_percent"] == each["lost_gpu_percent"] == 0
    losses = [one["losses_percent"]["gpu"] for one in design(found, found["answer"])["models"]]
    assert leaves["lost_gpu_percent"] == max(losses) > 0
    assert short["lost_gpu_percent"] > 0


def test_no_network_beats_an_efficient_one(found: dict[str, Any]) -> None:
    efficient = [one for one in found["designs"] if one["efficient"]]
    assert efficient
    for one in efficient:
        assert not any(
            other["usd"] < one["usd"]
            and all(
                a["iteration_s"] < b["iteration_s"]
                for a, b in zip(other["models"], one["models"], strict=True)
            )
            for other in found["designs"]
        )


def test_a_lost_link_costs_less_in_larger_domains(found: dict[str, Any]) -> None:
    lost = [
        design(found, f"rail-only, K = {size}")["models"][0]["losses_percent"]["nic_link"]
        for size in (8, 64, 256)
    ]
    assert lost == sorted(lost, reverse=True)
    assert lost[-1] > 0


def busiest(topology: Topology, health: Health, domains: Sequence[int]) -> int:
    """The most transfers of a NIC port, of GPUs that send along their rails so many domains on."""
    routing, spec = Routing(topology, health), topology.spec
    crossed = Counter(
        (hop.link, hop.sender)
        for domain, number, on in product(
            range(spec.domains), range(spec.domain_size * spec.lanes), domains
        )
        for lane in [topology.lane_at[(domain + on) % spec.domains, number]]
        for hop in routing.path(topology.gpu_at[domain, lane.rail], lane)
        if hop.link.kind is LinkKind.NIC
    )
    return max(crossed.values())


@pytest.mark.parametrize(
    ("size", "lost", "ports", "nics"),
    [(8, 1, 1, 8), (4, 2, 1, 4), (8, 1, 1, 4), (2, 1, 1, 2), (4, 1, 2, 4), (8, 1, 2, 4)],
)
@pytest.mark.parametrize("is_switch", [False, True])
def test_what_is_left_of_nics_is_as_packets_are_routed(
    size: int, lost: int, ports: int, nics: int, *, is_switch: bool
) -> None:
    """A ring sends one domain on, an all-to-all to all domains."""
    domains = 1 + 3 * (nics - lost)  # the other NICs have as many destinations each
    topology = build_topology(
        spec(FabricKind.RAIL_ONLY, domains, size, ports=ports, nics=nics if nics < size else None)
    )
    held = [topology.gpu_at[0, rail * size // nics] for rail in range(lost)]
    links = [topology.nic_links(gpu)[0] for gpu in held]
    switches = {link.upper.node for link in links} if is_switch else ()
    health = without(topology, switches, [link.name for link in links])
    found = tuple(
        busiest(topology, HEALTHY, among) / busiest(topology, health, among)
        for among in ([1], range(1, domains))
    )
    assert found == pytest.approx(routed_shares(nics, lost, ports))


def test_a_lost_link_halves_the_rings_and_leaves_all_to_alls_all_other_nics(
    found: dict[str, Any],
) -> None:
    dense, experts = (
        model["losses_percent"] for model in design(found, "rail-only, K = 8")["models"]
    )
    assert dense["nic_link_to_one"] == pytest.approx(7 * dense["nic_link"])
    assert dense["rail_switch_to_one"] == dense["nic_link_to_one"]
    assert experts["nic_link"] < experts["nic_link_to_one"] < 7 * experts["nic_link"]


def test_where_one_switch_joins_all_the_faster_network_wins(cluster: Path) -> None:
    """Both networks are then one switch, and only rail-only forwards all-to-alls."""
    text = cluster.read_text().replace("  - {configuration: gpt-146b, batch: 2048}\n", "")
    small = (
        text.replace("gpus: 4096", "gpus: 128")
        .replace(", 256]", "]")
        .replace("radix: 64", "radix: 128")
    )
    cluster.write_text(small.replace("batch: 16384", "batch: 512"))
    assert decided(cluster)["answer"] == "rail-optimized, K = 8"


def test_one_switch_has_no_spines_and_nothing_is_left_without_it(cluster: Path) -> None:
    small = (
        cluster.read_text()
        .replace("gpus: 4096", "gpus: 128")
        .replace(", 256]", "]")
        .replace("radix: 64", "radix: 128")
    )
    small = small.replace("batch: 2048", "batch: 512").replace("batch: 16384", "batch: 512")
    cluster.write_text(small)
    found = decided(cluster)
    first, second = found["designs"][:2]
    assert (first["design"], second["kind"]) == ("rail-optimized, K = 8", "rail-only")
    for one in (first, second):
        (of_dense, *_) = one["models"]
        assert one["switches"] == 1
        assert of_dense["losses_percent"]["rail_switch"] is None
        assert of_dense["losses_percent"]["rail_switch_to_one"] is None
        assert of_dense["losses_percent"]["nic_link"] > 0


@given(st.integers(1, 10**5), st.integers(2, 128).map(lambda half: 2 * half), st.integers(1, 64))
def test_spines_are_oversubscribed_at_most_as_asked(endpoints: int, radix: int, asked: int) -> None:
    built = built_oversubscription(endpoints, radix, asked)
    assert 1 <= built <= asked
    assert built == 1 or endpoints > radix
    same = oversubscribed_clos(endpoints, radix, built)
    assert same == oversubscribed_clos(endpoints, radix, asked)


@pytest.mark.parametrize(
    ("gpus", "radix", "rails", "hit"),
    [(9, 10, 8, 9), (128, 128, 8, 128), (128, 64, 4, 64), (512, 64, 1, 64), (4096, 64, 1, 32)],
)
def test_rails_that_fit_on_a_switch_are_lost_with_it(
    gpus: int, radix: int, rails: int, hit: int
) -> None:
    network = Network(FabricKind.RAIL_ONLY, gpus, radix, 8)
    assert network.rails_on_a_switch == rails
    assert network.at_risk["gpus_cut_off"] == hit


@pytest.mark.parametrize(
    ("gpus", "ratio", "switches"),
    [
        (1536, 1.2, 46 + 22),  # 46 of 34 NICs with 30 ports up; 1380 ports above
        (1536, 2, 37 + 13),
        (4096, 2, 98 + 68 + 34),  # 98 need two tiers above
    ],
)
def test_each_tier_of_spines_is_rounded_up_once(gpus: int, ratio: float, switches: int) -> None:
    assert oversubscribed_clos(gpus, 64, ratio).switches == switches


@given(
    st.integers(1, 10**5),
    st.integers(2, 128).map(lambda half: 2 * half),
    st.floats(1, 8, exclude_min=True),
)
def test_oversubscribed_spines_are_no_dearer(endpoints: int, radix: int, ratio: float) -> None:
    full, less = folded_clos(endpoints, radix), oversubscribed_clos(endpoints, radix, ratio)
    assert less.switches <= full.switches


@given(st.integers(1, 10**5), st.integers(2, 128).map(lambda half: 2 * half), st.integers(1, 8))
def test_oversubscription_needs_no_more_ports(endpoints: int, radix: int, ratio: int) -> None:
    full, less = folded_clos(endpoints, radix), oversubscribed_clos(endpoints, radix, ratio)
    assert less.transceivers <= full.transceivers or ratio == 1
    assert less.ports >= endpoints


def test_the_command_prints_one_object_and_draws(
    cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decide(cluster, figure=tmp_path / "price", as_json=True)
    assert json.loads(capsys.readouterr().out)["schema"] == "railbed.decide/1"
    assert (tmp_path / "price.png").exists()
    decide(cluster)
    assert "costs the least for a trained token" in capsys.readouterr().out


def test_the_figure_of_many_networks_names_all(tmp_path: Path) -> None:
    designs = [
        {
            "design": f"rail-optimized, K = {size}, spines 1.98:1, 2 ports, separate, 2 GPUs a NIC",
            "efficient": True,
            "usd": 1e6 * size,
            "models": [{"iteration_s": 1.0}],
        }
        for size in range(1, 41)
    ]
    draw_decision({"designs": designs}, tmp_path / "many")  # a layout that fails warns
    drawn = (tmp_path / "many.svg").read_text()
    assert {f"K = {size}," for size in range(1, 41)} <= set(re.findall(r"K = \d+,", drawn))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("radix: 64", "radix: 63", "radix: must be an even number, got 63"),
        ("[64, 256]", "[64, 8192]", "domain_sizes: must be at most the 4096 GPUs of the cluster"),
        ("gpt-146b", "gpt-147b", "did you mean 'gpt-146b'?"),
        ("batch: 2048", "batch: 7", "no strategy divides 4096 GPUs"),
        ("lifetime_years: 5", "lifetime_years: 1.0e306", "lifetime_years: must be at most 100"),
        ("models:", "nic_ports: 2\nmodels:", "nic_ports: must be a list, got 2"),
        ("models:", "nic_ports: [3]\nmodels:", "nic_ports.0: must be at most 2, got 3"),
        (
            "- {configuration: gpt-146b, batch: 2048}",
            "- gpt-146b",
            "models.0: must be a mapping, got 'gpt-146b' (such as `{configuration: ...}`)",
        ),
        ("models:", "planes: separate\nmodels:", "planes: needs two ports; a NIC has 1 port"),
        ("models:", "gpus_per_nic: [3]\nmodels:", "gpus_per_nic: must divide the 8 GPUs"),
        ("[64, 256]", "[1]\ngpus_per_nic: [2]", "gpus_per_nic: must divide the 1 GPU of an HB"),
        ("models:", "prices: free.yaml\nmodels:", "or their energy, must have a price"),
    ],
)
def test_a_mistake_is_a_sentence(cluster: Path, old: str, new: str, expected: str) -> None:
    cluster.write_text(cluster.read_text().replace(old, new))
    free = "".join(
        f"{key}: {{value: 0.0, source: us, date: now}}\n" for key in vars(Prices(*[0] * 4))
    )
    (cluster.parent / "free.yaml").write_text(free)
    with pytest.raises(InputError) as error:
        decided(cluster)
    assert expected in str(error.value)


def test_wrong_prices_are_refused_before_a_model_is_evaluated(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("studies.decision.trained", lambda *_: pytest.fail("it is evaluated"))
    cluster.write_text(f"{cluster.read_text()}prices: none.yaml\n")
    with pytest.raises(InputError, match=r"none\.yaml"):
        decide(cluster)


def cluster_of(folder: Path, text: str) -> dict[str, Any]:
    file = folder / "own.yaml"
    file.write_text(text)
    return decided(file)


def test_a_domain_that_degrees_do_not_fill_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Powers of two fill 64 of 72 GPUs, which is faster than with 8 of them."""
    text = """
gpus: 1024
platform: dgx-h100
radix: 64
domain_sizes: [64, 72]
models: [{configuration: gpt-146b, batch: 2048}]
"""
    found = cluster_of(tmp_path, text)
    whole, partly = (design(found, f"rail-only, K = {size}")["models"][0] for size in (64, 72))
    assert partly["used_of_domain"] == 64
    assert partly["iteration_s"] == whole["iteration_s"]
    decide(tmp_path / "own.yaml")
    said = " ".join(capsys.readouterr().out.split())
    assert "fill 64 of a domain's 72 GPUs; computed with domains of 64." in said


def test_gpus_that_are_better_idle_are_named_for_each_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Domains of 72 with a batch of a power of two, beside a platform's own of eight."""
    text = """
gpus: 576
platform: dgx-h100
radix: 64
domain_sizes: [72]
oversubscription: []
models: [{configuration: llama-3-70b, batch: 512}]
"""
    cluster_of(tmp_path, text)
    decide(tmp_path / "own.yaml")
    said = " ".join(capsys.readouterr().out.split())
    assert "rail-only, K = 72: 512 of the 576 GPUs, 64 of each HB domain, would take" in said
    assert "K = 8: 512 of" not in said


def test_gpus_in_use_share_the_nics_that_are_there(tmp_path: Path) -> None:
    """Four of a domain's eight GPUs are in use: with four or eight on a NIC, they share one."""
    text = """
gpus: 20
platform: dgx-h100
radix: 4
gpus_per_nic: [4, 8]
models: [{configuration: gpt-1.7b, batch: 20}]
"""
    found = cluster_of(tmp_path, text)
    names = [one["design"] for one in found["designs"]]
    assert "rail-only, K = 8, 4 GPUs a NIC" in names
    assert "rail-only, K = 8, 8 GPUs a NIC" not in names


def test_a_strategy_that_is_given_whole_need_not_fit(tmp_path: Path) -> None:
    """As `train` has it; the memory that it needs is told."""
    text = """
gpus: 64
platform: dgx-h100
radix: 64
models: [{configuration: large.yaml, batch: 64, search: false}]
"""
    (tmp_path / "large.yaml").write_text(LARGE)
    (model, *_) = cluster_of(tmp_path, text)["designs"][0]["models"]
    assert model["left_out"] == ["memory 222.7 GB a GPU: more than 80 GB a GPU"]


def test_rails_are_as_long_as_the_domains_in_use(tmp_path: Path) -> None:
    """68 domains of which 64 GPUs are in use: 68 NICs a rail need two tiers of 64 ports."""
    text = """
gpus: 4352
platform: gb200-nvl72
radix: 64
models: [{configuration: llama-3-70b, batch: 2176}, {configuration: gpt-146b, batch: 2176}]
"""
    rails = design(cluster_of(tmp_path, text), "rail-only, K = 72")
    assert [model["used_of_domain"] for model in rails["models"]] == [64, 64]
    priced = networks(4352, 64, 64, load_prices(DEFAULT).prices)["rail-only"]
    assert {key: rails[key] for key in priced} == priced


@pytest.mark.parametrize(
    ("gpus", "size", "used"),
    [(4352, 72, 64), (4608, 72, 72), (1000, 72, 40), (1000, 576, 200), (100, 8, 4), (4095, 8, 7)],
)
def test_odd_parts_of_a_job_are_in_a_domain_beside_its_powers_of_two(
    gpus: int, size: int, used: int
) -> None:
    assert used_of_domain(gpus, size) == used


@given(st.integers(1, 2**20), st.integers(1, 256))
def test_the_gpus_in_use_of_a_domain_divide_the_job(gpus: int, size: int) -> None:
    used = used_of_domain(gpus, size)
    assert gpus % used == 0
    assert used <= size
    assert (used == size) == (gpus % size == 0)


def test_idle_gpus_of_a_domain_are_spares_at_the_price_of_their_ports(tmp_path: Path) -> None:
    text = """
gpus: 1024
platform: gb200-nvl72
radix: 64
models: [{configuration: gpt-146b, batch: 2048}]
"""
    found = cluster_of(tmp_path, text)
    assert found["answer"] == "rail-only, K = 72"
    leaves, _, domain, idle = found["spares"]
    assert leaves["lost_gpu_percent"] == pytest.approx(100 * 64 / (1024 - 64))
    assert (idle["spare"], idle["idle_gpus"]) == ("an idle GPU of its domain", 16 * (72 - 64))
    assert idle["lost_gpu_percent"] == 0
    assert domain["idle_gpus"] == 64
    wired = cluster_of(tmp_path, text.replace("1024", str(16 * 72)).replace("2048", "2304"))
    before, after = (design(one, found["answer"])["usd"] for one in (found, wired))
    assert idle["network_usd"] == after - before > 0


def test_the_spine_layer_is_worth_something_if_experts_leave_their_domain(tmp_path: Path) -> None:
    text = """
gpus: 2048
platform: dgx-h100
radix: 64
models: [{configuration: deepseek-v3}, {configuration: deepseek-v3, search: false}]
"""
    found = cluster_of(tmp_path, text)
    spines, rails = (design(found, f"{kind}, K = 8") for kind in ("rail-optimized", "rail-only"))
    searched, given = (
        after["iteration_s"] / before["iteration_s"] - 1
        for before, after in zip(spines["models"], rails["models"], strict=True)
    )
    assert [one["strategy"]["expert"] for one in spines["models"]][1] == 64
    assert searched < given
    assert given > 0.02


def test_all_to_alls_are_compared_without_their_overlap(tmp_path: Path) -> None:
    """DeepSeek-V3 hides them behind compute; forwarding costs what the closed forms say."""
    text = """
gpus: 2048
platform: dgx-h100
radix: 64
models: [{configuration: deepseek-v3, search: false}]
"""
    found = cluster_of(tmp_path, text)
    slower = [one["models"][0]["all_to_all_slowdown_percent"] for one in found["designs"]]
    x, y, ratio = 8, 64 // 8, 50 / 450
    forwarded = 100 * y * (x - 1) / (x * (y - 1)) * ratio
    assert slower == pytest.approx([0, 100 * (42 / 22 - 1), forwarded])


@pytest.mark.parametrize("nics", ["gpus_per_nic: [4]", "nic_ports: [2]"])
def test_nics_that_fit_on_a_switch_have_no_spines(tmp_path: Path, nics: str) -> None:
    text = """
gpus: 128
platform: dgx-h100
radix: 64
oversubscription: [2, 4]
models: [{configuration: moe-1.3b, search: false}]
"""
    found = cluster_of(tmp_path, text + nics)
    assert [one["kind"] for one in found["designs"]] == ["rail-optimized", "rail-only"]
    assert {one["oversubscription"] for one in found["designs"]} == {1}


def test_a_slower_network_is_cheaper_up_to_a_price_of_the_gpus(tmp_path: Path) -> None:
    """At that price of a GPU, tokens cost the same on both networks."""
    text = """
gpus: 1024
platform: dgx-h100
radix: 64
gpus_per_nic: [1, 2]
lifetime_years: 1
usd_per_kwh: 0
models: [{configuration: llama-3-405b, batch: 1152, sequence: 8192}]
"""
    found = cluster_of(tmp_path, text)
    assert found["answer"] == "rail-optimized, K = 8, spines 1.91:1, 2 GPUs a NIC"
    other = found["with_gpus"]
    assert other["answer"] == "rail-optimized, K = 8, spines 1.91:1"
    slow, fast = (design(found, name) for name in (found["answer"], other["answer"]))
    of_gpus = 1024 * other["above_usd_per_gpu"]
    usd_s = [(one["usd"] + of_gpus) * one["models"][0]["iteration_s"] for one in (slow, fast)]
    assert usd_s[0] == pytest.approx(usd_s[1])
    assert found["sentence"].endswith(
        f"% slower. The time of the GPUs is not counted: if a GPU costs more than "
        f"{other['above_usd_per_gpu']:.0f} USD, its host and energy included, "
        "rail-optimized, K = 8, spines 1.91:1 costs less."
    )


def test_the_fastest_network_has_no_price_of_gpus(tmp_path: Path) -> None:
    text = """
gpus: 4096
platform: dgx-h100
radix: 64
models: [{configuration: gpt-146b, batch: 2048}]
"""
    found = cluster_of(tmp_path, text)
    assert found["with_gpus"] is None
    assert "GPU costs" not in found["sentence"]


def test_each_network_s_own_strategy_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """
gpus: 2048
platform: dgx-h100
radix: 64
oversubscription: [4]
models: [{configuration: deepseek-v3, batch: 15360}, {configuration: deepseek-v3, search: false}]
"""
    (whole, own), (shared, given) = (
        one["models"] for one in cluster_of(tmp_path, text)["designs"][:2]
    )
    assert (whole["strategy"]["expert"], whole["in_domain"]["expert"]) == (256, 4)
    assert (shared["strategy"]["expert"], shared["in_domain"]["expert"]) == (8, 8)
    assert shared["all_to_all_slowdown_percent"] == 0
    assert own["strategy"] == given["strategy"]
    decide(tmp_path / "own.yaml")
    said = capsys.readouterr().out
    own_row = r"rail-optimized, K = 8\n deepseek-v3 +T4/4 P2/2 D256 E256/4 *\n"
    given_row = r" deepseek-v3, the file's strategy +P16 D128/8 E64/8 full *\n"
    assert re.search(own_row + given_row, said)
    told = "each network has its own best strategy, so rows differ in more than the network."
    assert said.count(told) == 1
    assert f"\ndeepseek-v3: {told}" in said


def test_networks_of_equal_cost_are_named(tmp_path: Path) -> None:
    text = """
gpus: 64
platform: dgx-h100
radix: 64
models: [{configuration: gpt-1.7b, batch: 512}]
"""
    assert cluster_of(tmp_path, text)["sentence"] == (
        "With HB domains of 8 GPUs, no network costs less for a trained token than "
        "rail-optimized, K = 8. Equal in cost: rail-only, K = 8."
    )


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    models = []
    for folder in ("small", "large"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.yaml").write_text((SHIPPED / "gpt-1.7b.yaml").read_text())
        models.append(f"{{configuration: {folder}/own.yaml, batch: 64}}")
    cluster = f"{{gpus: 64, platform: dgx-h100, radix: 64, models: [{', '.join(models)}]}}"
    found = cluster_of(tmp_path, cluster)["designs"][0]["models"]
    assert [one["configuration"] for one in found] == ["small/own", "large/own"]


def test_a_difference_of_nothing_is_as_fast(tmp_path: Path) -> None:
    text = """
gpus: 4096
platform: dgx-h100
radix: 64
models: [{configuration: gpt-146b, batch: 2048}]
"""
    sentence = cluster_of(tmp_path, text)["sentence"]
    assert "against rail-optimized, K = 8, and is as fast." in sentence


def test_the_sentence_rounds_money_as_the_table_and_names_no_gain_that_rounds_to_nothing(
    tmp_path: Path,
) -> None:
    text = """
gpus: 16
platform: dgx-h100
radix: 8
domain_sizes: [16]
models: [{configuration: llama-3-8b, batch: 256}]
"""
    found = cluster_of(tmp_path, text)
    wide = design(found, "rail-only, K = 16")["models"][0]["iteration_s"]
    own = design(found, "rail-only, K = 8")["models"][0]["iteration_s"]
    assert 1 < own / wide < 1.0005
    assert found["sentence"].endswith(
        "it saves 0.0286 of 0.046 million USD against rail-optimized, K = 8, and is as fast."
    )


def test_a_dearer_and_faster_network_saves_nothing(tmp_path: Path) -> None:
    """The first network has eight GPUs a NIC; a NIC for each of them is dearer, and pays off."""
    text = """
gpus: 64
platform: dgx-h100
radix: 128
gpus_per_nic: [8, 1]
models: [{configuration: moe-1.3b, batch: 64}]
"""
    found = cluster_of(tmp_path, text)
    first, more = found["designs"][0], design(found, found["answer"])
    assert more["usd"] - first["usd"] == pytest.approx(112 * 199)
    assert (
        ": it costs 0.0223 more than the 0.092 million USD of rail-optimized, K = 8, "
        "8 GPUs a NIC, and is 33.1% faster."
    ) in found["sentence"]


def test_a_second_port_saves_a_tier_and_halves_a_loss(tmp_path: Path) -> None:
    text = """
gpus: 1024
platform: dgx-h100
radix: 64
nic_ports: [1, 2]
gpus_per_nic: [1, 2]
models: [{configuration: gpt-146b, batch: 1024}]
"""
    found = cluster_of(tmp_path, text)
    one, two = (design(found, f"rail-only, K = 8{more}") for more in ("", ", 2 ports, bonded"))
    assert (one["switches"], two["switches"]) == (48, 16)
    assert (one["gpus_cut_off"], two["gpus_slowed"]) == (32, 128)
    first, second = (each["models"][0]["losses_percent"]["nic_link"] for each in (one, two))
    assert 0 < second < 0.55 * first
    (to_neighbour, to_port) = (
        each["models"][0]["losses_percent"]["nic_link_to_one"] for each in (one, two)
    )
    assert to_neighbour == to_port > first
    shared = design(found, "rail-only, K = 8, 2 ports, bonded, 2 GPUs a NIC")
    assert shared["usd"] == two["usd"] / 2
    assert shared["models"][0]["iteration_s"] > two["models"][0]["iteration_s"]


def test_a_faster_nic_needs_several_ports(tmp_path: Path) -> None:
    text = """
gpus: 1152
platform: {platform}
radix: 64
models: [{{configuration: llama-3-8b, batch: 1152}}]
"""
    slow, fast = (
        cluster_of(tmp_path, text.format(platform=one)) for one in ("gb200-nvl72", "gb300-nvl72")
    )
    assert fast["designs"][0]["usd"] == 2 * slow["designs"][0]["usd"]
    assert slow["pricing"] is None
    assert "a NIC of 800 Gbit/s counts as 2, each in a network of its own" in fast["pricing"]
    before, after = (one["designs"][0] for one in (slow, fast))
    assert (before["gpus_cut_off"], before["gpus_slowed"]) == (32, 0)
    assert (after["gpus_cut_off"], after["gpus_slowed"]) == (0, 32)


def test_a_network_is_listed_once_where_a_fast_nic_has_its_two_ports_already(
    tmp_path: Path,
) -> None:
    text = """
gpus: 1152
platform: gb300-nvl72
radix: 64
nic_ports: [1, 2]
models: [{configuration: llama-3-8b, batch: 1152}]
"""
    ports = [one["nic_ports"] for one in cluster_of(tmp_path, text)["designs"]]
    assert ports == [1] * len(ports)
    only_two = cluster_of(tmp_path, text.replace("[1, 2]", "[2]"))["designs"]
    assert [one["nic_ports"] for one in only_two] == [2] * len(ports)


def test_a_configuration_is_searched_from_the_cluster_s_folder(cluster: Path) -> None:
    text = cluster.read_text()
    cluster.write_text(text.replace("configuration: gpt-146b", "configuration: own.yaml"))
    with pytest.raises(InputError, match=r"cluster.yaml:\d+ models.0.configuration: .*own.yaml"):
        load_cluster(cluster)
    (cluster.parent / "own.yaml").touch()
    assert load_cluster(cluster).models[0].configuration == str(cluster.parent / "own.yaml")


def test_models_that_differ_in_their_batch_alone_have_names_of_their_own(tmp_path: Path) -> None:
    found = cluster_of(
        tmp_path,
        """\
gpus: 128
platform: dgx-a100
radix: 64
models:
  - {configuration: moe-1.3b, batch: 256}
  - {configuration: moe-1.3b}
  - {configuration: gpt-7.5b}
""",
    )
    assert [one["configuration"] for one in found["designs"][0]["models"]] == [
        "moe-1.3b, 256 x 2048 tokens",
        "moe-1.3b, 512 x 2048 tokens",
        "gpt-7.5b",
    ]


@pytest.mark.parametrize("model", ["gpt-146b", "moe-1.3b"])
def test_only_of_models_with_experts_an_all_to_all_is_to_be_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    file = tmp_path / "cluster.yaml"
    named = f"[{{configuration: {model}}}]"
    file.write_text(f"{{gpus: 128, platform: dgx-h100, radix: 64, models: {named}}}")
    decide(file)
    said = capsys.readouterr().out
    assert ("the slowdown of all-to-all:" in said) == (model == "moe-1.3b")
    assert "what failures cost:" in said
