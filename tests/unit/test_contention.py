"""How fairly flows that contend shared a link."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.fabric.build import build_topology
from model.fabric.spec import FabricKind
from model.fabric.transport import Transport
from model.measurement.records import Repeat, TransferRecord
from model.prediction.network import healthy_network
from model.workload.transfers.columns import Transfer, Transfers
from results.verdicts.breakdown import Contention, contention
from results.verdicts.model_comparison import grain_reasons
from results.verdicts.verdict import Verdict
from tests.unit.fabrics import spec as fabric_spec

SOURCES = 3
MODELED_S, BEGUN_NS = 3.0, 10**9


def found(
    lasted_s: list[float],
    packets: int = 8,
    size_bytes: int = 1_000_000,
    transport: Transport = Transport.TCP,
) -> Contention | None:
    """What the flows of an incast did, which last so many seconds each.

    The third is larger, and a flow beside them goes the other way. Of three executions, two are
    whole, one shorter by half and one longer.
    """
    spec = replace(fabric_spec(FabricKind.RAIL_ONLY, SOURCES + 1, 1), grain_packets=packets)
    spec = replace(spec, transport=transport)
    topology = build_topology(spec)
    sizes = [size_bytes, size_bytes, 4 * size_bytes]
    sent = [Transfer(n, n + 1, 0, sizes[n], (), ()) for n in range(len(lasted_s))]
    sent.append(Transfer(len(sent), 0, 1, 2, (), ()))
    repeats = []
    for factor, complete in ((0.5, True), (9.0, False), (1.5, True)):
        records = tuple(
            TransferRecord(
                0, t.id, t.source, t.destination, t.size_bytes, BEGUN_NS, 0, BEGUN_NS + lasted_ns, 0
            )
            for t, seconds in zip(sent, [*lasted_s, 1.0], strict=True)
            for lasted_ns in [round(factor * seconds * 1e9)]
        )
        repeats.append(Repeat(0, complete, max(lasted_s), 0.0, 0.0, (), (), records))
    transfers = Transfers.of(sent)
    modeled_s = np.full(len(sent), MODELED_S)
    return contention(transfers, *healthy_network(transfers, topology), modeled_s, repeats)


@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=SOURCES))
def test_shares_are_rates_over_modeled_rates(lasted_s: list[float]) -> None:
    shares = [MODELED_S / seconds for seconds in lasted_s]
    seen = found(lasted_s)
    assert seen is not None
    assert seen.flows == len(lasted_s)
    assert seen.least_share == pytest.approx(min(shares), rel=1e-6)
    assert seen.most_share == pytest.approx(max(shares), rel=1e-6)
    assert 1 / len(shares) <= seen.jain <= 1 + 1e-9


def test_equal_shares_are_fair() -> None:
    seen = found([MODELED_S] * SOURCES)
    assert seen is not None
    assert seen.jain == pytest.approx(1.0)
    assert seen.link.endswith("from rail0")


def test_a_flow_alone_contends_with_none() -> None:
    assert found([MODELED_S]) is None


@given(st.integers(2, 45), st.integers(10_000, 10_000_000))
def test_a_coarse_grain_is_noted(packets: int, size_bytes: int) -> None:
    seen = found([MODELED_S] * SOURCES, packets, size_bytes)
    assert seen is not None
    grains = size_bytes / (packets * 1448)
    assert seen.grains == pytest.approx(grains)
    notes = [*grain_reasons(seen)]
    assert [verdict for verdict, _ in notes] == [Verdict.PASS] * (grains < 10)
    assert all("too coarse to trust" in sentence for _, sentence in notes)


def test_the_grain_of_roce_is_a_packet() -> None:
    seen = found([MODELED_S] * SOURCES, 45, 40_960, Transport.ROCE)
    assert seen is not None
    assert (seen.grain_bytes, seen.grains) == (4096, 10)


def test_the_grain_of_forwarded_roce_is_a_window() -> None:
    """A GPU and its peer send to the same one, the peer over the GPU's NIC."""
    spec = replace(fabric_spec(FabricKind.RAIL_ONLY, 2, 2), transport=Transport.ROCE)
    topology = build_topology(spec)
    transfers = Transfers.of([Transfer(n, n, 3, 1_000_000, (), ()) for n in range(2)])
    records = tuple(
        TransferRecord(0, t.id, t.source, t.destination, t.size_bytes, BEGUN_NS, 0, 2 * BEGUN_NS, 0)
        for t in transfers
    )
    repeats = [Repeat(0, True, 1.0, 0.0, 0.0, (), (), records)]
    pair, net = healthy_network(transfers, topology)
    seen = contention(transfers, pair, net, np.full(2, MODELED_S), repeats)
    assert seen is not None
    assert seen.grain_bytes == 32 * 4096
    assert seen.grains == pytest.approx(1_000_000 / seen.grain_bytes)
