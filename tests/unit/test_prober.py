"""The prober without a fabric: which pairs take turns, which ticks are skipped, what arrives."""

import time
from ipaddress import IPv4Address
from unittest.mock import Mock

import pytest

from traffic_gen.probes import prober
from traffic_gen.probes.packet import probe_packet
from traffic_gen.probes.prober import PSN, Prober

HERE, INTERVAL_NS = IPv4Address("127.0.0.1"), 1_000_000


def three_pairs(monkeypatch: pytest.MonkeyPatch, groups: int = 1) -> Prober:
    """Return a prober of pairs with UDP source ports 0 to 2; its sockets send nothing."""
    monkeypatch.setattr(prober, "_socket_in", lambda *_: Mock(fileno=lambda: -1))
    monkeypatch.setattr(prober, "DRAIN_S", 0)
    pids = {"source_pid": 1, "destination_pid": 2}
    packets = [probe_packet(HERE, HERE, port).hex() for port in range(3)]
    pairs = [{"name": f"{port}", "packet": packet, **pids} for port, packet in enumerate(packets)]
    return Prober({"interval_ns": INTERVAL_NS, "groups": groups, "pairs": pairs})


@pytest.mark.parametrize(("groups", "sockets", "turn"), [(1, 3, [0, 1, 2]), (2, 1, [0, 2, 1])])
def test_groups_take_turns_and_share_the_socket_of_a_source(
    monkeypatch: pytest.MonkeyPatch, groups: int, sockets: int, turn: list[int]
) -> None:
    """A pair of the only group has a socket, whose buffer no dead link of another uses up."""
    running, sent = three_pairs(monkeypatch, groups), list[tuple[int, int]]()

    def sendto(packet: bytearray, _to: object) -> None:
        sent.append((packet[21], int.from_bytes(packet[PSN], "big")))
        if len(sent) == 6:
            running.stop()
            raise BlockingIOError

    for pair in running.pairs:
        pair.socket.sendto = sendto  # type: ignore[method-assign, assignment]
    begun_ns = time.monotonic_ns()
    running.run()
    assert sent == [(port, number) for number in range(2) for port in turn]
    assert len({id(pair.socket) for pair in running.pairs}) == sockets
    assert (running.ticks - running.skipped, running.refused) == (2 * groups, 1)
    assert 0 < running.worst_late_ns < 1e9
    assert all(pair.sent_ns[0] >= begun_ns + INTERVAL_NS for pair in running.pairs)


@pytest.mark.parametrize(
    ("late_ns", "left_out"), [(-1, 0), (11 * INTERVAL_NS - 1, 0), (11 * INTERVAL_NS, 11)]
)
def test_few_missed_ticks_are_sent_at_once_and_many_are_skipped(
    monkeypatch: pytest.MonkeyPatch, late_ns: int, left_out: int
) -> None:
    late, due_ns = three_pairs(monkeypatch), 10**12
    monkeypatch.setattr(time, "monotonic_ns", lambda: due_ns + late_ns)
    assert late._next(due_ns) == due_ns + (left_out + 1) * INTERVAL_NS
    assert (late.ticks, late.skipped) == (left_out + 1, left_out)


@pytest.mark.parametrize(("sent", "number", "probe"), [(10, 1, 9), (10, 2, 2), (5, 6, None)])
def test_a_number_is_that_of_the_last_probe_that_had_it(
    monkeypatch: pytest.MonkeyPatch, sent: int, number: int, probe: int | None
) -> None:
    """Of two arrivals, the first counts."""
    monkeypatch.setattr(prober, "PSN_MASK", 7)
    pair = three_pairs(monkeypatch).pairs[0]
    pair.sent_ns.extend([10] * sent)
    pair.arrived_ns.extend([0] * sent)
    for moment_ns in (31, 32):
        pair.arrive(number.to_bytes(3, "big"), moment_ns)
    assert pair.record()["delay_ns"] == [21 if n == probe else None for n in range(sent)]
