"""The default timeout of queue pairs: no answer takes longer while all queues are full."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from execution.cases.case import Measuring
from execution.cases.progress import Listener
from execution.run import Run
from model.fabric.health import Epoch, Health
from model.fabric.spec import FabricKind, FabricSpec, SpineSelection
from model.fabric.topology import Hop, Topology
from model.fabric.transport import Transport
from model.prediction.timeouts import longest_wait_s, with_timeout
from model.routing.paths import Routing
from results.store.runs import RunFolder
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.planning.plan import notes
from scenarios.scenario import Scenario
from testbed.nodes.gpu_proxies import ProxyKind
from tests.unit.fabrics import by_roce, fabrics_with_failures, regular_topologies, spec

FRAME_BITS = (4096 + 58) * 8
SELECTIONS = [(SpineSelection.DESTINATION, 3), (SpineSelection.HASH, 3), (SpineSelection.SPRAY, 1)]


def longest_s(topology: Topology, health: Health, window: int) -> float:
    """The longest sum of a path's queues, if the windows of all pairs wait at each link."""
    on, routing, found = topology.spec, Routing(topology, health), defaultdict[Hop, float](float)
    paths = list[Sequence[Hop]]()
    for one, other in permutations(topology.gpus, 2):
        ways = product(range(on.lanes), range(on.entropies)) if one.domain != other.domain else ()
        for lane, entropy in ways:
            paths.append(routing.path_if_any(one, other.by(lane), entropy) or ())
            for hop in paths[-1]:
                found[hop] += on.roce.queue_pairs / on.entropies * window * FRAME_BITS
    return max((sum(found[hop] / hop.link.rate_bps for hop in path) for path in paths), default=0.0)


@given(fabrics_with_failures(), st.sampled_from(SELECTIONS), st.integers(1, 64))
def test_a_packet_waits_in_all_queues_of_its_path_for_the_pairs_that_share_it(
    failed: tuple[Topology, Health], selected: tuple[SpineSelection, int], window: int
) -> None:
    (fabric, health), (selection, queue_pairs) = failed, selected
    # A spread flow that would end on both ports of a NIC is refused, as it cannot be modeled.
    plain = fabric.spec.lanes == 1 and not fabric.spec.nic.links
    assume(selection is not SpineSelection.SPRAY or plain)
    topology = by_roce(fabric, queue_pairs, selection)
    roce = replace(topology.spec.roce, window=window)
    topology = replace(topology, spec=replace(topology.spec, roce=roce))
    expected_s, found_s = (
        longest_s(topology, health, window),
        longest_wait_s([Epoch(topology, health)]),
    )
    if selection is SpineSelection.SPRAY:
        # Each of its uplinks counts as the slowest of all ways, which one path need not have.
        assert expected_s * (1 - 1e-6) <= found_s <= 2 * expected_s * (1 + 1e-6)
    else:
        assert found_s == pytest.approx(expected_s)


@given(regular_topologies(5, 4, most_missing=2))
def test_no_path_without_odd_links_has_longer_queues_than_unfollowed_ones(fabric: Topology) -> None:
    topology = by_roce(fabric, 1, SpineSelection.DESTINATION)
    assume(not topology.spec.keys_without_forms)
    waits_s = longest_wait_s([Epoch(topology)])
    assert waits_s <= topology.spec.retransmission_timeout_s * (1 + 1e-6)


@pytest.mark.parametrize(("domains", "follows"), [(8, True), (512, False)])
def test_of_more_paths_than_can_be_followed_none_is(domains: int, follows: bool) -> None:
    on = spec(FabricKind.RAIL_OPTIMIZED, domains, 4)
    on = replace(on, transport=Transport.ROCE, nic=replace(on.nic, oversubscription=4, pxn=False))
    told = list[str]()
    assert (with_timeout(on, (), told.append) is not on) is follows
    assert told == ["rail-optimized: the paths of all queue pairs, for their timeout"] * follows


SPINES = "[{what: spine-switch, where: [spine0, spine1, spine2]}]"
SLOW_UPLINK = "[{what: uplink, where: [rail0--spine0], how: degrade, rate: 390 Gbit/s}]"
SLOW_NIC = "[{what: nic-link, how: degrade, rate: 50 Gbit/s}]"


@pytest.mark.parametrize(
    ("keys", "faults", "pairs"),
    [
        # NIC links up and down, for twelve others; HB links, of nine times their rate, for nine.
        ("pxn: true", "[]", 2 * (12 + 9 / 9)),
        # Four GPUs of a rail send to three on other rails, in each of three other domains.
        ("pxn: false", "[]", 2 * (12 + 9)),
        ("spines: 1, oversubscription: 4", "[]", 2 * (12 + 36)),
        ("oversubscription: 4", "[]", 2 * (12 + 9 * 4)),
        ("pxn: false", SPINES, 2 * (12 + 36)),
        # The four GPUs of a domain send to twelve others.
        ("nics_per_domain: 1", "[]", 2 * (48 + 48 / 9)),
        ("nics_per_domain: 2", "[]", 2 * (24 + 12 + 24 / 9)),
        # A slow link is used until it is drained; one of two ports has half of its NIC's rate.
        ("pxn: false", SLOW_NIC, 12 * 8 + 12 + 2 * 9),
        ("nic_ports: 2", SLOW_NIC, 12 * 8 + 12 * 2 + 2 * 18),
        ("spines: 1, oversubscription: 4", SLOW_UPLINK, 2 * 12 + 36 + 36 * 20 / 19.5),
    ],
)
def test_by_default_a_packet_waits_for_all_that_may_be_before_it(
    tmp_path: Path, keys: str, faults: str, pairs: float
) -> None:
    expected_s = pairs * 32 * FRAME_BITS / 20e6
    assert timeout_s(tmp_path, keys, faults) == pytest.approx(expected_s)
    assert timeout_s(tmp_path, f"{keys}, roce: {{timeout_seconds: 3}}", faults) == 3


def timeout_s(folder: Path, keys: str, faults: str) -> float:
    """The timeout on four domains of four GPUs with these keys and faults, at 20 Mbit/s a NIC."""
    scenario = of_keys(folder, keys, faults)
    (fabric,) = scenario.fabrics
    return with_timeout(fabric, scenario.faults.get(fabric.kind, ())).retransmission_timeout_s


def of_keys(folder: Path, keys: str, faults: str) -> Scenario:
    file = folder / "scenario.yaml"
    file.write_text(
        "fabric: {kinds: rail-optimized, domains: 4, domain_size: 4, platform: dgx-h100, "
        f"bandwidth_scale: 20000, transport: roce, {keys}}}\n"
        "workloads: [{collective: all-to-all, algorithm: direct, size: 4 MB}]\n"
        f"faults: {faults}\n"
    )
    return load(file)


@pytest.mark.parametrize(("keys", "faults"), [("nics_per_domain: 1", "[]"), ("pxn: false", SPINES)])
def test_a_run_brings_its_fabric_up_with_that_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str, faults: str
) -> None:
    used, told = list[FabricSpec](), list[str]()

    @contextmanager
    def brought_up(_run: Run, spec: FabricSpec, _name: str) -> Iterator[None]:
        used.append(spec)
        yield

    monkeypatch.setattr(Run, "_fabric", brought_up)
    monkeypatch.setattr(Listener, "step", lambda _, what: told.append(what))
    monkeypatch.setattr(Run, "_case", lambda *_: None)
    monkeypatch.setattr(Run, "_fault_case", lambda *_: None)
    measuring = Measuring(
        of_keys(tmp_path, keys, faults), RunFolder.planned(tmp_path, "run"), Listener()
    )
    Run(ProxyKind.PROCESS, measuring).execute()
    assert used[0].retransmission_timeout_s == timeout_s(tmp_path, keys, faults)
    assert told == ["rail-optimized: the paths of all queue pairs, for their timeout"]


@pytest.mark.parametrize(("given", "told"), [("0.2", True), ("60", False), ("null", False)])
def test_a_timeout_that_full_queues_may_exceed_is_told(given: str, told: bool) -> None:
    scenario = load(LIBRARY / "roce-nic-down.yaml", [f"fabric.roce.timeout_seconds={given}"])
    said = "rail-only: the timeout is 0.2 s, and an answer may take 3.69 s behind full queues."
    assert (said in notes(scenario)) is told
