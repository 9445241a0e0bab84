"""Counters of TCP in a network namespace, from /proc/PID/net/snmp (RFC 4022)."""

from collections.abc import Iterable
from pathlib import Path


def retransmitted_segments(process_ids: Iterable[int]) -> list[int]:
    """Segments that the namespace of each of these processes has retransmitted."""
    return [_retransmitted(Path(f"/proc/{one}/net/snmp").read_text()) for one in process_ids]


def _retransmitted(snmp: str) -> int:
    """The value of tcpRetransSegs: one line of "Tcp:" has all names, the next one all values."""
    names, values = (line.split() for line in snmp.splitlines() if line.startswith("Tcp:"))
    return int(values[names.index("RetransSegs")])
