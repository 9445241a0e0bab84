"""The same fabric by plain Mininet: it works, and leaves nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from linux.processes.run_lock import run_lock
from model.errors import EmulationError
from model.fabric.build import build_topology
from model.fabric.spec import FabricKind
from model.job.placement import job_placement
from model.workload.transfers.collective import Collective
from studies.benchmarks.plain_mininet import plain_job, plain_mininet
from testbed.host.cleanup import clean
from tests.integration.fabrics import small_spec
from tests.machine import machine_state, wait_until
from traffic_gen.iperf3 import Hosts, carry
from traffic_gen.workloads.sized_collective import SizedCollective

pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("untouched_machine"),
    # Mininet compares versions of Open vSwitch by a deprecated class.
    pytest.mark.filterwarnings("ignore:distutils Version classes are deprecated"),
]

SPEC = small_spec(FabricKind.RAIL_ONLY)
TOPOLOGY = build_topology(SPEC)
DEADLINE_S = 60
HOLD_A_FABRIC = """
import signal
from linux.processes.run_lock import run_lock
from studies.benchmarks.plain_mininet import plain_mininet
from tests.integration.test_plain_mininet import TOPOLOGY
with run_lock("test-plain-killed") as lock, plain_mininet(TOPOLOGY, lock, 60):
    print("up", flush=True)
    signal.pause()
"""


def run_id(name: str) -> str:
    return f"test-{os.getpid()}-plain-{name}"


def test_packets_and_bytes_arrive_in_the_domain_on_the_rail_and_across_rails() -> None:
    variables = dict(os.environ)
    with (
        run_lock(run_id("works")) as lock,
        plain_mininet(TOPOLOGY, lock, DEADLINE_S) as fabric,
    ):
        addresses = job_placement(SPEC).addresses()
        for pair in ((0, 1), (0, 2), (0, 3)):
            said = fabric.network["d0g0"].cmd(f"ping -c 1 -W 5 {addresses[*pair, 0]}")
            assert "1 received" in said, said
        hosts = Hosts(fabric.process_ids, addresses)
        flows = carry(hosts, {(0, 2): 1_000_000, (2, 0): 1_000_000})
    assert 0 < fabric.connected_s < fabric.up_s
    assert [flow.pair for flow in flows] == [(0, 2), (2, 0)]
    assert all(flow.sent_bytes >= 1_000_000 and flow.received_bytes > 0 for flow in flows)
    assert dict(os.environ) == variables


def test_agents_carry_a_schedule_over_it() -> None:
    schedule = SizedCollective(Collective.ALL_TO_ALL, "two-step", (2, 2), 40_000).steps()
    with (
        run_lock(run_id("agents")) as lock,
        plain_mininet(TOPOLOGY, lock, DEADLINE_S) as fabric,
        plain_job(fabric, SPEC) as job,
    ):
        (repeat,) = job.repeats(schedule, job.predict(schedule), 1, check_data=True)
    assert repeat.complete
    assert not repeat.errors


def test_one_that_is_not_up_by_the_deadline_is_an_error_and_leaves_nothing() -> None:
    with (
        run_lock(run_id("late")) as lock,
        pytest.raises(
            EmulationError, match=r"plain Mininet: network start did not end within 0\.1 s"
        ),
        plain_mininet(TOPOLOGY, lock, 0.1),
    ):
        pytest.fail("it cannot be up so soon")


def test_a_server_that_nobody_answers_is_an_error_and_leaves_nothing() -> None:
    with (
        run_lock(run_id("nobody")) as lock,
        plain_mininet(TOPOLOGY, lock, DEADLINE_S) as fabric,
        pytest.raises(EmulationError, match=r"iperf3 \(0, 2\): .*unable to connect"),
    ):
        carry(Hosts(fabric.process_ids, {(0, 2, 0): "127.0.0.1"}), {(0, 2): 1})


def test_after_kill_9_all_its_processes_go_by_themselves() -> None:
    before = machine_state()
    command = [sys.executable, "-c", HOLD_A_FABRIC]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "up\n"
        holder.kill()
    wait_until(lambda: machine_state().processes <= before.processes, "all processes are gone")
    clean()
