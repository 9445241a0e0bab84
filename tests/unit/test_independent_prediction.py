"""The model against a prediction of others: ASTRA-sim's published regression case.

`tests/rt_template` of astra-sim/astra-sim: a ring AllReduce of 1 MiB over 8 NPUs takes 117 780 ns.
Its configuration: a ring of links of 50 GB/s (of 2^30 bytes) and 500 ns; 4 splits, of which one is
active; a memory of 50 GB/s, which a reduction writes once and reads twice; 10 ns to hand a message
over to a NPU or to its memory. ASTRA-sim cuts each of these times to whole nanoseconds.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from model.fabric.shaping import wire_bytes
from model.fabric.spec import FabricKind
from model.fabric.topology import LinkKind
from model.fabric.transport import DEFAULT_ROCE
from model.prediction.closed_forms import RING_ALL_REDUCE, Grid
from model.prediction.network import FIRST_LINK, UNLIMITED, Network, PathClass, Terms
from model.prediction.simulation import Simulation
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import Transfer, Transfers
from studies.benchmarks.published import (
    ASTRA_SIM_S,
    HANDED_OVER_S,
    NPU_BYTES,
    NPU_BYTES_PER_S,
    NPU_LATENCY_S,
    NPUS,
    REDUCTION_S,
    SPLITS,
    astra_sim_s,
)
from traffic_gen.workloads.sized_collective import SizedCollective

# Its links have neither segments, which shapers let pass on credit, nor link probes.
NO_TESTBED = Terms(last_segment=False, acknowledgements=False, probes=False)
# What is cut off from 117 830 ns.
WHOLE_NANOSECONDS = 1e-3


def with_reductions(sent: Transfers) -> Iterator[Transfer]:
    """Yield a step of compute at each receiver for each transfer, and one before all others.

    NPUs do not wait for confirmations, as agents do, but for what they have received and reduced.
    """
    handed_over = {rank: Transfer(rank, rank, rank, 0, (), compute_ns=10) for rank in range(NPUS)}
    yield from handed_over.values()
    for transfer in sent:
        number = NPUS + 2 * transfer.id
        received = [a for a in transfer.after if sent[a].destination == transfer.source]
        after = [NPUS + 2 * a + 1 for a in received] or [transfer.source]
        yield replace(transfer, id=number, after=tuple(after), ready=None)
        busy_s = HANDED_OVER_S + REDUCTION_S * transfer.reduce
        at = transfer.destination
        yield Transfer(number + 1, at, at, 0, (), after=(number,), compute_ns=round(busy_s * 1e9))


def test_the_simulation_agrees_with_astra_sim() -> None:
    sent = SizedCollective(
        Collective.ALL_REDUCE, "ring", (NPUS, 1), NPU_BYTES // SPLITS
    ).transfers()
    steps = Transfers.of(with_reductions(sent))
    links = FIRST_LINK + np.arange(NPUS)
    rate = NPU_BYTES_PER_S * wire_bytes(1)
    ring = Network(
        begin_s=0.0,
        paths=np.append(links, 0)[:, None],
        class_of=np.append(np.zeros(NPUS, np.int64), 1),
        classes=((LinkKind.NIC,), ()),
        rate=np.append([UNLIMITED, 0.0], np.full(NPUS, rate)),
        burst=np.append([UNLIMITED, 0.0], np.zeros(NPUS)),
        others=0.0,
        segment_bytes=1,
        window=1,
        hops=(),
        roce=DEFAULT_ROCE,
        by_roce=np.zeros(NPUS + 1, bool),
    )
    pair = np.where(steps.source == steps.destination, NPUS, steps.source)
    latencies: dict[PathClass, float] = {(LinkKind.NIC,): NPU_LATENCY_S}
    one_split_s = Simulation(steps, pair, [ring], latencies, NO_TESTBED).run().max()
    assert SPLITS * one_split_s == pytest.approx(ASTRA_SIM_S, rel=WHOLE_NANOSECONDS)


def test_the_closed_form_agrees_with_astra_sim() -> None:
    """The bandwidth term, the latency of each step, the reductions, and what hands them over."""
    assert astra_sim_s() == pytest.approx(ASTRA_SIM_S, rel=WHOLE_NANOSECONDS)
    # The bandwidth term alone, without splits and reductions, is far from it.
    grid = Grid(x=1, y=NPUS, hb=NPU_BYTES_PER_S, nic=NPU_BYTES_PER_S)
    alone_s = RING_ALL_REDUCE.completion_s(FabricKind.RAIL_ONLY, grid, NPU_BYTES)
    assert alone_s < 0.3 * ASTRA_SIM_S
