"""Whether a server listens, by the kernel's own table."""

from pathlib import Path

# proc(5), /proc/net/tcp: the state of a socket that listens.
LISTEN = "0A"


def listens(process_id: int, port: int) -> bool:
    """Whether any process in the network namespace of `process_id` listens at a TCP port."""
    tables = (Path(f"/proc/{process_id}/net/{name}") for name in ("tcp", "tcp6"))
    return any(_is_listener(line, port) for table in tables for line in _lines(table))


def _lines(table: Path) -> list[str]:
    return table.read_text().splitlines()[1:]


def _is_listener(line: str, port: int) -> bool:
    _, local_address, _, state, *_ = line.split()
    return state == LISTEN and local_address.endswith(f":{port:04X}")
