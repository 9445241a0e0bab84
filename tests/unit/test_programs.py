"""Programs in the proxies: their environment, their lines, their ends."""

import io
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, cast
from unittest.mock import Mock

import pytest
from hypothesis import given
from rich.console import Console

from commands.app import main
from commands.exec import print_line
from execution.program import SCHEMA, ProgramResult, RankEnd, link_bytes, sentence
from linux.files.program_files import ROOT
from linux.network.namespaces import processes_beside
from model.fabric.addressing import nic_address
from model.fabric.build import build_topology
from model.fabric.link_probes import PROBE_BYTES
from model.fabric.spec import COMPARED, FabricKind
from model.fabric.topology import Hop, Topology
from results.render.terminal import print_sections
from results.sections.machine import program_sections
from results.store.records import plain
from results.verdicts.verdict import Verdict
from testbed.programs.environment import open_mpi_environment, rank_environment
from testbed.programs.ranks import Command, RanksResult, running_ranks
from tests.unit.fabrics import spec, topologies


@given(topologies())
def test_every_rank_finds_itself_and_the_others(topology: Topology) -> None:
    gpus = topology.job_gpus
    places = set()
    for rank, gpu in enumerate(gpus):
        found = rank_environment(rank, gpus)
        addresses = found["RAILBED_ADDRESSES"].split(",")
        assert addresses[rank] == found["RAILBED_ADDRESS"] == str(nic_address(gpu))
        assert (found["RANK"], found["WORLD_SIZE"]) == (str(rank), str(len(gpus)))
        assert found["MASTER_ADDR"] == addresses[0]
        assert len(set(addresses)) == len(gpus)
        node, local = int(found["GROUP_RANK"]), int(found["LOCAL_RANK"])
        assert node * int(found["LOCAL_WORLD_SIZE"]) + local == rank
        places.add((node, local))
    assert len(places) == len(gpus)


@pytest.fixture
def exchange() -> ModuleType:
    """The program of the library, which is in no package."""
    place = ROOT / "scenarios" / "library" / "programs" / "exchange.py"
    found = spec_from_file_location("exchange", place)
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_a_rank_waits_for_a_late_peer(
    exchange: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far more often than functions may call themselves."""
    tries, late = count(), sys.getrecursionlimit() + 10
    peer, end = socket.socketpair()

    def create_connection(*_: object, **__: object) -> socket.socket:
        if next(tries) < late:
            raise ConnectionRefusedError
        return peer

    monkeypatch.setattr(exchange, "RETRY_S", 0)
    monkeypatch.setattr(exchange.socket, "create_connection", create_connection)
    exchange.send(("10.0.0.1", 1), 3, 2)
    with end:
        assert end.recv(100) == b"\0\0\0\3\3\3"


def test_a_rank_gives_up_on_a_peer_that_never_listens(
    exchange: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "DEADLINE_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = listener.getsockname()
    with pytest.raises(ConnectionRefusedError):
        exchange.send(place, 0, 1)


@pytest.mark.parametrize(
    ("codes", "timed_out", "said"),
    [
        ({0: 0, 1: 0, 2: 0}, False, ""),
        ({0: 0}, True, "did not end within 9 s: ranks 1, 2 were killed"),
        ({1: 7}, False, "rank 1 ended with exit code 7; all others were killed"),
        ({0: 0, 1: -11, 2: 3}, False, "rank 1 ended by SIGSEGV; rank 2 ended with exit code 3"),
        ({0: 0, 1: 0, 2: -40}, False, "rank 2 ended by signal 40"),
    ],
)
def test_the_end_of_a_program_in_a_sentence(
    codes: dict[int, int], timed_out: bool, said: str
) -> None:
    assert sentence(RanksResult(codes, 1.0, timed_out), [0, 1, 2], 9) == said


def test_the_launch_agent_enters_the_proxy_that_has_the_address(tmp_path: Path) -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 2))
    gpus = topology.job_gpus
    ids = {gpu.name: 1000 + number for number, gpu in enumerate(gpus)}
    variables = open_mpi_environment(tmp_path, gpus, ids)
    shown = tmp_path / "nsenter"
    shown.write_text('#!/bin/sh\necho "$@"\n')
    shown.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    agent = [variables["OMPI_MCA_plm_rsh_agent"], str(nic_address(gpus[3])), "orted", "-a"]
    said = subprocess.run(agent, capture_output=True, text=True, env=path, check=True).stdout
    assert said.startswith("--net=/proc/1003/ns/net unshare --uts sh -c echo d1g1 >")
    assert said.endswith("; orted -a\n")
    unknown = subprocess.run([agent[0], "10.9.9.9"], capture_output=True, text=True, env=path)
    assert (unknown.returncode, unknown.stderr) == (
        1,
        "railbed: no GPU proxy has the address 10.9.9.9\n",
    )
    assert variables["OMPI_MCA_orte_tmpdir_base"] == str(tmp_path)
    hosts = Path(variables["OMPI_MCA_orte_default_hostfile"]).read_text().splitlines()
    assert hosts == [f"{nic_address(gpu)} slots=1" for gpu in gpus]


def test_processes_of_the_machines_own_network_are_never_listed() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        assert processes_beside([os.getpid(), 1]) == {os.getpid(): [], 1: []}
        other.kill()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--image", "a", "--launcher", "--", "true"), 2, "--launcher: cannot be combined with"),
        (("--image", "a", "--proxies", "process", "--", "true"), 2, "--image: needs GPU proxies"),
        (("--", "/etc/passwd"), 2, "/etc/passwd: is not executable"),
        (("--", "/etc"), 2, "/etc: is a folder"),
        (("--", "./nowhere"), 3, "./nowhere: not found"),
        (("--", "no-such-program"), 3, "no-such-program: not found"),
    ],
)
def test_a_command_that_cannot_be_started_is_refused(
    arguments: tuple[str, ...],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["__main__.py", "exec", "quickstart", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    assert said in capsys.readouterr().err


def program_result(kind: FabricKind) -> dict[str, Any]:
    topology = build_topology(spec(kind, 2, 2, 2))
    hops = [Hop(link, port.node) for link in topology.links for port in (link.lower, link.upper)]
    carried = {hop: 1000 * number for number, hop in enumerate(hops)}
    ranks = [RankEnd(0, "d0g0", "10.0.0.1", 0)]
    links = list(link_bytes(topology, carried))
    ended = (Verdict.PASS, "", 1.25, ranks, 3 * PROBE_BYTES, links)
    return plain(ProgramResult(SCHEMA, "mine", kind, ("true",), *ended))


@pytest.mark.parametrize("kind", COMPARED)
def test_the_table_has_every_link(kind: FabricKind) -> None:
    result = program_result(kind)
    assert result["schema"] == "railbed.exec/1"
    console = Console(file=io.StringIO(), width=100)
    print_sections(program_sections(result), console)
    shown = cast(io.StringIO, console.file).getvalue()
    for link in result["links"]:
        name = link["lower"] if link["kind"] != "uplink" else link["link"]
        assert name in shown
    assert f"{kind}: 1.2 s" in shown
    assert "at most 198 B are link probes" in shown


def test_lines_that_nobody_reads_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    with suppress(BrokenPipeError), open(write_end, "w") as output:
        monkeypatch.setattr("sys.stdout", output)
        print_line(3, False, b"half \xff", all_on_error=False)
        assert os.read(read_end, 100) == b"[3] half \\xff\n"
        os.close(read_end)
        with pytest.raises(BrokenPipeError):  # of which the program dies by SIGPIPE
            print_line(3, False, b"more", all_on_error=False)


def test_an_image_needs_packages() -> None:
    script = Path(__file__).parents[2] / "testbed" / "program_image.sh"
    done = subprocess.run([str(script)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert "no packages: name those that the program needs" in done.stderr


def test_the_seconds_of_ranks_begin_with_the_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0

    @contextmanager
    def entered_within_a_second(_process_id: int) -> Iterator[None]:
        nonlocal now_s
        now_s += 1
        yield

    monkeypatch.setattr("testbed.programs.ranks.namespace_of", entered_within_a_second)
    monkeypatch.setattr("testbed.programs.ranks.time", Mock(monotonic=lambda: now_s))
    monkeypatch.setattr("testbed.programs.ranks.processes_beside", lambda _: {})
    commands = [Command(rank, ["true"], {}, 0) for rank in range(3)]
    with running_ranks(commands, [], lambda *_: None) as ranks:
        ended = ranks.wait(9, lambda: None)
    assert ended.codes == {0: 0, 1: 0, 2: 0}
    assert ended.seconds == 3
