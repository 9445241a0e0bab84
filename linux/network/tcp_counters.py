"""Counters of TCP in a network namespace: /proc/PID/net/snmp (RFC 4022) and netstat beside it."""

from collections.abc import Iterable
from pathlib import Path


def retransmitted_segments(process_ids: Iterable[int]) -> list[int]:
    """Segments that the namespace of each of these processes has retransmitted."""
    return [_counter(one, "snmp", "Tcp:", "RetransSegs") for one in process_ids]


def packets_out_of_order(process_ids: Iterable[int]) -> list[int]:
    """Packets that arrived before an earlier one in the namespace of each of these processes."""
    return [_counter(one, "netstat", "TcpExt:", "TCPOFOQueue") for one in process_ids]


def _counter(process_id: int, file: str, group: str, name: str) -> int:
    """One counter: a group's first line has all names, the next one all values."""
    lines = Path(f"/proc/{process_id}/net/{file}").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith(group))
    return int(values[names.index(name)])
