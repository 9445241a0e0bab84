"""Networks of both fabrics: counts, price, power, and their command."""

import json
from itertools import takewhile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.cost import cost
from model.errors import InputError
from model.fabric.network_cost import (
    Equipment,
    Network,
    Nics,
    Prices,
    built_oversubscription,
    capacity,
    folded_clos,
    networks,
    tiers,
)
from model.fabric.spec import COMPARED, FabricKind, Planes
from scenarios.format.prices import DEFAULT, load_prices
from studies.paper import published

RADICES = st.integers(2, 256).map(lambda half: 2 * half)


@pytest.mark.parametrize("row", published("switch_counts"), ids=lambda row: row["radix"])
def test_every_count_of_table_2(row: dict[str, str]) -> None:
    gpus, radix, domain_size = (int(row[key]) for key in ("gpus", "radix", "hb_domain_gpus"))
    clos = Network(FabricKind.RAIL_OPTIMIZED, gpus, radix, domain_size).equipment
    rails = Network(FabricKind.RAIL_ONLY, gpus, radix, domain_size).equipment
    found = (clos.switches, clos.transceivers, rails.switches, rails.transceivers)
    assert found == tuple(
        int(row[f"{kind}_{what}"])
        for kind in ("clos", "rail_only")
        for what in ("switches", "transceivers")
    )


@given(st.integers(1, 10**6), RADICES)
def test_a_clos_network_has_ports_for_all_cables(endpoints: int, radix: int) -> None:
    network = folded_clos(endpoints, radix)
    count = tiers(endpoints, radix)
    assert capacity(count, radix) >= endpoints
    assert count == 1 or capacity(count - 1, radix) < endpoints
    ends_at_switches = network.transceivers - endpoints
    assert network.ports >= ends_at_switches == (2 * count - 1) * endpoints


@given(st.integers(2, 5), st.integers(1, 4))
def test_a_full_clos_network_uses_every_port(half: int, count: int) -> None:
    endpoints = capacity(count, 2 * half)
    network = folded_clos(endpoints, 2 * half)
    assert network.ports == network.transceivers - endpoints


@given(st.integers(1, 10**6), RADICES, st.data())
def test_rails_never_need_more_tiers(gpus: int, radix: int, data: st.DataObject) -> None:
    domain_size = data.draw(st.integers(1, gpus))
    rails = Network(FabricKind.RAIL_ONLY, gpus, radix, domain_size).equipment
    assert (
        rails.transceivers
        <= Network(FabricKind.RAIL_OPTIMIZED, gpus, radix, 1).equipment.transceivers
    )
    assert rails.ports >= rails.transceivers - gpus


@pytest.mark.parametrize(
    ("gpus", "switches"), [(512, 8), (513, 12), (520, 26), (576, 27), (1024, 48), (1088, 51)]
)
def test_rails_larger_than_a_switch_share_those_of_each_tier(gpus: int, switches: int) -> None:
    """By hand: 17 lowest and 9 upper switches for 520 GPUs, of which a rail has 65."""
    assert Network(FabricKind.RAIL_ONLY, gpus, 64, 8).equipment.switches == switches


@pytest.mark.parametrize(("gpus", "switches"), [(100, 2), (600, 10)])
def test_rails_of_two_lengths_fill_a_switch(gpus: int, switches: int) -> None:
    """By hand: of 100 GPUs, 28 rails of 2 and 8 rails of 1 are on a switch, 36 on another."""
    assert Network(FabricKind.RAIL_ONLY, gpus, 64, 72).equipment.switches == switches


@given(st.integers(1, 200), st.integers(1, 32).map(lambda half: 2 * half), st.data())
def test_rails_are_put_where_they_fit_first(
    domain_size: int, radix: int, data: st.DataObject
) -> None:
    gpus = data.draw(st.integers(domain_size, domain_size * radix))
    domains, more = divmod(gpus, domain_size)
    switches: list[list[int]] = []
    for rail in [domains + 1] * more + [domains] * (domain_size - more):
        place = next((rails for rails in switches if sum(rails) + rail <= radix), None)
        if place is None:
            switches.append([rail])
        else:
            place.append(rail)
    found = Network(FabricKind.RAIL_ONLY, gpus, radix, domain_size)
    assert found.equipment.switches == len(switches)
    assert found.at_risk["gpus_cut_off"] == max(map(sum, switches))
    assert found.rails_on_a_switch == max(map(len, switches))


@given(
    st.integers(1, 10**5),
    st.integers(2, 64).map(lambda half: 2 * half),
    st.integers(1, 512),
    st.integers(1, 2),
    st.sampled_from(Planes),
)
def test_rail_only_needs_no_more_than_rail_optimized_and_no_less_for_another_gpu(
    gpus: int, radix: int, domain_size: int, ports: int, planes: Planes
) -> None:
    nics = Nics(1, ports, planes)
    rails, whole, more = (
        Network(kind, count, radix, domain_size, nics=nics).equipment
        for kind, count in (
            (FabricKind.RAIL_ONLY, gpus),
            (FabricKind.RAIL_OPTIMIZED, gpus),
            (FabricKind.RAIL_ONLY, gpus + 1),
        )
    )
    assert rails.switches <= min(whole.switches, more.switches)
    assert rails.transceivers <= min(whole.transceivers, more.transceivers)


@given(st.integers(1, 10**5), RADICES)
def test_one_gpu_domains_are_one_clos_network(gpus: int, radix: int) -> None:
    kinds = (Network(kind, gpus, radix, 1).equipment for kind in COMPARED)
    assert len(set(kinds)) == 1


def test_price_and_power_are_linear_in_ports_and_transceivers() -> None:
    prices = Prices(port_usd=2, transceiver_usd=3, port_watts=5, transceiver_watts=7)
    network = Equipment(radix=4, switches=10, transceivers=100)
    assert (prices.usd(network), prices.watts(network)) == (380, 900)


def test_the_saving_is_the_difference() -> None:
    found = networks(32768, 64, 256, load_prices().prices)
    saved, whole, rails = found["saved"], found["rail-optimized"], found["rail-only"]
    assert saved["usd"] == whole["usd"] - rails["usd"]
    assert saved["usd_percent"] == pytest.approx(38.3, abs=0.05)


def test_the_command_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    cost(gpus=65536, radix=128, domain_size=256, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "railbed.cost/1"
    assert found["rail-only"]["switches"] == 1536


def table(document: str, heading: str) -> list[list[str]]:
    """The cells of the table of a document that has this heading."""
    lines = (Path(__file__).parents[2] / document).read_text().partition(heading)[2].splitlines()
    rows = takewhile(lambda line: line.startswith("|"), lines[2:])
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_documented_price_of_two_ports_is_computed() -> None:
    rows = table("docs/explanation/training.md", "| NICs of 8 GPUs |")
    assert len(rows) == 4
    for (of_domain, *ports), *shown in ((row[0].split(","), *row[1:]) for row in rows):
        nics = Nics(8 // int(of_domain), 2 if ports else 1)
        found = networks(1024, 64, 8, load_prices().prices, nics)
        for kind, text in zip(("rail-optimized", "rail-only"), shown, strict=True):
            one = found[kind]
            hit, how = (one["gpus_slowed"], "slowed") if ports else (one["gpus_cut_off"], "cut off")
            costs = f"{one['switches']}, {one['watts'] / 1e3:.0f}, {one['usd'] / 1e6:.2f}"
            assert text == f"{costs}, {hit} {how}"


@given(st.integers(1, 10**5), RADICES, st.sampled_from(Planes), st.data())
def test_two_ports_need_no_more_tiers_and_two_switches(
    gpus: int, radix: int, planes: Planes, data: st.DataObject
) -> None:
    domain_size = data.draw(st.integers(1, gpus))
    for kind in (FabricKind.RAIL_ONLY, FabricKind.RAIL_OPTIMIZED):
        one, two = (
            Network(kind, gpus, radix, domain_size, nics=Nics(1, ports, planes)).equipment
            for ports in (1, 2)
        )
        assert two.transceivers <= one.transceivers
        assert two.switches >= 2
        hit = Network(kind, gpus, radix, domain_size, nics=Nics(1, 2, planes)).at_risk
        assert hit["gpus_cut_off"] == 0 < hit["gpus_slowed"] <= gpus


@given(RADICES)
def test_any_number_of_ports_up_is_built_exactly(radix: int) -> None:
    """A ratio of ports is a fraction, which binary numbers round."""
    for up in range(1, radix // 2 + 1):
        ratio = (radix - up) / up
        assert built_oversubscription(radix + 1, radix, ratio) == ratio


@pytest.mark.parametrize(
    ("gpus", "planes", "switches", "transceivers"),
    [
        (160, Planes.BONDED, 5 + 3, 640),
        (160, Planes.SEPARATE, 2 * (3 + 2), 640),
        (5000, Planes.BONDED, 2 * 157 + 79, 30_000),
        (5000, Planes.SEPARATE, 2 * (79 + 40), 20_000),
    ],
)
def test_separate_planes_are_networks_of_their_own(
    gpus: int, planes: Planes, switches: int, transceivers: int
) -> None:
    """By hand: switches of 128 ports at half the rate of a NIC, for all ports or those of a plane.

    Those of 5000 GPUs are too many for two tiers, those of a plane are not.
    """
    nics = Nics(1, 2, planes)
    found = Network(FabricKind.RAIL_OPTIMIZED, gpus, 64, 8, nics=nics).equipment
    assert (found.switches, found.transceivers) == (switches, transceivers)


@given(st.integers(0, 10**4), st.integers(1, 8), RADICES, st.sampled_from([1, 2, 4, 8]))
def test_a_nic_for_several_gpus_is_a_smaller_cluster(
    domains: int, rest: int, radix: int, shared: int
) -> None:
    """The last domain has the `rest` alone, and a NIC that fewer of them may share."""
    nics = 8 // shared * domains + -(-rest // shared)
    for kind in (FabricKind.RAIL_ONLY, FabricKind.RAIL_OPTIMIZED):
        whole = Network(kind, 8 * domains + rest, radix, 8, nics=Nics(shared))
        assert whole.equipment == Network(kind, nics, radix, 8 // shared).equipment
        assert whole.at_risk["gpus_cut_off"] <= whole.gpus


def test_nics_that_no_domain_has_are_refused() -> None:
    for gpus_per_nic, ports, where in (
        (3, 1, "--gpus-per-nic: must divide --domain-size, 8, got 3"),
        (1, 3, "--nic-ports"),
    ):
        with pytest.raises(InputError, match=where):
            cost(64, 64, 8, gpus_per_nic=gpus_per_nic, nic_ports=ports)


def test_planes_need_a_second_port() -> None:
    with pytest.raises(InputError, match=r"--planes: needs two ports; a NIC has 1 port"):
        cost(64, 64, 8, planes=Planes.SEPARATE)


def test_own_prices_replace_the_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(DEFAULT.read_text().replace("value: 694", "value: 0"))
    cost(gpus=64, radix=64, domain_size=8, prices=own, as_json=True)
    printed = capsys.readouterr()
    assert json.loads(printed.out)["rail-optimized"]["usd"] == 2 * 64 * 199
    assert printed.err == ""


@pytest.mark.parametrize(("unit", "things"), [("usd", "prices"), ("watts", "powers")])
def test_prices_or_powers_that_are_all_zero_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], unit: str, things: str
) -> None:
    own, values = tmp_path / "own.yaml", {"usd": ("694", "199"), "watts": ("18.375", "8.5")}
    text = DEFAULT.read_text()
    for value in values[unit]:
        text = text.replace(f"value: {value}", "value: 0")
    own.write_text(text)
    cost(gpus=64, radix=64, domain_size=8, prices=own, as_json=True)
    printed = capsys.readouterr()
    assert json.loads(printed.out)["saved"][unit] == 0
    said = f"all {things} are 0, so that no network differs in them"
    assert printed.err == f"Warning: {own}: {said}.\n"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("value: 694", "value: -1", "own.yaml:3 port_usd.value: must be at least 0, got -1"),
        ("port_usd", "port_usb", "unknown key 'port_usb' (did you mean 'port_usd'?)"),
        ("  source: >-", "  sauce: >-", "unknown key 'sauce' (did you mean 'source'?)"),
    ],
)
def test_a_mistake_in_prices_is_said_with_its_line(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(DEFAULT.read_text().replace(old, new, 1))
    with pytest.raises(InputError) as error:
        load_prices(own)
    assert expected in str(error.value)


@pytest.mark.parametrize(("gpus", "option"), [(0, "--gpus"), (4, "--domain-size")])
def test_sizes_that_no_fabric_has_are_said_together(gpus: int, option: str) -> None:
    with pytest.raises(InputError) as error:
        cost(gpus=gpus, radix=63, domain_size=8)
    assert [problem.where for problem in error.value.problems] == [option, "--radix"]
