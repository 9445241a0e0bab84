"""RoCE on real fabrics: every byte arrives, and packets take the time that the model has."""

from dataclasses import replace

import pytest

from model.fabric.spec import FabricKind
from model.fabric.transport import Congestion, Recovery, Roce, Transport
from model.workload.transfers.collective import Collective
from testbed.nodes.gpu_proxies import ProxyKind
from tests.integration.fabrics import fabric_up, slowed_down, small_spec
from tests.unit.fabrics import accepts
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS
from traffic_gen.workloads.sized_collective import SizedCollective

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

SEVERAL = Roce(
    mtu=1024,
    queue_pairs=3,
    split=True,
    congestion=Congestion.SWIFT,
    recovery=Recovery.SELECTIVE_REPEAT,
)


@pytest.mark.parametrize(
    ("kind", "proxies", "roce"),
    [
        (FabricKind.RAIL_ONLY, ProxyKind.CONTAINER, Roce()),
        (FabricKind.RAIL_OPTIMIZED, ProxyKind.PROCESS, SEVERAL),
    ],
)
def test_every_collective_is_right_element_by_element(
    kind: FabricKind, proxies: ProxyKind, roce: Roce
) -> None:
    spec = replace(slowed_down(small_spec(kind)), transport=Transport.ROCE, roce=roce)
    with fabric_up(spec, proxies) as fabric:
        for collective, algorithm in ALGORITHMS:
            if not accepts((collective, algorithm), 2, 2):
                continue
            steps = SizedCollective(collective, algorithm, (2, 2), 40_000).steps()
            prediction = fabric.predict(steps)
            (repeat,) = fabric.repeats(steps, prediction, 1, check_data=True)
            assert (repeat.complete, repeat.errors) == (True, ()), algorithm


def test_a_peer_that_does_not_answer_ends_the_execution_and_not_the_next_one() -> None:
    """Its network is gone: after the retries the queue pair breaks, and the agent goes on."""
    spec = replace(
        small_spec(FabricKind.RAIL_ONLY, 2, 1),
        transport=Transport.ROCE,
        roce=Roce(timeout_s=0.05, retries=2),
    )
    with fabric_up(spec, ProxyKind.PROCESS) as fabric:
        steps = SizedCollective(Collective.ALL_REDUCE, "ring", (2, 1), 400_000).steps()
        prediction = fabric.predict(steps)
        (link,) = [link for link in fabric.topology.links if link.name == "d0g0--rail0"]
        links = fabric.bed.links
        executions = fabric.repeats(steps, prediction, 2, check_data=False)
        with links.netlink_of(link.upper) as netlink:
            netlink.link("set", index=links.index_of(link.upper), state="down")
            broken = next(executions)
            netlink.link("set", index=links.index_of(link.upper), state="up")
        assert not broken.complete
        assert sum(broken.retransmitted) > 0
        assert broken.completion_s < 1
        assert "broke: no progress after 2 retries" in broken.errors[0]
        assert next(executions).complete
