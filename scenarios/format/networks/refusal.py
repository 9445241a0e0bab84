"""The refusal of a network that no fabric of Railbed can represent."""


class Unmapped(Exception):
    """A file that cannot be read, or whose network no fabric can represent: its line, and why."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line, self.what = line, what


Keys = dict[str, int | float | str]
"""Keys of a scenario's fabric, with their values."""


def gbit(rate_gbps: float) -> str:
    """Return a rate as scenarios write it."""
    return f"{rate_gbps:.12g} Gbit/s"
