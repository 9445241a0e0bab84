"""Links of any fabric: as many, as fast, as deep and as impaired as its specification says."""

from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.fabric.build import (
    build_topology,
    exchanged,
    ocs_port_at,
    straight_cross_connects,
)
from model.fabric.shaping import MIN_BURST_BYTES, Impairment
from model.fabric.spec import COMPARED, GBIT, FabricKind
from model.fabric.topology import Link, LinkKind, Topology
from model.fabric.transport import Roce, Transport
from model.fabric.wiring import Wire
from model.routing.paths import Routing
from tests.unit.fabrics import custom_topologies, regular_topologies, spec, topologies, wired

IMPAIRMENTS = st.builds(Impairment, st.floats(0, 0.01), st.floats(0, 0.02))
# At these scales, some buckets are deeper than the burst of a switch, and some are shallower.
SCALES, DEPTHS_S = st.sampled_from([200.0, 3000.0, 20_000.0]), st.sampled_from([0.001, 0.01, 0.02])
RATIOS = st.sampled_from([1.0, 1.5, 4.0])
INTO_DOMAINS = LinkKind.HB, LinkKind.HB_TRUNK


@st.composite
def impaired(draw: st.DrawFn, of: st.SearchStrategy[Topology]) -> Topology:
    """A fabric of any scale, buckets, oversubscription, delays and losses."""
    plain = draw(of).spec
    hb = replace(plain.hb, oversubscription=draw(RATIOS), impairment=draw(IMPAIRMENTS))
    nic = replace(plain.nic, oversubscription=draw(RATIOS), impairment=draw(IMPAIRMENTS))
    wires = [wire._replace(**vars(draw(IMPAIRMENTS))) for wire in plain.nic.links]
    changed = replace(plain, hb=hb, nic=replace(nic, links=tuple(wires)))
    return build_topology(
        replace(changed, bandwidth_scale=draw(SCALES), bucket_depth_s=draw(DEPTHS_S))
    )


def require_bucket(topology: Topology, link: Link) -> None:
    """A software switch drops packets of a larger burst than 64 KiB; HB switches are bridges."""
    asked = topology.spec.bucket_depth_s * link.rate_bps / 8
    most = asked if link.kind in INTO_DOMAINS else min(asked, 65536)
    assert link.shaper.burst_bytes == pytest.approx(max(MIN_BURST_BYTES, most), abs=1)
    assert topology.least_depth_s <= link.depth_s
    assert topology.slowest_bps <= link.rate_bps


@given(impaired(regular_topologies(6, 4)))
def test_each_link_has_its_share_of_the_platform_in_slow_motion(topology: Topology) -> None:
    on, below, above = topology.spec, Counter[str](), Counter[str]()
    of_hb, of_nic = on.hb.rate_bps, on.nic.rate_bps / on.nic.ports
    for link in topology.links:
        require_bucket(topology, link)
        into_domain = link.kind in INTO_DOMAINS
        assert link.impairment == (on.hb if into_domain else on.nic).impairment
        full = {LinkKind.HB: of_hb, LinkKind.NIC: of_nic}.get(link.kind)
        if full is not None:
            assert link.rate_bps == pytest.approx(full / on.bandwidth_scale, abs=0.5)
            below[link.upper.node] += link.rate_bps
        else:
            above[link.lower.node] += link.rate_bps
    for network, switches in ((on.hb, topology.hb_leaves), (on.nic, topology.rail_switches)):
        if above.keys() & switches:
            ratio = max(below[switch] / above[switch] for switch in switches)
            assert ratio == pytest.approx(network.oversubscription, rel=1e-3)


@given(impaired(custom_topologies(4, 3)))
def test_a_packet_passes_a_wire_if_both_of_its_impairments_let_it_pass(topology: Topology) -> None:
    own, links = topology.spec.nic.impairment, topology.link_by_name
    for wire in topology.spec.nic.links:
        link = links[f"{wire.lower}--{wire.upper}"]
        require_bucket(topology, link)
        assert link.rate_bps == pytest.approx(wire.rate_bps / topology.spec.bandwidth_scale, abs=1)
        assert link.impairment.delay_s == pytest.approx(wire.delay_s + own.delay_s)
        assert 1 - link.impairment.loss == pytest.approx((1 - wire.loss) * (1 - own.loss))


@given(impaired(topologies(4, 3)))
def test_no_path_delays_a_packet_longer_than_is_waited_for(topology: Topology) -> None:
    on, routing = topology.spec, Routing(topology)
    for source, destination in permutations(topology.gpus, 2):
        hops = routing.path(source, destination)
        delay_s = sum(hop.link.impairment.delay_s for hop in hops)
        most_s = on.longest_delay_s if source.domain != destination.domain else on.hb_delay_s
        assert delay_s <= most_s * (1 + 1e-9)


def test_what_is_under_way_is_that_of_the_fastest_link_of_a_gpu() -> None:
    """A path of 2, 3 and 5 ms between two GPUs of unequal links, and one of 1 ms in a domain."""
    fabric = spec(FabricKind.RAIL_OPTIMIZED, 2, 1)
    ends = ("d0g0", "a", 100, 0.002), ("a", "b", 900, 0.003), ("d1g0", "b", 400, 0.005)
    links = [Wire(one, to, rate * GBIT, delay_s) for one, to, rate, delay_s in ends]
    slow = replace(fabric, hb=replace(fabric.hb, impairment=Impairment(0.0005)))
    on = wired(slow, links)
    assert on.under_way_bytes(by_nic=True) == pytest.approx(2 * 0.011 * 20e6 / 8)
    assert on.under_way_bytes(by_nic=False) == 2 * 0.001 * 180e6 / 8
    for loss in (0.0, 0.01):
        lossy = [wire._replace(delay_s=0.0, loss=loss) for wire in links]
        assert wired(fabric, lossy).is_impaired == (loss > 0)


@given(impaired(regular_topologies(4, 4)), st.integers(1, 64), st.integers(1, 4))
def test_a_sender_waits_for_all_other_gpus_at_each_link(
    topology: Topology, window: int, queue_pairs: int
) -> None:
    roce = Roce(window=window, queue_pairs=queue_pairs, retries=3)
    on = replace(topology.spec, transport=Transport.ROCE, roce=roce)
    # Ethernet 14, IP 20, UDP 8, BTH 12, ICRC 4 bytes of headers.
    queued_bits = (len(topology.gpus) - 1) * window * queue_pairs * (4096 + 58) * 8
    # Of two HB links, and NIC links up and down, uplinks included.
    queues = 6 if on.has_spines else 4
    expected_s = max(0.2, 2 * on.longest_delay_s + queues * queued_bits / topology.slowest_bps)
    assert on.retransmission_timeout_s == pytest.approx(expected_s, rel=1e-3)
    # It is sent once, and repeated three times, each of which has the time to be answered.
    assert on.breaks_after_s == pytest.approx(4 * expected_s, rel=1e-3)
    assert (on.link_mtu_bytes, topology.spec.link_mtu_bytes) == (4096 + 64, 1500)
    # TCP waits for what is under way.
    waiting_bits = (len(topology.gpus) - 1) * topology.spec.under_way_bytes(by_nic=True) * 8
    assert topology.tcp_timeout_s >= max(0.2, min(120, waiting_bits / topology.slowest_bps))


@given(
    st.sampled_from(COMPARED), st.integers(2, 6), st.integers(1, 4), st.integers(1, 3), st.data()
)
def test_an_exchanged_nic_link_leads_where_the_other_one_did(
    kind: FabricKind, domains: int, size: int, leaves: int, data: st.DataObject
) -> None:
    """To the same port of the same leaf switch; exchanged again, all is as before."""
    fabric = spec(kind, domains, size, rail_leaves=min(leaves, domains))
    before, gpus = straight_cross_connects(fabric), build_topology(fabric).gpus
    one, other = data.draw(st.sampled_from(gpus)), data.draw(st.sampled_from(gpus))
    after = exchanged(before, one, before[other.domain][other.rail])
    was, now = (build_topology(fabric, each) for each in (before, after))
    moved = {one: other, other: one}
    for gpu in gpus:
        (link,), (wanted,) = now.nic_links(gpu), was.nic_links(moved.get(gpu, gpu))
        assert (link.upper.node, link.upper.number) == (wanted.upper.node, wanted.upper.number)
        rail = now.switch_by_name[link.upper.node].rail or 0
        assert ocs_port_at(rail, link.upper.number) == after[gpu.domain][gpu.rail]
    assert exchanged(after, one, before[one.domain][one.rail]) == before
    assert (now.digest == was.digest) == (one == other)
