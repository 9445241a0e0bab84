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
from results.verdicts.breakdown import Contention, contention, grain_reasons
from results.verdicts.verdict import Verdict
from tests.unit.fabrics import spec as fabric_spec

SOURCES = 3
MODELED_S = 3.0
BEGUN_NS = 7 * 10**9


def found(
    lasted_s: list[float],
    packets: int = 8,
    size_bytes: int = 1_000_000,
    transport: Transport = Transport.TCP,
    *,
    whole: bool = True,
) -> Contention | None:
    """What the flows of an incast did, which last so many seconds each, after one broke off."""
    spec = replace(fabric_spec(FabricKind.RAIL_ONLY, SOURCES + 1, 1), grain_packets=packets)
    spec = replace(spec, transport=transport)
    topology = build_topology(spec)
    sent = [Transfer(n, n + 1, 0, size_bytes, (), ()) for n in range(len(lasted_s))]
    sent.append(Transfer(len(sent), 0, 1, size_bytes, (), ()))  # the other way, on links of its own
    records = tuple(
        TransferRecord(0, t.id, t.source, 0, size_bytes, BEGUN_NS, 2, BEGUN_NS + round(s * 1e9), 3)
        for t, s in zip(sent, [*lasted_s, MODELED_S], strict=True)
    )
    repeat = Repeat(0, True, max(lasted_s), 0.0, 0.0, (), (), records)
    transfers = Transfers.of(sent)
    modeled_s = np.full(len(sent), MODELED_S)
    executions = [replace(repeat, complete=False, records=records[:1]), *[repeat] * whole]
    return contention(transfers, *healthy_network(transfers, topology), modeled_s, executions)


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


def test_without_a_whole_execution_nothing_is_known_of_shares() -> None:
    assert found([MODELED_S] * SOURCES, whole=False) is None


@given(st.integers(2, 45), st.integers(10_000, 10_000_000))
def test_a_coarse_grain_is_noted(packets: int, size_bytes: int) -> None:
    seen = found([MODELED_S] * SOURCES, packets, size_bytes)
    assert seen is not None
    grains = size_bytes / (packets * 1448)
    assert seen.grains == pytest.approx(grains)
    notes = [*grain_reasons(seen)]
    assert [verdict for verdict, _ in notes] == [Verdict.PASS] * (grains < 10)
    assert all("too coarse to trust" in sentence for _, sentence in notes)
    assert all((", all of a transfer" in sentence) == (grains <= 1) for _, sentence in notes)


def test_the_grain_of_roce_is_a_packet() -> None:
    seen = found([MODELED_S] * SOURCES, 45, 40_960, Transport.ROCE)
    assert seen is not None
    assert (seen.grain_bytes, seen.grains) == (4096, 10)
