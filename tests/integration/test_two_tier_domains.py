"""HB domains of two tiers on a real fabric: right data, the rate of trunks, and a lost trunk."""

import pytest

from model.fabric.spec import FabricKind
from model.faults import FaultMode
from model.workload.transfers.collective import Collective
from testbed.faults.injector import FaultInjector
from testbed.nodes.controller_process import read_journal
from testbed.nodes.gpu_proxies import ProxyKind
from tests.integration.agreement import agreeing_attempt
from tests.integration.fabrics import fabric_up, slowed_down, small_spec
from tests.machine import wait_until
from tests.unit.fabrics import with_hb_leaves
from traffic_gen.workloads.sized_collective import SizedCollective

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

AGREES_WITHIN = 0.04
SIZE_BYTES, CHECKED_BYTES = 2_000_000, 80_000
TRUNK = "hb0l1--hb0"


def test_trunks_carry_what_the_model_says_and_detours_what_a_lost_one_would() -> None:
    """All-to-alls within domains of 2 x 2 GPUs, whose trunks have a quarter of their GPUs' rate."""
    spec = with_hb_leaves(small_spec(FabricKind.RAIL_ONLY, 2, 4), 2, oversubscription=4.0)
    args = Collective.ALL_TO_ALL, "direct", (2, 4)
    schedule = SizedCollective(*args, SIZE_BYTES, communicator="domains").steps()
    small = SizedCollective(*args, CHECKED_BYTES, communicator="domains").steps()
    with fabric_up(slowed_down(spec), ProxyKind.PROCESS) as fabric:
        prediction = fabric.predict(schedule)
        found = agreeing_attempt(fabric, schedule, prediction, AGREES_WITHIN)
        assert found.agrees(AGREES_WITHIN), found.ratio
        (checked,) = fabric.repeats(small, prediction, 1, check_data=True)
        assert (checked.complete, checked.errors) == (True, ())
        link = fabric.topology.link_by_name[TRUNK]
        faults, written = (
            FaultInjector(fabric.bed),
            len(read_journal(fabric.bed.controller.journal)),
        )
        undo = faults.break_link(link, FaultMode.DOWN)
        wait_until(
            lambda: any(
                line["event"] == "confirmed"
                for line in read_journal(fabric.bed.controller.journal)[written:]
            ),
            "the controller has led the pairs of the domain around the trunk",
        )
        (detoured,) = fabric.repeats(small, prediction, 1, check_data=True)
        assert (detoured.complete, detoured.errors) == (True, ())
        undo()
