"""Unmodified programs in the proxies of a small fabric: their bytes, their lines, their ends."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from execution.program import Program, execute, sentence
from linux.network.namespaces import processes_beside
from linux.processes.lifetime import wait_for
from model.fabric.build import build_topology
from model.fabric.spec import FabricKind
from model.fabric.topology import LinkKind
from testbed.nodes.docker_engine import IMAGE_FILE
from testbed.nodes.gpu_proxies import ProxyKind
from testbed.programs.ranks import Command, RanksResult, running_ranks
from tests.integration.fabrics import small_spec

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

ROOT = Path(__file__).parents[2]
EXCHANGE = str(ROOT / "scenarios" / "library" / "programs" / "exchange.py")
BYTES = 100_000
SAID = "3 ranks sent 100000 bytes each"
SMALL = ("fabric.kinds=rail-optimized", "fabric.domains=2", "fabric.domain_size=2")
Line = tuple[int, bool, bytes]


def test_all_ranks_reach_each_other_at_one_address_on_rail_only() -> None:
    lines: list[Line] = []
    program = Program((sys.executable, EXCHANGE, str(BYTES)), timeout_s=30)
    spec = small_spec(FabricKind.RAIL_ONLY)
    done = execute("test", spec, ProxyKind.PROCESS, program, lambda *line: lines.append(line))
    assert (done.sentence, [rank.exit_code for rank in done.ranks]) == ("", [0] * 4)
    assert sorted(lines) == [(rank, False, SAID.encode()) for rank in range(4)]
    links = {(link.lower, link.kind): link for link in done.links}
    for gpu in build_topology(spec).gpus:
        # To the peer of the domain, and to the other rail, through that peer; to the own rail, and
        # what that peer sends to it.
        for kind in (LinkKind.HB, LinkKind.NIC):
            sent = links[gpu.name, kind].up_bytes
            assert 2 * BYTES < sent < 2.5 * BYTES + done.probes_bytes


def test_the_command_starts_containers_prints_lines_and_counts_bytes() -> None:
    changes = [word for change in SMALL for word in ("--set", change)]
    image = IMAGE_FILE.read_text().strip()
    command = ("exec", "quickstart", "--image", image, "--json", *changes)
    done = subprocess.run(
        [str(ROOT / "railbed"), *command, "--", "python3", EXCHANGE, str(BYTES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("[")]
    assert sorted(lines) == [f"[{rank}] {SAID}" for rank in range(4)]
    result = json.loads(done.stdout)
    sent = {link["link"]: link["up_bytes"] for link in result["links"] if link["kind"] == "hb-link"}
    assert all(BYTES < count < 1.5 * BYTES + result["probes_bytes"] for count in sent.values())


@pytest.fixture
def networks() -> Iterator[list[int]]:
    """Two processes, each in a network namespace of its own."""
    with ExitStack() as running:
        started = [
            running.enter_context(subprocess.Popen(["unshare", "--net", "sleep", "1000"]))
            for _ in range(2)
        ]
        ids = [process.pid for process in started]
        wait_for(lambda: all(map(_has_own_network, ids)), "both are in their namespaces", 10)
        yield ids
        for process in started:
            process.kill()


def _has_own_network(process_id: int) -> bool:
    return os.readlink(f"/proc/{process_id}/ns/net") != os.readlink("/proc/self/ns/net")


def ended(networks: list[int], script: str, timeout_s: float) -> tuple[RanksResult, list[Line]]:
    lines: list[Line] = []
    commands = [
        Command(rank, ("sh", "-c", script), {**os.environ, "RANK": str(rank)}, network)
        for rank, network in enumerate(networks)
    ]
    with running_ranks(commands, networks, lambda *line: lines.append(line)) as ranks:
        return ranks.wait(timeout_s, lambda: None), lines


def test_a_hung_rank_ends_with_all_that_it_has_started(networks: list[int]) -> None:
    script = "test $RANK = 1 || exit 0; echo waits >&2; printf half; setsid sleep 1000 & wait"
    end, lines = ended(networks, script, timeout_s=1)
    assert sentence(end, [0, 1], 1) == "did not end within 1 s: rank 1 was killed"
    assert end.codes == {0: 0}
    assert sorted(lines) == [(1, False, b"half"), (1, True, b"waits")]
    assert processes_beside(networks) == {network: [] for network in networks}


def test_a_failed_rank_ends_all_others(networks: list[int]) -> None:
    end, _ = ended(networks, "test $RANK = 1 && exit 7; sleep 1000", timeout_s=30)
    assert sentence(end, [0, 1], 30) == "rank 1 ended with exit code 7; all others were killed"
    assert end.seconds < 30
    assert processes_beside(networks) == {network: [] for network in networks}
