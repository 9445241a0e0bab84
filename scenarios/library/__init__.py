"""The scenarios that come with Railbed."""

from pathlib import Path

LIBRARY = Path(__file__).parent
# Scenarios that got a better name; the old one is still accepted.
OLD_NAMES = {"verify": "check-data"}


def library() -> list[Path]:
    """Their files, by name."""
    return sorted(LIBRARY.glob("*.yaml"))
