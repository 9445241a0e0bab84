"""What all formats of networks share: keys of a fabric, and why a network has none."""

# SimAI's file of 4096 GPUs has 3 MB.
MOST_BYTES = 2**24
# Above the numbers of nodes, NPUs and links of any fabric that can be emulated.
MOST = 1_000_000

Keys = dict[str, object]
"""Keys of a scenario's fabric, with their values as a scenario writes them."""


class Unmapped(Exception):
    """A file that cannot be read, or whose network no fabric can represent: its line, and why."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line, self.what = line, what


def gbit(rate_gbps: float) -> str:
    """Return a rate as scenarios write it."""
    return f"{rate_gbps:.12g} Gbit/s"
