"""Generators beside the agents: the order of transfers, crafted packets, iperf3's pipes."""

import io
import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from ipaddress import IPv4Address
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from linux.network.borrowed_sockets import accepted_connections, received_bytes
from linux.network.counters import (
    inodes_of_connections,
    packets_out_of_order,
    retransmitted_segments,
)
from linux.processes.lifetime import end
from model.errors import EmulationError, InputError
from model.fabric.build import build_topology
from model.fabric.shaping import ETHERNET_HEADER_BYTES, PACKET_HEADER_BYTES
from model.fabric.spec import FabricKind
from model.fabric.topology import Hop, Topology
from model.fabric.transport import HEADERS_BYTES, RETH_BYTES
from model.measurement.records import CaseExecutions
from model.routing.paths import Routing
from model.workload.generator import CRAFTED, OVERHEADS, PATH_MTU_BYTES, Generator
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import Transfer
from results.render.terminal import print_sections
from results.sections.run import run_sections
from results.store.records import plain
from results.verdicts.model_comparison import CaseResult, Measured, compare
from results.verdicts.run import RunResult, agreements
from results.verdicts.verdict import Verdict
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.scenario import Scenario
from tests.machine import wait_until
from tests.unit.fabrics import assume_accepted, spec
from tests.unit.test_results import LIMITS, modeled, repeat
from traffic_gen.agents.roce.packets import FIRST_QUEUE_PAIR
from traffic_gen.generators.iperf3_flows import (
    COOKIE_BYTES,
    WINDOW_BYTES,
    Flow,
    Iperf3Flows,
    _whole,
    iperf3_flows,
)
from traffic_gen.generators.packet_replay import (
    WINDOW_PACKETS,
    Channel,
    PacketReplay,
    content,
    read_packet,
)
from traffic_gen.generators.progress import Progress
from traffic_gen.iperf3 import Hosts, _finish
from traffic_gen.probes.path_tracer import Flow as ProbeFlow
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS
from traffic_gen.workloads.sized_collective import SizedCollective

SIZES = st.integers(2, 4)
SOURCE, DESTINATION = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")


def channel_of(*transfers: Transfer) -> Channel:
    channel = Channel((0, 1), SOURCE, DESTINATION, 5)
    for one in transfers:
        channel.start(one)
    return channel


def transfer(number: int, size_bytes: int) -> Transfer:
    return Transfer(number, 0, 1, size_bytes, ())


@given(st.sampled_from(sorted(ALGORITHMS)), SIZES, SIZES, st.randoms())
def test_transfers_start_once_all_that_they_wait_for_has_arrived(
    algorithm: tuple[Collective, str], domains: int, domain_size: int, chance: Any
) -> None:
    assume_accepted(algorithm, domains, domain_size)
    schedule = SizedCollective(*algorithm, (domains, domain_size), 100_000).steps()
    progress = Progress(schedule.transfers)
    under_way, started = progress.first(), list[int]()
    while under_way:
        chosen = under_way.pop(chance.randrange(len(under_way)))
        started.append(chosen.id)
        assert {*chosen.after} <= progress.arrived_ns.keys()
        assert chosen.ready is None or chosen.ready in progress.arrived_ns
        under_way += progress.arrived(chosen.id, len(started))
    assert progress.is_complete
    assert sorted(started) == [one.id for one in schedule.transfers]


def test_an_execution_without_all_arrivals_is_incomplete() -> None:
    transfers = (transfer(0, 8), Transfer(1, 1, 0, 8, (), after=(0,)))
    progress = Progress(transfers)
    progress.started_ns[0] = 1_000
    progress.arrived(0, 3_000)
    repeat = progress.repeat(4, 1_000)
    assert (repeat.number, repeat.complete, repeat.completion_s) == (4, False, 2e-6)
    assert [record.arrived_ns for record in repeat.records] == [2_000, 0]


@given(st.binary(min_size=1, max_size=3 * PATH_MTU_BYTES))
def test_receivers_read_a_message_to_the_byte(message: bytes) -> None:
    packets = list(channel_of().message(message))
    beside_bytes = ETHERNET_HEADER_BYTES - PACKET_HEADER_BYTES
    payload_bytes = OVERHEADS[Generator.SCAPY].forth(len(message))
    assert sum(len(packet) + beside_bytes for packet in packets) == payload_bytes
    assert CRAFTED.packets(len(message)) == len(packets)
    found = [read_packet(packet) for packet in packets]
    assert b"".join(one.payload for one in found if one) == message
    assert [(one.queue_pair, one.psn) for one in found if one] == [
        (FIRST_QUEUE_PAIR + 5, number) for number in range(len(packets))
    ]


# Bytes of a packet that may change under way: type of service, time to live, both checksums, and
# the congestion bits of the BTH.
CHANGED_UNDER_WAY = {1, 8, 10, 11, 26, 27, 32}


@given(st.integers(0, HEADERS_BYTES + RETH_BYTES + 100 - 1), st.integers(1, 255))
def test_a_changed_byte_is_noticed(place: int, change: int) -> None:
    (packet,) = channel_of().message(bytes(100))
    changed = bytearray(packet)
    changed[place] ^= change
    assert (read_packet(bytes(changed)) is not None) == (place in CHANGED_UNDER_WAY)


def test_scapy_reads_the_headers_of_a_message() -> None:
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import IP, UDP

    packets = [IP(packet) for packet in channel_of().message(bytes(2 * PATH_MTU_BYTES + 1))]
    names = [packet[BTH].sprintf("%opcode%") for packet in packets]
    assert names == [f"RC_RDMA_WRITE_{kind}" for kind in ("FIRST", "MIDDLE", "LAST")]
    assert {packet[UDP].dport for packet in packets} == {4791}
    assert [packet[BTH].ackreq for packet in packets] == [0, 0, 1]
    assert packets[-1][BTH].padcount == 3


def test_no_more_packets_are_under_way_than_the_window_has() -> None:
    channel = channel_of(transfer(0, 2 * WINDOW_PACKETS * PATH_MTU_BYTES))
    packets = list(iter(channel.next_packet, None))
    assert len(packets) == WINDOW_PACKETS
    received = read_packet(packets[0])
    assert received is not None
    channel.receive(received)
    assert channel.next_packet() is not None
    assert channel.next_packet() is None


def delivered(channel: Channel, order: list[int]) -> list[int]:
    """The transfers that are whole after the packets arrive in this order."""
    packets = [read_packet(packet) for packet in iter(channel.next_packet, None)]
    arrived = [channel.receive(cast(Any, packets[place])) for place in order]
    return [one.id for whole in arrived for one in whole]


@pytest.mark.parametrize(
    ("order", "reordered"), [([0, 1, 2], 0), ([1, 0, 2], 1), ([2, 1, 0], 2), ([2, 0, 1], 1)]
)
def test_transfers_of_a_channel_arrive_one_after_the_other(
    order: list[int], reordered: int
) -> None:
    channel = channel_of(transfer(3, 2 * PATH_MTU_BYTES), transfer(1, 16))
    assert delivered(channel, order) == [3, 1]
    assert (channel.errors, channel.reordered) == ([], reordered)
    assert channel.sent_ns.keys() == {1, 3}


@pytest.mark.parametrize("order", [[0, 0, 1, 2], [1, 1, 0, 2]])
def test_a_packet_that_comes_again_is_an_error(order: list[int]) -> None:
    channel = channel_of(transfer(3, 2 * PATH_MTU_BYTES), transfer(1, 16))
    assert delivered(channel, order) == [3, 1]
    assert len(channel.errors) == 1
    assert channel.errors[0].startswith("duplicate packet")


def test_other_bytes_than_were_sent_are_an_error() -> None:
    channel = channel_of(transfer(3, 16))
    channel.transfers[0] = transfer(4, 16)
    assert delivered(channel, [0]) == [4]
    assert channel.errors == ["transfer 4: received bytes differ from those sent"]


def test_no_two_transfers_have_the_same_bytes() -> None:
    assert len({content(transfer(number, 64)) for number in range(1000)}) == 1000


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a TCP connection, the client's and the server's, after iperf3's cookie."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
        listener.accept()[0] as server,
    ):
        client.sendall(bytes(COOKIE_BYTES))
        yield client, server


@contextmanager
def short_circuit() -> Iterator[tuple[Flow, socket.socket]]:
    """A flow whose client is its connection, and the server's end of that."""
    with connected() as (client, server), FileIO(client.fileno(), "w", closefd=False) as source:
        nobody = cast(Any, None)
        yield Flow((0, 1), nobody, source, nobody, server), server


@given(st.lists(st.integers(1, WINDOW_BYTES // 3), min_size=1, max_size=6))
def test_every_byte_of_a_flow_is_counted_when_it_comes(sizes: list[int]) -> None:
    arrived = list[int]()
    with short_circuit() as (flow, server):
        server.setblocking(False)
        for number, size in enumerate(sizes):
            flow.ask(number, size)
            while flow.is_open:
                with suppress(BlockingIOError):
                    server.recv(WINDOW_BYTES)
                arrived += flow.arrived()
            assert arrived == list(range(number + 1))
        assert flow.written_bytes == flow.read_bytes == sum(sizes)
    assert arrived == list(range(len(sizes)))
    assert flow.sent_ns.keys() == set(arrived)


@given(st.lists(st.integers(1, 9)), st.integers(0, 60))
def test_a_transfer_arrives_with_its_last_byte(sizes: list[int], count: int) -> None:
    numbered = [(end, 100 + number) for number, end in enumerate(accumulate(sizes))]
    queue = deque(numbered)
    assert _whole(queue, count) == [number for end, number in numbered if end <= count]
    assert list(queue) == [(end, number) for end, number in numbered if end > count]


def test_the_end_of_a_server_is_told() -> None:
    with (
        connected() as (_, sink),
        subprocess.Popen(["sleep", "600"], text=True) as client,
        subprocess.Popen(["true"], text=True) as server,
    ):
        server.wait()
        flow = Flow((0, 1), client, cast(Any, None), server, sink)
        flows = Iperf3Flows([flow], Hosts([os.getpid()] * 2, {}), lambda: None)
        with pytest.raises(
            EmulationError, match=r"the server of ranks \(0, 1\) has ended \(exit code 0\)"
        ):
            flows._require_running()
        client.kill()


def test_connections_to_a_port_are_found_and_count_their_bytes() -> None:
    with connected() as (client, server), socket.create_server(("127.0.0.1", 0)):
        (borrowed,) = accepted_connections(os.getpid(), server.getsockname()[1])
        with borrowed:
            assert borrowed.getpeername() == client.getsockname()
            client.sendall(b"12345")
            wait_until(lambda: received_bytes(borrowed) == COOKIE_BYTES + 5, "all bytes came")


def test_a_listener_is_not_borrowed_as_its_process_could_not_listen_anew() -> None:
    """iperf3's server does so after each connection; another listener holds the port (tcp(7))."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with socket.create_connection(address), listener.accept()[0] as accepted:
            inode = str(os.fstat(accepted.fileno()).st_ino)
            assert inodes_of_connections(os.getpid(), address[1]) == [inode]
            (borrowed,) = accepted_connections(os.getpid(), address[1])
            with borrowed:
                assert os.fstat(borrowed.fileno()).st_ino == int(inode)


@contextmanager
def without_client(script: str) -> Iterator[Flow]:
    """A flow whose client has ended after a shell script."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    command, pipe = ["sh", "-c", script], subprocess.PIPE
    with (
        FileIO(write_end, "w") as source,
        subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as client,
    ):
        nothing = cast(Any, None)
        yield Flow((0, 1), client, source, nothing, nothing)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("""echo '{"error": "unable to connect"}'""", "unable to connect"),
        (
            'echo \'{"end": {"sum_sent": {"bytes": 0}, '
            '"sum_received": {"bytes": 0, "seconds": 1}}}\'',
            "ended",
        ),
        ("kill -KILL $$", r"^iperf3 \(0, 1\): report is not JSON: '' \(killed by SIGKILL\)$"),
        ("echo no route >&2; exit 3", r"report is not JSON: '' \(exit code 3: no route\)$"),
    ],
)
def test_a_client_that_ends_is_told_in_its_words(script: str, said: str) -> None:
    with without_client(script) as flow, pytest.raises(EmulationError, match=said):
        flow.ask(0, 8)


def test_a_server_that_does_not_listen_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "iperf3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "iperf3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    hosts = Hosts([os.getpid()] * 2, {(0, 1, 0): "127.0.0.1"})
    monkeypatch.setattr("traffic_gen.iperf3.LISTEN_DEADLINE_S", 0.1)
    with (
        pytest.raises(EmulationError, match=r"start of the iperf3 server .*: timed out after"),
        iperf3_flows(hosts, [(0, 1)], lambda: None),
    ):
        pass


def test_a_part_that_is_stopped_is_told() -> None:
    _, write_end = os.pipe()
    with (
        FileIO(write_end, "w") as source,
        connected() as (_, sink),
        subprocess.Popen(["sleep", "600"], stdout=subprocess.PIPE, text=True) as part,
    ):
        part.send_signal(signal.SIGSTOP)
        flow = Flow((0, 1), part, source, part, sink)
        hosts = Hosts([os.getpid()] * 2, {})
        flows = Iperf3Flows([flow], hosts, lambda: None)
        with pytest.raises(EmulationError, match=r"the client of ranks \(0, 1\) .* is stopped"):
            flows.greet()
        part.kill()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["sleep", "600"], r"iperf3: did not end within 0\.1 s"),
        (
            ["sh", "-c", "exec sleep 600 >&-"],
            r"end of iperf3 after its report: timed out after 0\.2 s",
        ),
    ],
)
def test_an_iperf3_that_does_not_end_is_an_error(
    command: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "sh" not in command:
        monkeypatch.setattr("traffic_gen.iperf3.END_DEADLINE_S", 0.1)
    monkeypatch.setattr("traffic_gen.iperf3.ANSWER_S", 0.2)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        with pytest.raises(EmulationError, match=message):
            _finish(process)
    finally:
        end(process)


def test_an_iperf3_that_ends_has_a_report_and_its_processor_time() -> None:
    command = ["sh", "-c", "head --bytes=200000 /dev/zero | tr '\\0' x; echo end"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        text, cpu_s = _finish(process)
    finally:
        end(process)
    assert (len(text), text[-4:], process.returncode) == (200_004, "end\n", 0)
    assert cpu_s > 0


@pytest.mark.parametrize("count", [retransmitted_segments, packets_out_of_order])
def test_the_kernel_counts_packets_of_a_namespace(
    count: Callable[[Iterable[int]], list[int]],
) -> None:
    (found,) = count([os.getpid()])
    assert found >= 0


def scenario(tmp_path: Path, entry: str, *more: str, domains: int = 4) -> Scenario:
    place = tmp_path / "mine.yaml"
    lines = (
        f"fabric: {{domains: {domains}, domain_size: 4, platform: dgx-h100}}",
        f"workloads: [{{collective: all-to-all, algorithm: direct, {entry}}}]",
        *more,
    )
    place.write_text("\n".join(lines) + "\n")
    return load(place, ["fabric.kinds=rail-only", "fabric.bandwidth_scale=20000"])


@pytest.mark.parametrize("generator", ["iperf3", "scapy"])
@pytest.mark.parametrize(
    ("more", "what"),
    [
        ("faults: [{what: nic-link, where: d0g0--rail0}]", "cannot be combined with faults"),
        ("check_data: true", "cannot be combined with check_data"),
    ],
)
def test_only_agents_execute_faults_and_check_data(
    tmp_path: Path, generator: str, more: str, what: str
) -> None:
    with pytest.raises(InputError, match=f"{generator} {what}"):
        scenario(tmp_path, f"size: 8 kB, generator: {generator}", more)


@pytest.mark.parametrize(
    ("entry", "domains", "what"),
    [
        ("size: 8 MB, generator: scapy", 4, "scapy crafts at most 50000 packets, got 117360"),
        ("size: 8 MB, generator: iperf3", 8, "iperf3 serves at most 500 pairs, got 992"),
        ("size: 8 MB, generator: iperf3", 17, "iperf3 serves at most 64 GPUs, got 68"),
    ],
)
def test_generators_refuse_more_than_they_can_do(
    tmp_path: Path, entry: str, domains: int, what: str
) -> None:
    with pytest.raises(InputError, match=what):
        scenario(tmp_path, entry, domains=domains)


def test_every_generator_has_its_overhead() -> None:
    assert OVERHEADS.keys() == {*Generator}


def test_a_case_says_its_generator() -> None:
    library = load(LIBRARY / "generators.yaml")
    found = {case.name: case.generator for case in library.cases_on(FabricKind.RAIL_ONLY)}
    assert found["rail-only/all-gather/ring"] is Generator.AGENT
    assert found["rail-only/all-gather/ring/iperf3"] is Generator.IPERF3
    assert found["rail-only/all-to-all/direct/scapy"] is Generator.SCAPY


def case_of(generator: Generator, ratio: float, **changes: Any) -> CaseResult:
    topology, schedule, prediction = modeled(
        FabricKind.RAIL_ONLY, Collective.ALL_TO_ALL, "two-step"
    )
    executions = (repeat(0, prediction.completion_s * ratio, **changes),)
    measured = Measured(topology, schedule, CaseExecutions(executions), generator=generator)
    name = "case" if generator is Generator.AGENT else f"case/{generator}"
    return compare(name, measured, prediction, 10.0, LIMITS)


def test_iperf3_is_held_against_the_agents() -> None:
    cases = [case_of(Generator.AGENT, 1.0), case_of(Generator.IPERF3, 1.01)]
    (found,) = agreements([*cases, case_of(Generator.SCAPY, 50)])
    assert (found.case, found.by_agents) == ("case/iperf3", "case")
    assert found.ratio == pytest.approx(1.01)
    assert not list(agreements(cases[1:]))


def test_the_times_of_crafted_packets_are_not_judged() -> None:
    case = case_of(Generator.SCAPY, 50, notes=("all 9 packets arrived",))
    assert (case.verdict, case.notes) == (Verdict.PASS, ("all 9 packets arrived",))
    assert case.data_is_right
    lost = case_of(Generator.SCAPY, 50, errors=("ranks 0 -> 1: 8 of 9 packets arrived",))
    assert (lost.verdict, lost.data_is_right) == (Verdict.FAIL, False)


def test_the_table_says_what_generators_did() -> None:
    cases = [
        case_of(Generator.AGENT, 1.0),
        case_of(Generator.IPERF3, 1.01),
        case_of(Generator.SCAPY, 50),
    ]
    console = Console(file=io.StringIO(), width=200)
    print_sections(run_sections(plain(RunResult("id", "name", Path("runs/id"), cases))), console)
    shown = cast(io.StringIO, console.file).getvalue()
    assert "packets: all came whole, on their intended paths." in shown
    assert "case/iperf3: 1.0100" in shown


class Wires(PacketReplay):
    """Packets that arrive at once, and are seen on their paths; the first one may come to harm."""

    def __init__(self, topology: Topology, harm: str) -> None:
        self.gpus, self.routing = topology.job_gpus, Routing(topology)
        self.capture, self.harm = cast(Any, self), harm
        self.sent, self.seen = list[bytes](), list[tuple[ProbeFlow, Hop]]()

    def send(self, channel: Channel) -> None:
        source, destination = (self.gpus[rank] for rank in channel.pair)
        flow = ProbeFlow(channel.source, channel.destination, channel.source_port)
        while (packet := channel.next_packet()) is not None:
            path = self.routing.path(source, destination)
            if self.harm == "broken":
                packet = packet[:-1] + bytes([packet[-1] ^ 1])
            self.seen += [(flow, hop) for hop in (path[1:] if self.harm == "strays" else path)]
            self.sent += [packet] * (self.harm != "lost")
            self.harm = ""

    def received(self) -> list[bytes]:
        arrived, self.sent = self.sent, []
        return arrived

    def read(self) -> Iterator[tuple[ProbeFlow, Hop]]:
        yield from self.seen
        self.seen = []


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        ("", None),
        ("lost", "ranks 0 -> 1: 4 of 5 packets arrived"),
        ("broken", "1 packets had a wrong ICRC or an unknown queue pair"),
        ("strays", "ranks 0 -> 1: 4 packets from d0g0 to hb0, must be 5"),
    ],
)
def test_a_replay_counts_every_packet_on_every_hop(harm: str, told: str | None) -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 2))
    steps = SizedCollective(Collective.ALL_TO_ALL, "two-step", (2, 2), 10_000).steps()
    repeat = Wires(topology, harm).run(steps, 3)
    if told:
        assert told in repeat.errors
        assert (repeat.complete, repeat.notes) == (harm == "strays", ())
        return
    sent, total = steps.transfers, int(steps.transfers.size_bytes.sum())
    count = int((-(-sent.size_bytes // PATH_MTU_BYTES)).sum())
    assert (repeat.number, repeat.complete, repeat.errors) == (3, True, ())
    assert repeat.notes[0].startswith(f"all {count} packets arrived, with {total} payload bytes")
    assert repeat.sent_bytes == tuple(np.bincount(sent.source, sent.size_bytes))
    assert repeat.received_bytes == tuple(np.bincount(sent.destination, sent.size_bytes))
