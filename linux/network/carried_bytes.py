"""Parser of the bytes that the interfaces of a network namespace have carried (proc(5))."""

# Columns of /proc/PID/net/dev behind the interface's name: bytes received and sent.
RECEIVED, SENT = 0, 8


def parse_carried(text: str) -> dict[str, tuple[int, int]]:
    """Received and sent bytes of each interface in /proc/PID/net/dev."""
    found = {}
    for line in text.splitlines()[2:]:
        name, _, figures = line.partition(":")
        columns = figures.split()
        found[name.strip()] = int(columns[RECEIVED]), int(columns[SENT])
    return found
