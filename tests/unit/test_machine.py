"""Costs of hops, solved from measured loads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.prediction.machine import (
    HopCost,
    HopKind,
    SwitchThreads,
    ThreadSample,
    solve_cost,
    solve_threads,
    with_ports,
)
from tests.unit.machines import TWO_CORES, slower

COST = st.floats(1e-9, 1e-3)


@given(COST, COST)
def test_two_loads_give_the_two_costs(packet_s: float, byte_s: float) -> None:
    cost = HopCost(packet_s, byte_s)
    loads = [(n, size, cost.cpu_s(n, size)) for n, size in ((17_000, 25e6), (1_150, 24e6))]
    found = solve_cost(*loads)
    assert found.cpu_s(5_000, 20e6) == pytest.approx(cost.cpu_s(5_000, 20e6))


@given(st.floats(-1, 1), st.floats(-1, 1))
def test_noise_makes_no_cost_negative(small_s: float, large_s: float) -> None:
    found = solve_cost((17_000, 25e6, small_s), (1_150, 24e6, large_s))
    assert found.packet_s >= 0
    assert found.byte_s >= 0


@given(st.floats(1.01, 10), st.sampled_from(HopKind))
def test_what_costs_more_is_possible_less_often(factor: float, kind: HopKind) -> None:
    most = TWO_CORES.most_packets_per_s(kind, 1500)
    assert slower(TWO_CORES, factor).most_packets_per_s(kind, 1500) < most
    assert TWO_CORES.most_packets_per_s(kind, 3000) < most


@given(st.floats(1e-6, 20e-6), st.floats(1e-11, 2e-9), st.integers(5, 150))
def test_three_loads_give_the_costs_of_a_thread(packet_s: float, byte_s: float, wake: int) -> None:
    true = SwitchThreads(HopCost(packet_s, byte_s), wake * 1e-6, 0.0)
    loads = (sample(true, 40_000, 60e6), sample(true, 8_000, 140e6), sample(true, 1_000, 20e6))
    found = solve_threads(*loads, ports=16)
    for packets, size in ((2_000, 40e6), (20_000, 100e6)):
        wanted, got = sample(true, packets, size), sample(found, packets, size)
        assert got.busy == pytest.approx(wanted.busy, rel=0.02)


def sample(threads: SwitchThreads, packets: float, size: float) -> ThreadSample:
    """Return the sample of a thread under a load, not limited to one core."""
    return ThreadSample(
        packets, size, threads.cost.cpu_s(packets, size) + threads.wakeup_share(packets, 16)
    )


@given(st.integers(20, 100), st.floats(1e-8, 1e-6))
def test_a_thread_with_more_ports_tells_what_a_port_costs(wake: int, port_s: float) -> None:
    true = SwitchThreads(HopCost(10e-6, 1e-10), wake * 1e-6, port_s)
    few = SwitchThreads(true.cost, true.wake_s + 16 * port_s, 0.0)
    load = ThreadSample(1_000, 1e6, true.cost.cpu_s(1_000, 1e6) + true.wakeup_share(1_000, 130))
    found = with_ports(few, 16, load, 130)
    assert found.port_s == pytest.approx(port_s)
    assert found.wake_s == pytest.approx(true.wake_s)


@given(st.floats(1, 1e7), st.floats(1, 1000))
def test_waking_up_never_takes_more_than_all_of_the_time(packets: float, ports: float) -> None:
    assert 0 < TWO_CORES.threads.wakeup_share(packets, ports) < 1
