"""Captures: files that other programs read, bounded in size; links that a scenario has."""

import errno
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.utils import RawPcapReader

from execution.cases.observer import require_links
from linux.machine.clocks import Timestamps
from linux.network.socket_options import STATISTICS
from model.errors import InputError
from scenarios.library_files import LIBRARY
from scenarios.load import load
from testbed.instruments.capture_program import (
    ETHERNET,
    SECOND_NS,
    SNAPSHOT_BYTES,
    LinkCapture,
    PcapFile,
)
from tests.unit.machines import TWO_CORES

HEADER_BYTES = 24


@settings(max_examples=20)
@given(st.lists(st.binary(min_size=14, max_size=300), max_size=5), st.integers(0, 2**32 - 1))
def test_scapy_reads_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, frames: list[bytes], second: int
) -> None:
    place = tmp_path_factory.mktemp("pcap") / "a.pcap"
    file = PcapFile(place, 10**6)
    for frame in frames:
        file.add(memoryview(frame)[:SNAPSHOT_BYTES], len(frame), second * SECOND_NS + 123_456_789)
    assert file.close() == {"file": "a.pcap", "frames": len(frames), "left_out": 0}
    with RawPcapReader(str(place)) as reader:
        assert (reader.nano, reader.linktype) == (True, ETHERNET)
        found = list(reader)
    assert [frame for frame, _ in found] == [frame[:SNAPSHOT_BYTES] for frame in frames]
    assert [about.wirelen for _, about in found] == [len(frame) for frame in frames]
    assert all((about.sec, about.usec) == (second, 123_456_789) for _, about in found)


def test_a_file_stays_within_its_bound_and_counts_the_rest(tmp_path: Path) -> None:
    file = PcapFile(tmp_path / "a.pcap", HEADER_BYTES + 2 * (16 + 100) + 50)
    for _ in range(5):
        file.add(memoryview(bytes(100)), 1500, 0)
    assert file.close() == {"file": "a.pcap", "frames": 2, "left_out": 3}
    assert (tmp_path / "a.pcap").stat().st_size == HEADER_BYTES + 2 * 116


def test_an_interface_that_goes_down_ends_no_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports it once (packet(7), ENETDOWN): faults of a run take links down."""
    opened = Mock()
    opened.recvmsg_into.side_effect = [OSError(errno.ENETDOWN, "down"), BlockingIOError()]
    opened.getsockopt.return_value = STATISTICS.pack(0, 0)
    monkeypatch.setattr("testbed.instruments.capture_program.socket.socket", lambda *_: opened)
    found = LinkCapture("d0g0--rail0", "to-d0g0", tmp_path, 1000).close(Timestamps())
    assert opened.recvmsg_into.call_count == 2
    assert found["dropped_by_kernel"] == 0


def test_unknown_links_are_named_before_a_run() -> None:
    scenario = load(LIBRARY / "quickstart.yaml", [], TWO_CORES)
    require_links(scenario, ["d0g0--rail0", "rail0--spine1"])
    with pytest.raises(InputError) as found:
        require_links(scenario, ["../../etc", "d0g0--rail0", "d9g9--rail0"])
    assert [name in str(found.value) for name in ("'../../etc'", "'d9g9--rail0'")] == [True, True]
    assert "'d0g0--rail0'" not in str(found.value)
