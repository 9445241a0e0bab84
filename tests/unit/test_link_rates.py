"""Link rates: parsing of the kernel's messages, and the controller's drain decisions."""

import pytest

from controller.detection.fabric_state import ObservedFabric
from controller.detection.kernel_notifications import root_rates
from linux.network.netlink import messages_in
from model.fabric.build import build_topology
from model.fabric.spec import FabricKind
from model.fabric.topology import Topology
from tests.unit.fabrics import spec

# As Linux 6.18 sent them, of interface 3; statistics behind the options are left out.
AT_2500000_BYTES = (
    "ec0000002800000002010000e5350000000000000300000001000100ffffffff00000000080001006874620034000200"
    "300001000001000000000000a02526000001000000000000a025260024f4000024f40000004000000000000000000000"
)
# A rate of 10 GB/s, which does not fit into the 32 bits of `struct tc_htb_opt`.
AT_10_GIGABYTES = (
    "040100002800000009010000e5350000000000000300000001000100ffffffff0000000008000100687462004c000200"
    "300001000001000000000000ffffffff0001000000000000ffffffff093d0000093d00000040000007000000000000"
    "000c00060000e40b54020000000c00070000e40b5402000000"
)
HANDLE_AND_PARENT = "01000100ffffffff"


def rates_of(message: str) -> list[tuple[int, int]]:
    return list(root_rates(messages_in(bytes.fromhex(message))))


def test_the_rate_is_that_of_the_class_at_the_root() -> None:
    assert rates_of(AT_2500000_BYTES) == [(3, 20_000_000)]
    leaf = AT_2500000_BYTES.replace(HANDLE_AND_PARENT, "0200010001000100")
    assert rates_of(leaf) == []


def test_a_rate_of_more_than_32_bits_is_read_from_its_own_attribute() -> None:
    assert rates_of(AT_10_GIGABYTES) == [(3, 80_000_000_000)]


def test_other_messages_and_other_queues_say_nothing() -> None:
    deleted = AT_2500000_BYTES.replace("ec00000028", "ec00000029", 1)
    assert rates_of(deleted) == []
    other = AT_2500000_BYTES.replace(b"htb".hex(), b"drr".hex())
    assert rates_of(other) == []


@pytest.fixture
def topology() -> Topology:
    return build_topology(spec(FabricKind.RAIL_OPTIMIZED, 2, 4, 2))


@pytest.fixture
def fabric(topology: Topology) -> ObservedFabric:
    return ObservedFabric(topology)


def test_rates_that_are_nominal_are_no_change(topology: Topology, fabric: ObservedFabric) -> None:
    for interface, link in topology.link_by_interface.items():
        for rate_bps in (link.rate_bps, link.rate_bps // 8 * 8, round(0.995 * link.rate_bps)):
            assert fabric.rate(interface, rate_bps) == []
    assert not fabric.health(0).rates_bps
    assert fabric.rate("no-link-of-the-fabric", 5) == []


def test_a_slow_nic_link_is_drained_until_it_is_fast_again(fabric: ObservedFabric) -> None:
    name = "d0g0--rail0"
    assert fabric.rate("to-d0g0", 5_000_000) == [
        {"link": name, "degraded": "rate", "rate_bps": 5_000_000}
    ]
    assert fabric.health(0).drained == fabric.health(0).failed == {name}
    assert fabric.rate("to-d0g0", 5_000_000) == []
    assert fabric.rate("to-d0g0", 20_000_000) == [
        {"link": name, "usable": "rate", "rate_bps": 20_000_000}
    ]
    assert not fabric.health(0).failed


def test_a_link_that_is_hardly_slower_goes_on_at_its_rate(fabric: ObservedFabric) -> None:
    assert fabric.rate("to-d0g0", 18_000_000)
    health = fabric.health(0)
    assert health.rates_bps == {"d0g0--rail0": 18_000_000}
    assert not health.failed
    assert fabric.rate("hb0-g0", 1_000_000)
    assert not fabric.health(0).failed


def test_an_uplink_is_as_slow_as_the_slower_of_its_ends(fabric: ObservedFabric) -> None:
    slow = [{"link": "rail0--spine0", "degraded": "rate", "rate_bps": 2_000_000}]
    assert fabric.rate("rail0-s0", 2_000_000) == slow
    assert fabric.rate("spine0-r0", 2_000_000) == []
    assert fabric.rate("rail0-s0", 20_000_000) == []
    assert fabric.health(0).drained == {"rail0--spine0"}
    (change,) = fabric.rate("spine0-r0", 20_000_000)
    assert change["usable"] == "rate"


def test_a_drained_link_that_fails_is_no_longer_drained(fabric: ObservedFabric) -> None:
    fabric.rate("to-d0g0", 5_000_000)
    fabric.port("rail0", "to-d0g0", 1, False, 1)
    health = fabric.health(1)
    assert health.failed == health.broken == {"d0g0--rail0"}
    assert not health.drained
    assert not health.rates_bps


def test_a_degraded_link_that_moves_takes_its_rate_along(fabric: ObservedFabric) -> None:
    fabric.rate("to-d0g0", 5_000_000)
    fabric.port("rail1", "to-d0g0", 1, True, 1)
    assert fabric.health(1).drained == {"d0g0--rail1"}
